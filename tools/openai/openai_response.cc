#include "tools/openai/openai_response.h"

#include "core/text/utf8.h"

namespace backplane::tools::openai {
namespace {

// The tokens of a choice's text, with the prompt's where they are echoed.
std::vector<ScoredToken> shown_tokens(const AnsweredPrompt& prompt, const Choice& choice, const TokenNames& names) {
  std::vector<ScoredToken> out;
  for (std::size_t i = 0; i < prompt.echo_offsets.size() && i < prompt.ids.size(); ++i) {
    ScoredToken& token = out.emplace_back(ScoredToken{.id = prompt.ids[i], .offset = prompt.echo_offsets[i]});
    const auto& reports = prompt.choices.front().prompt;
    if (i == 0 || i > reports.size()) continue;
    token.logprob = reports[i - 1].logprob;
    token.top = reports[i - 1].top;
  }
  std::size_t offset = count_characters(prompt.echo);
  for (const ScoredToken& token : choice.scored) {
    out.push_back(token);
    out.back().offset = offset;
    offset += count_characters(names.bytes(token.id).value_or(""));
  }
  return out;
}

Json completion_choice(const ApiRequest& request, const AnsweredPrompt& prompt, const Choice& choice,
                       const TokenNames& names) {
  Json out = {{"text", prompt.echo + choice.text}};
  Json& logprobs = out["logprobs"] = nullptr;
  if (request.settings.top_logprobs) logprobs = completion_logprobs(shown_tokens(prompt, choice, names), names);
  return out;
}

Json chat_choice(const ApiRequest& request, const Choice& choice, const TokenNames& names) {
  Json out = {{"message", {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}}}};
  Json& logprobs = out["logprobs"] = nullptr;
  if (request.settings.top_logprobs) logprobs = chat_logprobs(choice.scored, names);
  return out;
}

}  // namespace

void Choice::add(const engine::Event& event) {
  if (event.token >= 0) {
    ids.push_back(event.token);
    if (event.logprob) scored.push_back({event.token, event.logprob, event.top});
  }
  if (!event.prompt.empty()) prompt = event.prompt;
  text += event.text;
  finish = event.finish;
  error = event.error;
}

std::optional<Error> error_of(const std::vector<AnsweredPrompt>& prompts) {
  for (const AnsweredPrompt& prompt : prompts) {
    for (const Choice& choice : prompt.choices) {
      if (choice.finish != engine::FinishReason::kError) continue;
      if (choice.error) return choice.error;
      return Error(ErrorCode::kInternal, "the generation failed without a reason");
    }
  }
  return std::nullopt;
}

Json usage_json(std::uint64_t prompt_tokens, std::uint64_t completion_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens}};
}

Json response_body(const ApiRequest& request, const ResponseHead& head, const std::vector<AnsweredPrompt>& prompts,
                   const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  const bool chat = request.endpoint == Endpoint::kChat;
  const TokenNames names(tokenizer);
  const Choice nothing{.finish = engine::FinishReason::kLength};
  Json choices = Json::array();
  std::uint64_t prompt_tokens = 0, completion_tokens = 0;
  for (const AnsweredPrompt& prompt : prompts) {
    prompt_tokens += prompt.ids.size();
    for (const Choice& generated : prompt.choices) {
      const Choice& choice = request.only_echo ? nothing : generated;
      completion_tokens += choice.ids.size();
      Json out = {{"index", choices.size()}};
      out.update(chat ? chat_choice(request, choice, names) : completion_choice(request, prompt, choice, names));
      out["finish_reason"] = engine::finish_reason_name(choice.finish);
      if (request.return_token_ids) {
        out["token_ids"] = choice.ids;
        if (!chat) out["prompt_token_ids"] = prompt.ids;
      }
      choices.push_back(std::move(out));
    }
  }
  Json body = {{"id", (chat ? "chatcmpl-" : "cmpl-") + head.id},
               {"object", chat ? "chat.completion" : "text_completion"},
               {"created", head.created},
               {"model", head.model},
               {"choices", std::move(choices)},
               {"usage", usage_json(prompt_tokens, completion_tokens)}};
  if (chat && request.return_token_ids) body["prompt_token_ids"] = prompts.front().ids;
  return body;
}

}  // namespace backplane::tools::openai

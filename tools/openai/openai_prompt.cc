#include "tools/openai/openai_prompt.h"

#include <algorithm>

#include "core/text/utf8.h"
#include "tools/openai/openai_error.h"
#include "tools/openai/openai_logprobs.h"

namespace backplane::tools::openai {
namespace {

const text::Tokenizer& tokenizer_of(const ServedModel& model, std::string_view param) {
  if (model.tokenizer) return *model.tokenizer;
  throw ApiError(400, "the model has no tokenizer: give token ids", param);
}

// As vLLM: each word also as it is behind a space, where that takes as many tokens.
std::vector<std::vector<TokenId>> bad_words(const std::vector<std::string>& words, const text::Tokenizer& tokenizer) {
  std::vector<std::vector<TokenId>> out;
  for (const std::string& word : words) {
    const std::size_t begin = word.find_first_not_of(' ');
    const std::string bare = begin == std::string::npos ? word : word.substr(begin);
    const std::vector<TokenId> first = tokenizer.encode(word), spaced = tokenizer.encode(" " + bare);
    if (!first.empty()) out.push_back(first);
    if (!spaced.empty() && spaced.size() == first.size() && spaced[0] != first[0]) out.push_back(spaced);
  }
  return out;
}

std::string text_of(const ServedModel& model, std::vector<TokenId> ids) {
  if (!model.tokenizer) return {};
  const auto outside = [&](TokenId id) { return static_cast<std::size_t>(id) >= model.tokenizer->vocab_size(); };
  ids.erase(std::remove_if(ids.begin(), ids.end(), outside), ids.end());
  return text::to_valid_utf8(model.tokenizer->decode(ids));
}

// `shown`: the text has the special tokens too.
std::vector<std::size_t> offsets(const ServedModel& model, const std::vector<TokenId>& ids, bool shown) {
  std::vector<std::size_t> out;
  std::size_t at = 0;
  bool at_start = true;
  for (const TokenId id : ids) {
    out.push_back(at);
    const bool known = model.tokenizer && static_cast<std::size_t>(id) < model.tokenizer->vocab_size();
    if (!known || (!shown && model.tokenizer->is_special(id))) continue;
    at += count_characters(model.tokenizer->shown_bytes(id, at_start));
  }
  return out;
}

PreparedPrompt prepare_completion(const ApiRequest& request, const Prompt& prompt, const engine::Request& settings,
                                  const ServedModel& model) {
  PreparedPrompt out{.request = settings};
  const auto* ids = std::get_if<std::vector<TokenId>>(&prompt);
  if (ids) {
    out.request.prompt = *ids;
    if (request.echo) out.echo = text_of(model, *ids);
  } else {
    const auto& text = std::get<std::string>(prompt);
    const text::Tokenizer& tokenizer = tokenizer_of(model, "prompt");
    out.request.prompt = tokenizer.encode(text, {.add_special = request.add_special_tokens, .parse_special = false});
    if (request.echo) out.echo = text;
  }
  if (settings.prompt_logprobs) out.echo_offsets = offsets(model, out.request.prompt, ids != nullptr);
  return out;
}

}  // namespace

std::vector<PreparedPrompt> prepare(const ApiRequest& request, const ServedModel& model) try {
  engine::Request settings = request.settings;
  settings.eos_ids = model.end_ids;
  if (!settings.stop.empty()) tokenizer_of(model, "stop");
  if (!request.bad_words.empty()) {
    settings.sampling.bad_words = bad_words(request.bad_words, tokenizer_of(model, "bad_words"));
  }
  std::vector<PreparedPrompt> out;
  if (request.endpoint == Endpoint::kChat) {
    if (!model.chat) throw ApiError(400, "the model has no chat template: use /v1/completions", "messages");
    settings.prompt = model.chat->ids(request.messages, request.template_variables, request.add_generation_prompt);
    out.push_back({.request = std::move(settings)});
    return out;
  }
  for (const Prompt& prompt : request.prompts) {
    out.push_back(prepare_completion(request, prompt, settings, model));
  }
  return out;
} catch (const Error& error) {
  throw api_error(error);
}

}  // namespace backplane::tools::openai

#include "tools/run_options.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <random>

#include "core/base/error.h"
#include "core/engine/admission.h"
#include "core/text/utf8.h"
#include "tools/prompt.h"

namespace backplane::tools {
namespace {

std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 21) ^ device();  // at most 53 bits: any JSON reader keeps them
}

// From "ID=BIAS" each.
std::map<TokenId, double> parse_biases(const std::vector<std::string>& texts) {
  std::map<TokenId, double> biases;
  for (const std::string& text : texts) {
    const auto refuse = [&](std::string_view what) {
      throw Error(ErrorCode::kUsage, what, "--logit-bias " + text::to_valid_utf8(text),
                  "give a token id and a number, such as 42=-100");
    };
    TokenId id = 0;
    double bias = 0;
    const char* const end = text.data() + text.size();
    const auto [equals, bad_id] = std::from_chars(text.data(), end, id);
    if (bad_id != std::errc() || equals == end || *equals != '=') refuse("not a token id and a bias");
    const auto [after, bad_bias] = std::from_chars(equals + 1, end, bias);
    if (bad_bias != std::errc() || after != end) refuse("not a token id and a bias");
    if (!biases.emplace(id, bias).second) refuse("this token has a bias already");
  }
  return biases;
}

// At the beginning of a text and after a space a word may be other tokens.
std::vector<std::vector<TokenId>> encode_words(const OpenedModel& opened, const std::vector<std::string>& words) {
  std::vector<std::vector<TokenId>> out;
  for (const std::string& word : words) {
    const text::Tokenizer& tokenizer = *opened.need_tokenizer().tokenizer;
    for (const std::string& text : {word, " " + word}) {
      auto ids = tokenizer.encode(text, {.add_special = false, .parse_special = false});
      if (word.empty() || ids.empty()) {
        throw Error(ErrorCode::kUsage, "a word that may not come needs a letter", "--bad-word", "leave the option out");
      }
      out.push_back(std::move(ids));
    }
  }
  return out;
}

sample::SamplingParams sampling_params(const RunOptions& options, const OpenedModel& opened) {
  sample::SamplingParams params;
  params.temperature = options.temperature;
  params.top_k = static_cast<std::int32_t>(std::min<std::uint32_t>(options.top_k, INT32_MAX));
  params.top_p = options.top_p;
  params.min_p = options.min_p;
  params.typical_p = options.typical_p;
  params.repetition_penalty = options.repetition_penalty;
  params.presence_penalty = options.presence_penalty;
  params.frequency_penalty = options.frequency_penalty;
  params.logit_bias = parse_biases(options.logit_bias);
  params.bad_words = encode_words(opened, options.bad_words);
  params.seed = options.seed ? *options.seed : random_seed();
  return params;
}

}  // namespace

engine::Request make_request(const RunOptions& options, const OpenedModel& opened, bool chat) {
  engine::Request request;
  request.sampling = sampling_params(options, opened);
  request.n = options.answers;
  request.max_tokens = options.max_tokens.value_or(chat ? kReplyTokens : kCompletionTokens);
  if (*request.max_tokens == 0) {
    throw Error(ErrorCode::kUsage, "at least one token must be asked for", "-n 0", "give a larger number");
  }
  request.min_tokens = options.min_tokens;
  request.eos_ids = opened.end_ids();
  request.ignore_eos = options.ignore_eos;
  request.stop = options.stop;
  request.include_stop = options.include_stop;
  if (!request.stop.empty()) opened.need_tokenizer();
  for (const std::string& text : options.stop_ids) {
    const std::vector<TokenId> ids = parse_ids(text);
    request.stop_ids.insert(request.stop_ids.end(), ids.begin(), ids.end());
  }
  request.top_logprobs = options.top_logprobs;
  request.prompt_logprobs = options.prompt_logprobs;
  // The engine does too, but only when the model is loaded.
  engine::check_settings(request, opened.file.spec().vocab_size, opened.tokenizer.has_value());
  return request;
}

void add_sampling(Command& command, RunOptions& options) {
  command
      .option("-n,--max-tokens", options.max_tokens, "N",
              "Tokens to generate at most (default: 1024 for a reply, 256 for a completion)")
      .option("--min-tokens", options.min_tokens, "N", "Tokens before which nothing ends the text")
      .option("--n", options.answers, "N", "Several answers to the prompt, each drawn for itself")
      .option("--temperature", options.temperature, "T", "0: always the best token; default 0.8")
      .option("--top-k", options.top_k, "K", "Choose among the K best tokens; 0: all; default 40")
      .option("--top-p", options.top_p, "P", "Choose among the best tokens of this probability; 1: all; default 0.95")
      .option("--min-p", options.min_p, "P",
              "Leave out tokens below this part of the best one's; 0: none; default 0.05")
      .option("--typical", options.typical_p, "P",
              "Choose among the most typical tokens of this probability; 1: all, the default")
      .option("--repetition-penalty", options.repetition_penalty, "R",
              "Divide the logits of tokens that were there before, in prompt or answer; 1: none, the default")
      .option("--presence-penalty", options.presence_penalty, "P",
              "Subtract from those of the answer's tokens, -2 to 2; default 0")
      .option("--frequency-penalty", options.frequency_penalty, "F",
              "Subtract for each time that they were there, -2 to 2; default 0")
      .list("--logit-bias", options.logit_bias, "ID=BIAS", "Add to a token's logit, -100 to 100; may be repeated")
      .list("--bad-word", options.bad_words, "TEXT", "What may not be written; may be repeated")
      .option("--seed", options.seed, "SEED", "The same seed gives the same text (default: another one each time)")
      .list("--stop", options.stop, "TEXT", "Stop before this text; may be repeated")
      .list("--stop-id", options.stop_ids, "ID", "Stop at this token; may be repeated")
      .flag("--include-stop", options.include_stop, "Stop after the text of --stop instead")
      .flag("--ignore-eos", options.ignore_eos, "Go on where the model wants to end")
      .option("--top-logprobs", options.top_logprobs, "K", "With --json: each token's log-probability and the K best")
      .option("--prompt-logprobs", options.prompt_logprobs, "K", "With --json: the same of the prompt's tokens");
}

}  // namespace backplane::tools

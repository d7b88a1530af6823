#include "tools/openai/openai_request.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "tools/openai/openai_error.h"
#include "tools/openai/openai_fields.h"
#include "tools/openai/openai_messages.h"

namespace backplane::tools::openai {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeastPositive = std::numeric_limits<double>::min();
constexpr std::int64_t kMostTokens = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kMostStops = 64, kLongestStop = 1024;
constexpr std::size_t kMostBadWords = 1024;

std::vector<TokenId> ids_of(const Fields& body, const char* key, const Json& list) {
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const Json& each : list) {
    const auto id = as_integer(each);
    if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) {
      body.refuse(key, fmt::format("must hold token ids, not {}", shown(each)));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

std::vector<TokenId> read_ids(const Fields& body, const char* key) {
  const Json* list = body.array(key);
  return list ? ids_of(body, key, *list) : std::vector<TokenId>();
}

Prompt read_prompt(const Fields& body, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) body.refuse("prompt", fmt::format("must be text or token ids, not {}", shown(value)));
  if (value.empty()) body.refuse("prompt", "must not be empty");
  return ids_of(body, "prompt", value);
}

// A string, strings, ids, or lists of ids.
std::vector<Prompt> read_prompts(const Fields& body) {
  if (const Json* embeds = body.find("prompt_embeds"); embeds) body.refuse("prompt_embeds", "is not supported");
  const Json* value = body.find("prompt");
  if (!value) body.refuse("prompt", "is required: a string, a list of strings or of token ids");
  const bool several = value->is_array() && !value->empty() && !value->front().is_number();
  if (!several) return {read_prompt(body, *value)};
  if (value->size() > kMostChoices) body.refuse("prompt", fmt::format("has more than {} prompts", kMostChoices));
  std::vector<Prompt> prompts;
  for (const Json& each : *value) prompts.push_back(read_prompt(body, each));
  return prompts;
}

std::vector<std::string> read_strings(const Fields& body, const char* key, std::size_t most, std::size_t longest) {
  std::vector<std::string> texts;
  const Json* value = body.find(key);
  if (!value) return texts;
  const auto add = [&](const Json& text) {
    if (!text.is_string()) body.refuse(key, fmt::format("must be a string or a list of strings, not {}", shown(text)));
    texts.push_back(text.get<std::string>());
    if (texts.back().empty()) body.refuse(key, "must not be empty");
    if (texts.back().size() > longest) body.refuse(key, fmt::format("is longer than {} bytes", longest));
  };
  if (!value->is_array()) {
    add(*value);
    return texts;
  }
  if (value->size() > most) body.refuse(key, fmt::format("has more than {} strings", most));
  for (const Json& text : *value) add(text);
  return texts;
}

std::map<TokenId, double> read_logit_bias(const Fields& body) {
  std::map<TokenId, double> biases;
  const Json* object = body.object("logit_bias");
  if (!object) return biases;
  for (const auto& [key, value] : object->items()) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      body.refuse("logit_bias", fmt::format("must have token ids as its keys, not {}", shown(Json(key))));
    }
    const double bias = value.is_number() ? value.get<double>() : NAN;
    if (!(std::abs(bias) <= 100)) {
      body.refuse("logit_bias", fmt::format("must hold numbers from -100 to 100, not {}", shown(value)));
    }
    biases[id] = bias;
  }
  return biases;
}

sample::SamplingParams read_sampling(const Fields& body) {
  sample::SamplingParams p;
  p.temperature = body.number("temperature", 0, kInfinity).value_or(1);
  p.top_p = body.number("top_p", 0, 1).value_or(1);
  const std::int64_t top_k = body.integer("top_k", -1, std::numeric_limits<std::int32_t>::max()).value_or(0);
  p.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(top_k, 0));  // vLLM's -1: all
  p.min_p = body.number("min_p", 0, 1).value_or(0);
  p.typical_p = body.number("typical_p", kLeastPositive, 1).value_or(1);
  p.repetition_penalty = body.number("repetition_penalty", kLeastPositive, kInfinity).value_or(1);
  p.presence_penalty = body.number("presence_penalty", -2, 2).value_or(0);
  p.frequency_penalty = body.number("frequency_penalty", -2, 2).value_or(0);
  p.logit_bias = read_logit_bias(body);
  p.allowed_ids = read_ids(body, "allowed_token_ids");
  return p;
}

// A chat's is a flag and a number, that of completions a number.
std::optional<std::uint32_t> read_logprobs(const Fields& body, Endpoint endpoint) {
  if (endpoint == Endpoint::kCompletions) {
    const auto count = body.integer("logprobs", 0, kMostTopLogprobs);
    return count ? std::optional(static_cast<std::uint32_t>(*count)) : std::nullopt;
  }
  const bool wanted = body.flag("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", 0, kMostTopLogprobs);
  if (top.value_or(0) > 0 && !wanted) body.refuse("top_logprobs", "needs logprobs to be true");
  return wanted ? std::optional(static_cast<std::uint32_t>(top.value_or(0))) : std::nullopt;
}

void read_settings(const Fields& body, ApiRequest& request) {
  engine::Request& settings = request.settings;
  settings.sampling = read_sampling(body);
  // Any 64 bits, as a negative or a non-negative number.
  const Json* seed = body.find("seed");
  if (seed && seed->is_number_unsigned()) {
    settings.sampling.seed = seed->get<std::uint64_t>();
  } else if (seed) {
    settings.sampling.seed = static_cast<std::uint64_t>(*body.integer("seed", INT64_MIN, INT64_MAX));
  }
  request.has_seed = seed != nullptr;
  const bool chat = request.endpoint == Endpoint::kChat;
  const auto count = [](std::optional<std::int64_t> value) { return static_cast<std::uint32_t>(value.value_or(0)); };
  const auto old = body.integer("max_tokens", request.echo ? 0 : 1, kMostTokens);
  const auto max_tokens = body.integer("max_completion_tokens", 1, kMostTokens);
  if (max_tokens || old) {
    settings.max_tokens = count(max_tokens ? max_tokens : old);
    request.only_echo = settings.max_tokens == 0u;
    if (request.only_echo) settings.max_tokens = 1;
  } else if (!chat) {
    settings.max_tokens = kCompletionTokens;
  }
  settings.min_tokens = count(body.integer("min_tokens", 0, kMostTokens));
  settings.ignore_eos = body.flag("ignore_eos").value_or(false);
  settings.stop = read_strings(body, "stop", kMostStops, kLongestStop);
  settings.stop_ids = read_ids(body, "stop_token_ids");
  settings.include_stop = body.flag("include_stop_str_in_output").value_or(false);
  settings.top_logprobs = read_logprobs(body, request.endpoint);
  if (request.echo) settings.prompt_logprobs = settings.top_logprobs;
  settings.priority = static_cast<std::int32_t>(body.integer("priority", INT32_MIN, INT32_MAX).value_or(0));
  settings.cache_salt = body.string("cache_salt").value_or("");
  request.bad_words = read_strings(body, "bad_words", kMostBadWords, kLongestStop);
}

// What would change the answer, and that we can't do. Each may be given with the value that changes nothing.
void refuse_unsupported(const Fields& body, std::uint32_t n) {
  for (const char* key : {"structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
                          "guided_decoding_backend", "grammar", "json_schema", "functions", "function_call", "audio",
                          "chat_template", "logits_processors", "kv_transfer_params", "documents", "suffix",
                          "prompt_logprobs", "web_search_options", "truncate_prompt_tokens"}) {
    const Json* value = body.find(key);
    const bool nothing = !value || *value == "" || (value->is_structured() && value->empty());
    if (!nothing) body.refuse(key, "is not supported");
  }
  if (body.flag("use_beam_search").value_or(false)) body.refuse("use_beam_search", "is not supported");
  if (!body.flag("skip_special_tokens").value_or(true)) body.refuse("skip_special_tokens", "can only be true");
  if (body.integer("best_of", 1, engine::kMostAnswers).value_or(n) != n)
    body.refuse("best_of", "can only be the same as n");
  if (const Json* format = body.object("response_format")) {
    const auto type = Fields(*format, "response_format").string("type");
    if (type && *type != "text") body.refuse("response_format", fmt::format("of type {} is not supported", *type));
  }
  if (const Json* tools = body.array("tools"); tools && !tools->empty()) {
    const Json* choice = body.find("tool_choice");
    if (!choice || *choice != "none") body.refuse("tools", "are not supported: leave them out, or tool_choice none");
  }
  if (const Json* modalities = body.array("modalities")) {
    for (const Json& each : *modalities) {
      if (each != "text") body.refuse("modalities", fmt::format("can only be text, not {}", shown(each)));
    }
  }
}

}  // namespace

std::optional<Endpoint> endpoint_of(std::string_view path) {
  if (path == "/v1/completions") return Endpoint::kCompletions;
  if (path == "/v1/chat/completions") return Endpoint::kChat;
  return std::nullopt;
}

ApiRequest parse_request(Endpoint endpoint, const Json& object) {
  if (!object.is_object()) throw ApiError(400, fmt::format("the body must be an object, not {}", shown(object)));
  const Fields body(object);
  ApiRequest request;
  request.endpoint = endpoint;
  request.model = body.string("model").value_or("");
  const auto n = static_cast<std::uint32_t>(body.integer("n", 1, engine::kMostAnswers).value_or(1));
  request.settings.n = n;
  refuse_unsupported(body, n);
  if (endpoint == Endpoint::kChat) {
    request.messages = read_messages(body);
    request.add_generation_prompt = body.flag("add_generation_prompt").value_or(true);
    if (body.flag("continue_final_message").value_or(false)) {
      body.refuse("continue_final_message", "is not supported");
    }
    if (const Json* variables = body.object("chat_template_kwargs")) request.template_variables = *variables;
  } else {
    request.prompts = read_prompts(body);
    request.add_special_tokens = body.flag("add_special_tokens").value_or(true);
  }
  request.echo = body.flag("echo").value_or(false);
  if (request.echo && endpoint == Endpoint::kChat) body.refuse("echo", "is for completions only");
  if (request.prompts.size() * n > kMostChoices) {
    body.refuse("n", fmt::format("times the prompts are {} choices; {} are the most", request.prompts.size() * n,
                                 kMostChoices));
  }
  read_settings(body, request);
  request.stream = body.flag("stream").value_or(false);
  if (const Json* options = body.object("stream_options")) {
    request.include_usage = Fields(*options, "stream_options").flag("include_usage").value_or(false);
  }
  request.return_token_ids = body.flag("return_token_ids").value_or(false);
  return request;
}

}  // namespace backplane::tools::openai

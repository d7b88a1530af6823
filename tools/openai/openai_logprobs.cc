#include "tools/openai/openai_logprobs.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text/utf8.h"

namespace backplane::tools::openai {
namespace {

Json bytes_json(const TokenNames& names, TokenId id) {
  const auto bytes = names.bytes(id);
  if (!bytes) return {};
  Json list = Json::array();
  for (const char byte : *bytes) list.push_back(static_cast<unsigned char>(byte));
  return list;
}

Json chat_token(const TokenNames& names, TokenId id, double logprob) {
  return {{"token", names.text(id)}, {"logprob", finite_logprob(logprob)}, {"bytes", bytes_json(names, id)}};
}

Json top_object(const ScoredToken& token, const TokenNames& names) {
  Json top = Json::object();
  // Of tokens with the same name the likelier one stays: they come best first.
  for (const sample::TokenLogprob& each : token.top) {
    top.emplace(names.unique(each.id), finite_logprob(each.logprob));
  }
  top.emplace(names.unique(token.id), finite_logprob(*token.logprob));
  return top;
}

}  // namespace

std::optional<std::string_view> TokenNames::bytes(TokenId id) const {
  if (!tokenizer_ || id < 0 || static_cast<std::size_t>(id) >= tokenizer_->vocab_size()) return std::nullopt;
  return tokenizer_->token_bytes(id);
}

std::string TokenNames::text(TokenId id) const {
  const auto known = bytes(id);
  return known ? text::to_valid_utf8(*known) : fmt::format("token_id:{}", id);
}

std::string TokenNames::unique(TokenId id) const {
  const auto known = bytes(id);
  if (!known || text::to_valid_utf8(*known) == *known) return text(id);
  std::string name = "bytes:";
  for (const char byte : *known) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return name;
}

Json chat_logprobs(const std::vector<ScoredToken>& tokens, const TokenNames& names) {
  Json content = Json::array();
  for (const ScoredToken& token : tokens) {
    Json entry = chat_token(names, token.id, *token.logprob);
    Json& top = entry["top_logprobs"] = Json::array();
    for (const sample::TokenLogprob& each : token.top) top.push_back(chat_token(names, each.id, each.logprob));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const std::vector<ScoredToken>& tokens, const TokenNames& names) {
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const ScoredToken& token : tokens) {
    out["tokens"].push_back(names.unique(token.id));
    out["token_logprobs"].push_back(token.logprob ? Json(finite_logprob(*token.logprob)) : Json());
    out["top_logprobs"].push_back(token.logprob ? top_object(token, names) : Json());
    out["text_offset"].push_back(token.offset);
  }
  return out;
}

double finite_logprob(double logprob) { return std::max(logprob, -9999.0); }

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !text::is_continuation_byte(byte); }));
}

}  // namespace backplane::tools::openai

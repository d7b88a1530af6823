#include "tools/prompt.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/text/utf8.h"

namespace backplane::tools {
namespace {

const std::string& template_of(const formats::TokenizerBundle& bundle) {
  if (bundle.chat_template) return *bundle.chat_template;
  throw Error(ErrorCode::kBadFile, "the model has no chat template", "", "use --raw to complete a text");
}

}  // namespace

std::vector<TokenId> completion_prompt(const text::Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special = true, .parse_special = false});
}

ChatPrompt::ChatPrompt(const formats::TokenizerBundle& bundle)
    : bundle_(bundle), template_(template_of(bundle), "the model's chat template") {}

std::vector<TokenId> ChatPrompt::ids(const std::vector<ChatMessage>& messages) const {
  return ids(messages, nlohmann::ordered_json::object());
}

std::vector<TokenId> ChatPrompt::ids(const std::vector<ChatMessage>& messages, const nlohmann::ordered_json& more,
                                     bool ask) const {
  nlohmann::ordered_json variables = more;
  variables["messages"] = nlohmann::ordered_json::array();
  variables["add_generation_prompt"] = ask;
  variables["bos_token"] = bundle_.bos_token;
  variables["eos_token"] = bundle_.eos_token;
  for (const ChatMessage& message : messages) {
    variables["messages"].push_back({{"role", message.role}, {"content", text::to_valid_utf8(message.content)}});
  }
  const text::Tokenizer& tokenizer = *bundle_.tokenizer;
  auto ids = tokenizer.encode(template_.render(variables), {.add_special = false, .parse_special = true});
  const TokenId bos = tokenizer.bos();
  if (tokenizer.add_bos() && bos != text::kNoToken && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

std::vector<TokenId> parse_ids(std::string_view text) {
  constexpr std::string_view kBetween = " ,;[]\t\r\n";
  std::vector<TokenId> ids;
  while (true) {
    const std::size_t begin = text.find_first_not_of(kBetween);
    if (begin == text.npos) return ids;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kBetween));
    TokenId id = 0;
    const auto [after, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || after != word.data() + word.size() || id < 0) {
      throw Error(ErrorCode::kUsage, "not a token id", text::to_valid_utf8(word.substr(0, 40)),
                  "give numbers with commas or spaces between them");
    }
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
}

}  // namespace backplane::tools

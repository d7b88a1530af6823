// From what the user says to the ids that the model is given.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/formats/tokenizer_bundle.h"
#include "core/text/jinja/chat_template.h"

namespace backplane::tools {

// BOS and the like as the tokenizer says; special tokens written in the text stay text.
std::vector<TokenId> completion_prompt(const text::Tokenizer& tokenizer, std::string_view text);

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// Renders conversations with the model's own template.
class ChatPrompt {
 public:
  // Throws Error{kBadFile} when the model has no template, or one that doesn't parse.
  explicit ChatPrompt(const formats::TokenizerBundle& bundle);

  // Everything so far, with what asks the model for its reply. BOS is added where the tokenizer wants it and the
  // template hasn't written it. Throws TemplateError.
  std::vector<TokenId> ids(const std::vector<ChatMessage>& messages) const;
  // With more variables for the template, an object; and without what asks for the reply unless `ask`.
  std::vector<TokenId> ids(const std::vector<ChatMessage>& messages, const nlohmann::ordered_json& more,
                           bool ask = true) const;

 private:
  const formats::TokenizerBundle& bundle_;
  text::jinja::ChatTemplate template_;
};

// "1,2,3". Throws Error{kUsage}.
std::vector<TokenId> parse_ids(std::string_view text);

}  // namespace backplane::tools

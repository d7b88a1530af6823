// Cuts a template into tokens, with Jinja's white-space rules applied to the text between tags (trim_blocks and
// lstrip_blocks are on, as Hugging Face has them; the last newline of the source is dropped).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/text/jinja/number.h"

namespace backplane::text::jinja {

enum class TokenType {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInt,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenType type;
  std::string text;  // data, name, operator, or the string with its escapes resolved
  int line;
  Int integer = 0;
  double real = 0;

  bool is_name(std::string_view name) const { return type == TokenType::kName && text == name; }
  bool is_operator(std::string_view symbol) const { return type == TokenType::kOperator && text == symbol; }
};

// A token as error messages name it.
std::string describe(const Token& token);

// A syntax error and its line.
struct SyntaxFault {
  std::string message;
  int line;
};

// The last token is kEnd. Throws SyntaxFault.
std::vector<Token> tokenize(std::string_view source);

}  // namespace backplane::text::jinja

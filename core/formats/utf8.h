// UTF-8 checks for names and texts that come from files.
#pragma once

#include <string>
#include <string_view>

namespace backplane::formats {

// Strict: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);
// Every byte that can't be read becomes U+FFFD.
std::string to_utf8(std::string_view text);
// For error messages: in quotes, valid UTF-8, cut after 80 bytes.
std::string quote_name(std::string_view name);
// What a JSON library's exception says, without its own label, cut after 200 bytes.
std::string json_complaint(std::string_view what);

}  // namespace backplane::formats

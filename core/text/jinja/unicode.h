// UTF-8 text as Python sees it: a sequence of code points with Python's classes and cases. A byte that isn't valid
// UTF-8 counts as one code point of no class and is copied unchanged.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace backplane::text::jinja {

inline constexpr char32_t kBadByte = 0x110000;  // plus the byte: what next_code_point() gives for invalid bytes

// Reads the code point at `position` (which must be inside) and moves past it.
char32_t next_code_point(std::string_view text, std::size_t& position);
void append_code_point(std::string& text, char32_t code_point);

std::size_t count_code_points(std::string_view text);
std::vector<std::string_view> split_code_points(std::string_view text);
bool is_ascii(std::string_view text);

bool is_space(char32_t c);  // as str.isspace and the \s of regular expressions
bool is_alpha(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_word(char32_t c);  // as \w
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_printable(char32_t c);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_capitalized(std::string_view text);  // as str.capitalize
std::string to_titled(std::string_view text);       // as str.title
std::string to_swapped_case(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
// Without `chars`, strips white space; else every code point that `chars` holds.
std::string_view strip(std::string_view text, Side side = Side::kBoth, std::optional<std::string_view> chars = {});

// Splits at \n, \r\n, \r and the other line ends of str.splitlines.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

// Byte position of `needle` at or after `from`, in linear time whatever the texts; npos if there is none.
std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from = 0);

}  // namespace backplane::text::jinja

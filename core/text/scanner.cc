#include "core/text/scanner.h"

#include <utility>

#include "core/text/utf8.h"

namespace backplane::text {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSmolLmPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d|\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+)";
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

bool is_newline(char32_t c) { return c == '\r' || c == '\n'; }

}  // namespace

std::string_view scanner_pattern(ScannerKind kind) {
  switch (kind) {
    case ScannerKind::kGpt2:
      return kGpt2Pattern;
    case ScannerKind::kSmolLm:
      return kSmolLmPattern;
    case ScannerKind::kLlama3:
      return kLlama3Pattern;
    case ScannerKind::kQwen2:
      return kQwen2Pattern;
  }
  return {};
}

std::optional<ScannerKind> scanner_for_pattern(std::string_view pattern) {
  for (const ScannerKind kind : {ScannerKind::kGpt2, ScannerKind::kLlama3, ScannerKind::kQwen2}) {
    if (pattern == scanner_pattern(kind)) return kind;
  }
  return std::nullopt;
}

inline Scanner::Symbol Scanner::peek(std::string_view text, std::size_t at) const {
  if (at >= text.size()) return {};
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {byte, 1, classes_[byte]};
  const CodePoint point = decode_code_point(text, at);
  if (!point.valid) return {0xFFFD, 1, CharClass::kOther};
  return {point.value, point.size, classes_[point.value]};
}

inline std::size_t Scanner::skip(std::string_view text, std::size_t at, CharClass kind) const {
  for (;;) {
    const Symbol symbol = peek(text, at);
    if (symbol.size == 0 || symbol.kind != kind) return at;
    at += symbol.size;
  }
}

// The end of 's, 't, 're, 've, 'm, 'll or 'd at `at`, or `at`. Without regard to case U+017F is an s as well.
std::size_t Scanner::contraction(std::string_view text, std::size_t at, bool any_case) const {
  const auto letter = [&](std::size_t i) {
    char c = i < text.size() ? text[i] : '\0';
    if (any_case && c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
    return c;
  };
  const char second = letter(at + 2);
  switch (letter(at + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return at + 2;
    case 'r':
    case 'v':
      return second == 'e' ? at + 3 : at;
    case 'l':
      return second == 'l' ? at + 3 : at;
    default:
      break;
  }
  return any_case && text.substr(at + 1, 2) == "\xC5\xBF" ? at + 3 : at;
}

std::size_t Scanner::next(std::string_view text, std::size_t at) const {
  return kind_ <= ScannerKind::kSmolLm ? next_gpt2(text, at) : next_llama3(text, at);
}

std::size_t Scanner::next_gpt2(std::string_view text, std::size_t at) const {
  const bool single_numbers = kind_ == ScannerKind::kSmolLm;
  Symbol symbol = peek(text, at);
  if (symbol.value == '\'') {
    const std::size_t end = contraction(text, at, false);
    if (end > at) return end;
  }
  std::size_t start = at;
  if (symbol.value == ' ') {
    const Symbol after = peek(text, at + 1);
    const bool joins =
        after.size != 0 && after.kind != CharClass::kSpace && !(single_numbers && after.kind == CharClass::kNumber);
    if (joins) {
      symbol = after;
      start = at + 1;
    }
  }
  if (symbol.kind == CharClass::kNumber && single_numbers) return start + symbol.size;
  if (symbol.kind != CharClass::kSpace) return skip(text, start + symbol.size, symbol.kind);
  // A run of spaces leaves its last one to the word behind it.
  std::size_t last = at, end = at;
  for (; symbol.size != 0 && symbol.kind == CharClass::kSpace; symbol = peek(text, end)) {
    last = end;
    end += symbol.size;
  }
  const bool whole = symbol.size == 0 || (single_numbers && symbol.kind == CharClass::kNumber);
  return whole || last == at ? end : last;
}

std::size_t Scanner::next_llama3(std::string_view text, std::size_t at) const {
  Symbol symbol = peek(text, at);
  if (symbol.value == '\'') {
    const std::size_t end = contraction(text, at, true);
    if (end > at) return end;
  }
  if (symbol.kind == CharClass::kLetter) return skip(text, at + symbol.size, CharClass::kLetter);
  if (symbol.kind == CharClass::kNumber) {
    std::size_t end = at + symbol.size;
    for (int more = kind_ == ScannerKind::kLlama3 ? 2 : 0; more > 0; --more) {
      const Symbol after = peek(text, end);
      if (after.size == 0 || after.kind != CharClass::kNumber) break;
      end += after.size;
    }
    return end;
  }
  const Symbol after = peek(text, at + symbol.size);
  if (!is_newline(symbol.value) && after.size != 0 && after.kind == CharClass::kLetter) {
    return skip(text, at + symbol.size + after.size, CharClass::kLetter);
  }
  const bool joins = symbol.value == ' ' && after.size != 0 && after.kind == CharClass::kOther;
  if (symbol.kind == CharClass::kOther || joins) {
    std::size_t end = skip(text, at + symbol.size, CharClass::kOther);
    while (end < text.size() && is_newline(static_cast<unsigned char>(text[end]))) ++end;
    return end;
  }
  // A run of spaces ends behind its last line break; without one it leaves its last space to the word behind it.
  std::size_t last = at, end = at, behind_newline = at;
  for (; symbol.size != 0 && symbol.kind == CharClass::kSpace; symbol = peek(text, end)) {
    last = end;
    end += symbol.size;
    if (is_newline(symbol.value)) behind_newline = end;
  }
  if (behind_newline > at) return behind_newline;
  return symbol.size == 0 || last == at ? end : last;
}

}  // namespace backplane::text

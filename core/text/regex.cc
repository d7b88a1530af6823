#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/text/regex.h"

#include <pcre2.h>

#include "core/base/error.h"

namespace backplane::text {
namespace {

constexpr std::size_t kMaxPattern = 16384;
constexpr std::uint32_t kMatchLimit = 10'000'000;

[[noreturn]] void refuse(std::string_view what, std::string_view pattern, std::string_view where) {
  throw Error(ErrorCode::kBadFile, std::string(what) + " in the regular expression \"" + std::string(pattern) + '"',
              where);
}

// \s and \S of PCRE2 include U+180E and so aren't White_Space; \h is a hexadecimal digit in Oniguruma.
std::string translate(std::string_view pattern, std::string_view where) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      switch (next) {
        case 's':
          out += "\\p{White_Space}";
          break;
        case 'S':
          out += "\\P{White_Space}";
          break;
        case 'h':
        case 'H':
        case 'Q':
        case 'C':
          refuse(std::string("unsupported escape \\") + next, pattern, where);
        default:
          out += {c, next};
      }
      continue;
    }
    if (in_class && c == '&' && i + 1 < pattern.size() && pattern[i + 1] == '&') {
      refuse("unsupported class intersection &&", pattern, where);
    }
    if (c == '[' && !in_class) {
      in_class = true;
    } else if (c == '[' && i + 1 < pattern.size() && pattern[i + 1] != ':') {
      refuse("unsupported nested class", pattern, where);
    } else if (c == ']') {
      in_class = false;
    }
    out += c;
  }
  return out;
}

}  // namespace

struct Regex::Search::State {
  explicit State(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free),
        context(pcre2_match_context_create(nullptr), pcre2_match_context_free) {
    if (!data || !context) throw Error(ErrorCode::kCapacity, "out of memory for a regular expression");
    pcre2_set_match_limit(context.get(), kMatchLimit);
  }
  std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data;
  std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context;
};

Regex::Regex(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {
  if (pattern.size() > kMaxPattern) refuse("more than 16384 bytes", pattern.substr(0, 80), where);
  const std::string translated = translate(pattern, where);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (code == nullptr) {
    char message[256] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
    refuse(message, pattern, where);
  }
  code_ = std::shared_ptr<const void>(
      code, [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it pcre2_match interprets: slower, the same answers
}

void Regex::for_each_match(std::string_view text, const std::function<void(std::size_t, std::size_t)>& found) const {
  Search(*this).for_each_match(text, found);
}

Regex::Search::Search(const Regex& regex)
    : regex_(regex), state_(std::make_unique<State>(static_cast<const pcre2_code*>(regex.code_.get()))) {}

Regex::Search::~Search() = default;

void Regex::Search::for_each_match(std::string_view text, const std::function<void(std::size_t, std::size_t)>& found) {
  const auto* code = static_cast<const pcre2_code*>(regex_.code_.get());
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state_->data.get());
  for (std::size_t at = 0; at < text.size();) {
    const int found_groups = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                         PCRE2_NOTEMPTY, state_->data.get(), state_->context.get());
    if (found_groups == PCRE2_ERROR_NOMATCH) return;
    if (found_groups < 0) {
      char message[256] = "";
      pcre2_get_error_message(found_groups, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
      refuse(message, regex_.pattern_, regex_.where_);
    }
    if (bounds[1] <= at || bounds[0] > bounds[1])
      refuse("a match that moves backwards (\\K)", regex_.pattern_, regex_.where_);
    found(bounds[0], bounds[1]);
    at = bounds[1];
  }
}

}  // namespace backplane::text

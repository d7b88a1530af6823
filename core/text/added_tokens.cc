#include "core/text/added_tokens.h"

#include "core/text/regex.h"
#include "core/text/unicode_class.h"
#include "core/text/utf8.h"

namespace backplane::text {
namespace {

CharClass class_at(std::string_view text, std::size_t at) {
  const CodePoint point = decode_code_point(text, at);
  return point.valid ? char_class_table()[point.value] : CharClass::kOther;
}

// Where the character that ends at `end` > 0 starts.
std::size_t character_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && end - at < 4 && is_continuation_byte(text[at])) --at;
  return decode_code_point(text, at).size == end - at ? at : end - 1;
}

// \w as Unicode's annex on regular expressions defines it.
bool is_word(std::string_view text, std::size_t at) {
  static const Regex word("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]", "word characters");
  bool found = false;
  word.for_each_match(text.substr(at, decode_code_point(text, at).size), [&](auto, auto) { found = true; });
  return found;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<std::string_view> contents;
  contents.reserve(tokens_.size());
  for (const AddedToken& token : tokens_) contents.push_back(token.content);
  trie_ = ByteTrie(contents);
}

void AddedTokenMatcher::split(std::string_view text, const std::function<void(std::string_view)>& on_text,
                              const std::function<void(TokenId)>& on_token) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!trie_.may_start(text[at])) {
      ++at;
      continue;
    }
    const ByteTrie::Match match = trie_.longest_match(text, at);
    if (match.string < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[match.string];
    std::size_t begin = at, end = at + match.size;
    at = end;
    if (token.single_word &&
        ((begin > 0 && is_word(text, character_before(text, begin))) || (end < text.size() && is_word(text, end)))) {
      continue;
    }
    while (token.strip_left && begin > done) {
      const std::size_t before = character_before(text, begin);
      if (before < done || class_at(text, before) != CharClass::kSpace) break;
      begin = before;
    }
    while (token.strip_right && end < text.size() && class_at(text, end) == CharClass::kSpace) {
      end += decode_code_point(text, end).size;
    }
    if (begin > done) on_text(text.substr(done, begin - done));
    on_token(token.id);
    done = at = end;
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace backplane::text

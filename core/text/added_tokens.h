// Tokens that are found in a text as they are, before anything else cuts it: special tokens and user-defined ones.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/byte_trie.h"
#include "core/text/token_id.h"

namespace backplane::text {

struct AddedToken {
  std::string content;
  TokenId id = kNoToken;
  bool special = false;      // found only where the caller asks for special tokens
  bool normalized = false;   // searched in normalized text; otherwise in the text as given
  bool strip_left = false;   // takes the white space before it
  bool strip_right = false;  // and behind it
  bool single_word = false;  // not next to a letter, number or underscore
};

// Immutable after construction.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  bool empty() const { return trie_.empty(); }

  // Cuts `text` at the tokens, the leftmost and there the longest first. Calls on_text for what lies between (never
  // empty) and on_token for each token, in order.
  void split(std::string_view text, const std::function<void(std::string_view)>& on_text,
             const std::function<void(TokenId)>& on_token) const;

 private:
  std::vector<AddedToken> tokens_;
  ByteTrie trie_;
};

}  // namespace backplane::text

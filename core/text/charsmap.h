// SentencePiece's compiled normalization rules: the longest matching source string is replaced by its target.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace backplane::text {

// Immutable after construction.
class Charsmap {
 public:
  // `compiled` is the field precompiled_charsmap: the size of a double-array trie in bytes (u32), the trie, the targets
  // (NUL-terminated). Throws Error{kBadFile}, naming `where`, when it is cut off.
  Charsmap(std::string_view compiled, std::string_view where);

  struct Rule {
    std::size_t size = 0;  // of the source at the given place; 0: no rule
    std::string_view target;
  };
  Rule match(std::string_view text, std::size_t at) const;

 private:
  std::vector<std::uint32_t> units_;
  std::string targets_;
};

}  // namespace backplane::text

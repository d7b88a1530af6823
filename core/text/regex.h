// A compiled regular expression as tokenizer files write them, run by PCRE2's JIT.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace backplane::text {

// Immutable, so free-threaded. The dialect is the part that Oniguruma (which wrote the patterns of tokenizer.json) and
// PCRE2 share; \s and \S mean the Unicode property White_Space, and what would mean something else here is refused.
class Regex {
 public:
  // Throws Error{kBadFile} for a pattern that doesn't compile; `where` names its source in the message.
  Regex(std::string_view pattern, std::string_view where);

  // Calls found(begin, end) for each match in order, empty ones left out. Bytes that aren't UTF-8 match nothing. Throws
  // Error{kBadFile} when the pattern backtracks without end.
  void for_each_match(std::string_view text, const std::function<void(std::size_t, std::size_t)>& found) const;

  // The memory of a search, for many short texts. One thread at a time; the regex must outlive it.
  class Search {
   public:
    explicit Search(const Regex& regex);
    ~Search();
    void for_each_match(std::string_view text, const std::function<void(std::size_t, std::size_t)>& found);

   private:
    struct State;
    const Regex& regex_;
    std::unique_ptr<State> state_;
  };

  const std::string& pattern() const { return pattern_; }

 private:
  std::string pattern_, where_;
  std::shared_ptr<const void> code_;
};

}  // namespace backplane::text

// Stop strings, found wherever the pieces of a streamed text are cut.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace backplane::text {

// The text ends before the stop string that is complete first (of those complete at the same place, the longest).
// Nothing that may turn out to be the beginning of a stop string is given out. How the text is cut into pushes doesn't
// change what comes out. One object per sequence; no threads.
class StopMatcher {
 public:
  // Empty strings are ignored. Throws Error{kUsage} for one that isn't UTF-8: it could end a text inside a character.
  explicit StopMatcher(std::vector<std::string> stops);

  // The part of the text that is now certain. Once stopped(), nothing comes any more. Stop strings that are complete
  // within `text` are no more than text unless `may_stop`; one that only begins there may still be completed later.
  std::string push(std::string_view text, bool may_stop = true);
  // What was held back: the text ended without a stop string. Empty once stopped().
  std::string flush();

  bool stopped() const { return found_.has_value(); }
  // The string that was found; only when stopped().
  const std::string& stop_string() const { return stops_[*found_].text; }

 private:
  struct Stop {
    std::string text;
    std::vector<std::size_t> fallback;  // of the Knuth-Morris-Pratt search
    std::size_t matched = 0;            // how much of it the text so far ends with
  };

  std::vector<Stop> stops_;
  std::string held_;
  std::optional<std::size_t> found_;
};

}  // namespace backplane::text

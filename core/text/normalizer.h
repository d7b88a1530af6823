// What happens to a text before it is cut: Unicode normalization, replacements, SentencePiece's treatment of spaces.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/text/byte_trie.h"
#include "core/text/charsmap.h"
#include "core/text/regex.h"

namespace backplane::text {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

struct UnicodeStep {
  UnicodeForm form;
};
struct PrependStep {  // to a text that isn't empty
  std::string text;
};
struct ReplaceStep {
  std::string from;  // used where there is no regex
  std::shared_ptr<const Regex> regex;
  std::string to;
};
struct StripStep {
  bool left = false, right = false;
};
struct LowercaseStep {};

// SentencePiece's own rules.
struct SentencePieceStep {
  bool dummy_prefix = true;                      // a space before the first word
  bool remove_extra_spaces = true;               // leading, trailing and repeated ones
  bool escape_spaces = true;                     // as U+2581
  bool space_is_suffix = false;                  // the dummy space goes behind the text
  std::shared_ptr<const Charsmap> charsmap;      // may be null
  std::shared_ptr<const ByteTrie> user_defined;  // pieces that stay as they are; may be null
};

using NormalizerStep = std::variant<UnicodeStep, PrependStep, ReplaceStep, StripStep, LowercaseStep, SentencePieceStep>;

// Immutable after construction, so free-threaded.
class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps = {}) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  // `at_start`: the text starts a sequence or follows an added token, which is where SentencePiece puts its space.
  std::string apply(std::string_view text, bool at_start) const;

 private:
  std::vector<NormalizerStep> steps_;
};

// Bytes that aren't UTF-8 stay as they are, and what lies between them is normalized.
std::string normalize_unicode(std::string_view text, UnicodeForm form);

}  // namespace backplane::text

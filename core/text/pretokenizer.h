// Cuts normalized text into the pieces that are encoded one by one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/text/regex.h"
#include "core/text/scanner.h"

namespace backplane::text {

// What happens to the delimiters that a SplitStep finds.
enum class SplitBehavior : std::uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct ScannerStep {
  ScannerKind kind;
};
struct SplitStep {
  std::shared_ptr<const Regex> regex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the delimiters are what the regex doesn't match
};
// Spaces become `mark`, a mark goes before the text, and words are cut off before each mark.
struct MetaspaceStep {
  std::string mark = "\xE2\x96\x81";
  enum class Prepend : std::uint8_t { kNever, kFirst, kAlways } prepend = Prepend::kAlways;
  bool split = true;
};
struct PrefixSpaceStep {};  // a space before a text that starts with none

using PreTokenizerStep = std::variant<ScannerStep, SplitStep, MetaspaceStep, PrefixSpaceStep>;

// Immutable after construction, so free-threaded.
class PreTokenizer {
 public:
  // Steps that change the text come first. Throws Error{kInternal} otherwise.
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps = {});

  // Calls emit(std::string_view) for each piece, none of them empty. `first`: the text is the very start of the input.
  template <class Emit>
  void split(std::string_view text, bool first, Emit&& emit) const {
    if (text.empty()) return;
    std::string changed;
    if (changes_ > 0) {
      changed = change(text, first);
      text = changed;
    }
    if (scanner_) {  // the usual case, without a list of pieces
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = scanner_->next(text, at);
        emit(text.substr(at, end - at));
        at = end;
      }
      return;
    }
    if (steps_.empty()) {
      emit(text);
      return;
    }
    for (const Span& span : cut(text)) emit(text.substr(span.begin, span.end - span.begin));
  }

 private:
  struct Span {
    std::size_t begin, end;
  };
  using Spans = std::vector<Span>;

  std::string change(std::string_view text, bool first) const;
  Spans cut(std::string_view text) const;
  static void scan(const Scanner& scanner, std::string_view text, Span span, Spans& out);
  static void split_all(const SplitStep& step, std::string_view text, const Spans& spans, Spans& out);
  static void split_one(const SplitStep& step, Regex::Search& search, std::string_view text, Span span, Spans& out);
  static void split_marks(const MetaspaceStep& step, std::string_view text, Span span, Spans& out);

  std::vector<PreTokenizerStep> steps_;
  std::size_t changes_ = 0;         // how many of the first steps change the text
  std::optional<Scanner> scanner_;  // the one step that cuts, if it is one
};

}  // namespace backplane::text

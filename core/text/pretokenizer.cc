#include "core/text/pretokenizer.h"

#include <algorithm>

#include "core/base/error.h"

namespace backplane::text {
namespace {

bool changes_text(const PreTokenizerStep& step) {
  return std::holds_alternative<MetaspaceStep>(step) || std::holds_alternative<PrefixSpaceStep>(step);
}

bool cuts_text(const PreTokenizerStep& step) {
  const auto* metaspace = std::get_if<MetaspaceStep>(&step);
  return metaspace != nullptr ? metaspace->split : !std::holds_alternative<PrefixSpaceStep>(step);
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {
  while (changes_ < steps_.size() && changes_text(steps_[changes_])) ++changes_;
  if (std::any_of(steps_.begin() + static_cast<std::ptrdiff_t>(changes_), steps_.end(), changes_text)) {
    throw Error(ErrorCode::kInternal, "a pre-tokenizer step changes the text behind one that cuts it");
  }
  const auto cutting = std::count_if(steps_.begin(), steps_.end(), cuts_text);
  if (cutting == 1 && std::holds_alternative<ScannerStep>(steps_.back())) {
    scanner_.emplace(std::get<ScannerStep>(steps_.back()).kind);
  }
}

std::string PreTokenizer::change(std::string_view text, bool first) const {
  std::string out(text);
  for (std::size_t i = 0; i < changes_; ++i) {
    const auto* metaspace = std::get_if<MetaspaceStep>(&steps_[i]);
    if (metaspace == nullptr) {
      if (!out.starts_with(' ')) out.insert(0, 1, ' ');
      continue;
    }
    std::string marked;
    for (const char c : out) c == ' ' ? marked.append(metaspace->mark) : marked.append(1, c);
    const bool prepend = metaspace->prepend == MetaspaceStep::Prepend::kAlways ||
                         (metaspace->prepend == MetaspaceStep::Prepend::kFirst && first);
    out = prepend && !marked.starts_with(metaspace->mark) ? metaspace->mark + marked : marked;
  }
  return out;
}

PreTokenizer::Spans PreTokenizer::cut(std::string_view text) const {
  Spans spans{{0, text.size()}}, finer;
  for (const PreTokenizerStep& step : steps_) {
    if (!cuts_text(step)) continue;
    finer.clear();
    if (const auto* split = std::get_if<SplitStep>(&step)) {
      split_all(*split, text, spans, finer);
    } else if (const auto* metaspace = std::get_if<MetaspaceStep>(&step)) {
      for (const Span span : spans) split_marks(*metaspace, text, span, finer);
    } else {
      const Scanner scanner(std::get<ScannerStep>(step).kind);
      for (const Span span : spans) scan(scanner, text, span, finer);
    }
    spans.swap(finer);
  }
  return spans;
}

void PreTokenizer::scan(const Scanner& scanner, std::string_view text, Span span, Spans& out) {
  const std::string_view part = text.substr(0, span.end);
  for (std::size_t at = span.begin; at < span.end;) {
    const std::size_t end = scanner.next(part, at);
    out.push_back({at, end});
    at = end;
  }
}

void PreTokenizer::split_marks(const MetaspaceStep& step, std::string_view text, Span span, Spans& out) {
  const std::string_view part = text.substr(0, span.end);
  for (std::size_t at = span.begin; at < span.end;) {
    const std::size_t end = std::min(part.find(step.mark, at + 1), span.end);
    out.push_back({at, end});
    at = end;
  }
}

void PreTokenizer::split_all(const SplitStep& step, std::string_view text, const Spans& spans, Spans& out) {
  Regex::Search search(*step.regex);
  for (const Span span : spans) split_one(step, search, text, span, out);
}

void PreTokenizer::split_one(const SplitStep& step, Regex::Search& search, std::string_view text, Span span,
                             Spans& out) {
  struct Part {
    Span span;
    bool delimiter;
  };
  std::vector<Part> parts;
  std::size_t done = span.begin;
  const auto add = [&](std::size_t begin, std::size_t end, bool match) {
    if (begin < end) parts.push_back({{begin, end}, match != step.invert});
  };
  search.for_each_match(text.substr(span.begin, span.end - span.begin), [&](std::size_t begin, std::size_t end) {
    add(done, span.begin + begin, false);
    add(span.begin + begin, span.begin + end, true);
    done = span.begin + end;
  });
  add(done, span.end, false);

  const std::size_t first = out.size();
  bool previous_delimiter = false, join = false;
  for (const Part& part : parts) {
    const bool fresh = out.size() == first;
    switch (step.behavior) {
      case SplitBehavior::kRemoved:
        if (part.delimiter) continue;
        join = false;
        break;
      case SplitBehavior::kIsolated:
        join = false;
        break;
      case SplitBehavior::kMergedWithPrevious:
        join = part.delimiter && !previous_delimiter;
        break;
      case SplitBehavior::kMergedWithNext:
        join = !part.delimiter && previous_delimiter;
        break;
      case SplitBehavior::kContiguous:
        join = part.delimiter == previous_delimiter;
        break;
    }
    if (join && !fresh) {
      out.back().end = part.span.end;
    } else {
      out.push_back(part.span);
    }
    previous_delimiter = part.delimiter;
  }
}

}  // namespace backplane::text

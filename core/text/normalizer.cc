#include "core/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/text/unicode_class.h"
#include "core/text/utf8.h"

namespace backplane::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// Appends the decomposition of `valid` UTF-8 with combining marks in canonical order. utf8proc's own ordering takes
// quadratic time on long runs of marks, so only its tables serve here.
std::vector<utf8proc_int32_t> decompose(std::string_view valid, bool compatible) {
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points;
  points.reserve(valid.size());
  for (std::size_t at = 0; at < valid.size();) {
    const CodePoint point = decode_code_point(valid, at);
    at += point.size;
    if (point.value < 0xC0) {
      if (!compatible || point.value < 0x80) {
        points.push_back(static_cast<utf8proc_int32_t>(point.value));
        continue;
      }
    }
    utf8proc_int32_t parts[32];
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point.value), parts, 32, options, nullptr);
    if (count < 0 || count > 32) throw Error(ErrorCode::kInternal, "Unicode decomposition", utf8proc_errmsg(count));
    points.insert(points.end(), parts, parts + count);
  }
  const auto mark_class = [](utf8proc_int32_t point) {
    return point < 0x300 ? 0 : utf8proc_get_property(point)->combining_class;
  };
  for (auto begin = points.begin(); begin != points.end();) {
    const auto end = std::find_if(begin, points.end(), [&](auto point) { return mark_class(point) == 0; });
    std::stable_sort(begin, end, [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
    begin = end == points.end() ? end : end + 1;
  }
  return points;
}

// `valid` is UTF-8.
void append_normalized(std::string& out, std::string_view valid, UnicodeForm form) {
  std::vector<utf8proc_int32_t> points = decompose(valid, form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd);
  if (form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc) {
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (count < 0) throw Error(ErrorCode::kInternal, "Unicode composition", utf8proc_errmsg(count));
    points.resize(static_cast<std::size_t>(count));
  }
  for (const utf8proc_int32_t point : points) append_code_point(out, static_cast<char32_t>(point));
}

// The first code point that NFC can change or compose is U+0300; its UTF-8 and that of all above starts with CC or
// more.
bool is_surely_nfc(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

std::string replace(std::string_view text, const ReplaceStep& step) {
  std::string out;
  std::size_t done = 0;
  if (step.regex) {
    step.regex->for_each_match(text, [&](std::size_t begin, std::size_t end) {
      out.append(text, done, begin - done).append(step.to);
      done = end;
    });
  } else if (!step.from.empty()) {
    for (std::size_t at = text.find(step.from); at != std::string_view::npos; at = text.find(step.from, done)) {
      out.append(text, done, at - done).append(step.to);
      done = at + step.from.size();
    }
  }
  return out.append(text, done);
}

std::string strip(std::string_view text, const StripStep& step) {
  const CharClass* classes = char_class_table();
  std::size_t begin = 0, end = 0;
  bool seen = !step.left;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_code_point(text, at);
    const bool space = point.valid && classes[point.value] == CharClass::kSpace;
    if (space && !seen) begin = at + point.size;
    seen = seen || !space;
    at += point.size;
    if (!space || !step.right) end = at;
  }
  return std::string(text.substr(begin, std::max(begin, end) - begin));
}

std::string lowercase(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_code_point(text, at);
    if (point.valid && point.value == 0x130) {
      out.append("i\xCC\x87");  // the one letter whose lowercase is two code points
    } else if (point.valid) {
      append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point.value))));
    } else {
      out.append(text, at, point.size);
    }
    at += point.size;
  }
  return out;
}

// Applies the rules of SentencePiece's normalizer piece by piece, with spaces as ' ' until the end.
std::string sentence_piece(std::string_view text, const SentencePieceStep& step, bool at_start) {
  std::string out;
  const std::string_view space = step.escape_spaces ? kSpaceMark : std::string_view(" ");
  const bool dummy = step.dummy_prefix && at_start;
  bool after_space = step.remove_extra_spaces;  // leading spaces are extra
  bool started = !step.remove_extra_spaces && !text.empty();
  if (started && dummy && !step.space_is_suffix) out += space;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t user = step.user_defined ? step.user_defined->longest_match(text, at).size : 0;
    const Charsmap::Rule rule = user == 0 && step.charsmap ? step.charsmap->match(text, at) : Charsmap::Rule{};
    const std::size_t size = user != 0 ? user : rule.size != 0 ? rule.size : decode_code_point(text, at).size;
    std::string_view target = rule.size != 0 ? rule.target : text.substr(at, size);
    at += size;
    while (after_space && step.remove_extra_spaces && target.starts_with(' ')) target.remove_prefix(1);
    if (target.empty()) continue;
    if (!started && dummy && !step.space_is_suffix) out += space;
    started = true;
    for (const char c : target) c == ' ' ? out.append(space) : out.append(1, c);
    after_space = target.ends_with(' ');
  }
  while (step.remove_extra_spaces && started && out.ends_with(space)) out.erase(out.size() - space.size());
  if (started && dummy && step.space_is_suffix) out += space;
  return out;
}

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

}  // namespace

std::string normalize_unicode(std::string_view text, UnicodeForm form) {
  if (form == UnicodeForm::kNfc && is_surely_nfc(text)) return std::string(text);
  std::string out;
  std::size_t run = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_code_point(text, at);
    if (!point.valid) {
      append_normalized(out, text.substr(run, at - run), form);
      out.append(text, at, point.size);
      run = at + point.size;
    }
    at += point.size;
  }
  append_normalized(out, text.substr(run), form);
  return out;
}

std::string Normalizer::apply(std::string_view text, bool at_start) const {
  std::string current(text);
  for (const NormalizerStep& step : steps_) {
    current = std::visit(
        Overloaded{
            [&](const UnicodeStep& s) { return normalize_unicode(current, s.form); },
            [&](const PrependStep& s) { return current.empty() ? current : std::string(s.text).append(current); },
            [&](const ReplaceStep& s) { return replace(current, s); },
            [&](const StripStep& s) { return strip(current, s); },
            [&](const LowercaseStep&) { return lowercase(current); },
            [&](const SentencePieceStep& s) { return sentence_piece(current, s, at_start); },
        },
        step);
  }
  return current;
}

}  // namespace backplane::text

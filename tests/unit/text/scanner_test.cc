// The hand-written scanners cut exactly where the regular expressions do.
#include "core/text/scanner.h"

#include <gtest/gtest.h>

#include <random>

#include "core/text/pretokenizer.h"
#include "core/text/utf8.h"
#include "tests/unit/text/test_data.h"

namespace backplane::text {
namespace {

constexpr ScannerKind kKinds[] = {ScannerKind::kGpt2, ScannerKind::kSmolLm, ScannerKind::kLlama3, ScannerKind::kQwen2};

std::vector<std::string_view> scan(ScannerKind kind, std::string_view text) {
  const Scanner scanner(kind);
  std::vector<std::string_view> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = scanner.next(text, at);
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

std::vector<std::string_view> match(const Regex& regex, std::string_view text) {
  std::vector<std::string_view> pieces;
  regex.for_each_match(text,
                       [&](std::size_t begin, std::size_t end) { pieces.push_back(text.substr(begin, end - begin)); });
  return pieces;
}

TEST(ScannerTest, CutsAsTheirModelsDo) {
  using Pieces = std::vector<std::string_view>;
  EXPECT_EQ(scan(ScannerKind::kGpt2, "it's 123  ok\n\n x"), (Pieces{"it", "'s", " 123", " ", " ok", "\n\n", " x"}));
  EXPECT_EQ(scan(ScannerKind::kSmolLm, "a12  3 b"), (Pieces{"a", "1", "2", "  ", "3", " b"}));
  EXPECT_EQ(scan(ScannerKind::kLlama3, "I'LL 12345!\n\n  x"),
            (Pieces{"I", "'LL", " ", "123", "45", "!\n\n", " ", " x"}));
  EXPECT_EQ(scan(ScannerKind::kQwen2, "(word 12\t\n x"), (Pieces{"(word", " ", "1", "2", "\t\n", " x"}));
}

TEST(ScannerTest, KnowsThePatternsOfFiles) {
  EXPECT_EQ(scanner_for_pattern(scanner_pattern(ScannerKind::kLlama3)), ScannerKind::kLlama3);
  EXPECT_EQ(scanner_for_pattern(scanner_pattern(ScannerKind::kQwen2)), ScannerKind::kQwen2);
  EXPECT_EQ(scanner_for_pattern("\\p{N}"), std::nullopt);
}

TEST(ScannerTest, EndsOnAnyBytes) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 20, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 4 == 0 ? " '\n1"[random() % 4] : random());
    for (const ScannerKind kind : kKinds) {
      std::string joined;
      for (const std::string_view piece : scan(kind, bytes)) joined += piece;
      EXPECT_EQ(joined, bytes);
    }
  }
}

// Text from characters that the patterns treat differently, and from all of Unicode.
std::string random_text(std::mt19937& random, const std::vector<char32_t>& assigned) {
  static constexpr std::string_view kParts[] = {
      "'s",       "'S",           "'t",       "'re",          "'VE",
      "'m",       "'Ll",          "'d",       "'\xC5\xBF",    "'",
      " ",        "  ",           "\n",       "\r\n",         "\t",
      "\xC2\xA0", "\xE3\x80\x80", "\xC2\x85", "\xE1\xA0\x8E", "\xE2\x80\x8B",
      "1",        "23",           "\xC2\xBD", "\xD9\xA3",     "a",
      "Zz",       "\xC3\xA9",     "\xCC\x81", "\xE6\xBC\xA2", "\xF0\x9F\x98\x80",
      "!",        "...",          "_",        "\x1C"};
  std::string text;
  for (unsigned n = random() % 16; n > 0; --n) {
    if (random() % 3 != 0) {
      text += kParts[random() % std::size(kParts)];
    } else {
      append_code_point(text, assigned[random() % assigned.size()]);
    }
  }
  return text;
}

// The code points that this PCRE2 knows: a newer Unicode has letters that an older library takes for something else.
std::vector<char32_t> known_code_points() {
  const Regex known("\\P{Cn}", "test");
  std::vector<char32_t> points;
  for (char32_t value = 1; value < kCodePointLimit; ++value) {
    if (value >= 0xD800 && value < 0xE000) continue;
    std::string text;
    append_code_point(text, value);
    if (value < 0x3000 || value % 7 == 0) {
      known.for_each_match(text, [&](auto, auto) { points.push_back(value); });
    }
  }
  return points;
}

TEST(ScannerTest, ClassesEqualPcre2s) {
  const Regex letter("\\p{L}", "test"), number("\\p{N}", "test"), space("\\s", "test");
  const auto matches = [](const Regex& regex, std::string_view text) { return !match(regex, text).empty(); };
  for (const char32_t value : known_code_points()) {
    std::string text;
    append_code_point(text, value);
    const CharClass kind = char_class_table()[value];
    EXPECT_EQ(kind == CharClass::kLetter, matches(letter, text)) << std::hex << static_cast<unsigned>(value);
    EXPECT_EQ(kind == CharClass::kNumber, matches(number, text)) << std::hex << static_cast<unsigned>(value);
    EXPECT_EQ(kind == CharClass::kSpace, matches(space, text)) << std::hex << static_cast<unsigned>(value);
  }
}

TEST(ScannerTest, EqualsItsPatternOnRandomText) {
  std::mt19937 random(7);
  const std::vector<char32_t> assigned = known_code_points();
  ASSERT_GT(assigned.size(), 10000u);
  for (const ScannerKind kind : kKinds) {
    const Regex regex(scanner_pattern(kind), "test");
    for (int round = 0; round < 10000; ++round) {
      const std::string text = random_text(random, assigned);
      ASSERT_EQ(scan(kind, text), match(regex, text)) << scanner_pattern(kind) << '\n' << text;
    }
  }
}

// SmolLM's files say it in two steps: single digits, then GPT-2's pattern.
TEST(ScannerTest, SmolLmEqualsDigitsThenGpt2) {
  const PreTokenizer two_steps(
      {SplitStep{std::make_shared<const Regex>("\\p{N}", "test")}, ScannerStep{ScannerKind::kGpt2}});
  std::mt19937 random(8);
  const std::vector<char32_t> assigned = known_code_points();
  for (int round = 0; round < 10000; ++round) {
    const std::string text = random_text(random, assigned);
    std::vector<std::string_view> pieces;
    two_steps.split(text, true, [&](std::string_view piece) { pieces.push_back(piece); });
    ASSERT_EQ(scan(ScannerKind::kSmolLm, text), pieces) << text;
  }
}

TEST(ScannerTest, EqualsItsPatternOnSharedTexts) {
  const auto folder = shared_data() / "text";
  SKIP_WITHOUT(folder);
  for (const char* name : {"alice29.txt", "botchan.txt", "tinyshakespeare.txt", "wagahai-50k.txt", "blns.json"}) {
    const std::string text = to_valid_utf8(read_text(folder / name));
    ASSERT_FALSE(text.empty()) << name;
    for (const ScannerKind kind : kKinds) {
      EXPECT_TRUE(scan(kind, text) == match(Regex(scanner_pattern(kind), "test"), text)) << name;
    }
  }
}

TEST(PreTokenizerTest, SplitBehaviors) {
  const auto pieces = [](SplitBehavior behavior, bool invert) {
    const PreTokenizer splitter({SplitStep{std::make_shared<const Regex>("-", "test"), behavior, invert}});
    std::vector<std::string> out;
    splitter.split("the-final--countdown", true, [&](std::string_view piece) { out.emplace_back(piece); });
    return out;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces(SplitBehavior::kRemoved, false), (Pieces{"the", "final", "countdown"}));
  EXPECT_EQ(pieces(SplitBehavior::kIsolated, false), (Pieces{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(pieces(SplitBehavior::kMergedWithPrevious, false), (Pieces{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(pieces(SplitBehavior::kMergedWithNext, false), (Pieces{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(pieces(SplitBehavior::kContiguous, false), (Pieces{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(pieces(SplitBehavior::kRemoved, true), (Pieces{"-", "-", "-"}));
}

}  // namespace
}  // namespace backplane::text

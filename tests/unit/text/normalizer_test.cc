#include "core/text/normalizer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/text/utf8.h"
#include "tests/support/expect_error.h"
#include "tests/unit/text/test_data.h"

namespace backplane::text {
namespace {

TEST(NormalizerTest, Nfc) {
  const auto nfc = [](std::string_view text) { return normalize_unicode(text, UnicodeForm::kNfc); };
  EXPECT_EQ(nfc("plain"), "plain");
  EXPECT_EQ(nfc("e\xCC\x81"), "\xC3\xA9");                                 // e + acute
  EXPECT_EQ(nfc("\xE2\x84\xAB"), "\xC3\x85");                              // the angstrom sign
  EXPECT_EQ(nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C");  // Hangul
  EXPECT_EQ(nfc("\xEF\xAC\x81"), "\xEF\xAC\x81");  // the ligature fi is a compatibility form only
  EXPECT_EQ(normalize_unicode("\xEF\xAC\x81", UnicodeForm::kNfkc), "fi");
  EXPECT_EQ(normalize_unicode("\xC3\xA9", UnicodeForm::kNfd), "e\xCC\x81");
  EXPECT_EQ(nfc("a\xFF"
                "e\xCC\x81\xC3"),
            "a\xFF\xC3\xA9\xC3");  // what isn't UTF-8 stays
}

TEST(NormalizerTest, NfcCasesOfUnicode) {
  const auto path = shared_data() / "text/unicode/nfc_cases.tsv";
  SKIP_WITHOUT(path);
  const auto text_of = [](const std::string& numbers) {
    std::istringstream in(numbers);
    std::string text;
    for (unsigned value = 0; in >> std::hex >> value;) append_code_point(text, value);
    return text;
  };
  std::istringstream lines(read_text(path));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const std::size_t tab = line.find('\t');
    ASSERT_NE(tab, std::string::npos);
    EXPECT_EQ(normalize_unicode(text_of(line.substr(0, tab)), UnicodeForm::kNfc), text_of(line.substr(tab + 1)))
        << line;
  }
  EXPECT_GT(count, 3000);
}

// In quadratic time it would not end.
TEST(NormalizerTest, ManyMarksTakeLinearTime) {
  std::string marks = "a";
  for (int i = 0; i < 2000000; ++i)
    marks += i % 2 == 0 ? "\xCC\xA7" : "\xCC\x95";  // out of canonical order, all of them
  EXPECT_EQ(normalize_unicode(marks, UnicodeForm::kNfc).size(), marks.size());
}

TEST(NormalizerTest, Steps) {
  const auto apply = [](NormalizerStep step, std::string_view text) { return Normalizer({step}).apply(text, true); };
  EXPECT_EQ(apply(PrependStep{"_"}, "a"), "_a");
  EXPECT_EQ(apply(PrependStep{"_"}, ""), "");
  EXPECT_EQ(apply(ReplaceStep{" ", nullptr, "__"}, " a b"), "__a__b");
  EXPECT_EQ(apply(ReplaceStep{"", std::make_shared<const Regex>("[ab]+", "test"), "-"}, "xabay"), "x-y");
  EXPECT_EQ(apply(StripStep{true, true}, " \t a b\xE3\x80\x80"), "a b");
  EXPECT_EQ(apply(StripStep{false, true}, "  "), "");
  EXPECT_EQ(apply(LowercaseStep{}, "\xC3\x89I\xC4\xB0"), "\xC3\xA9ii\xCC\x87");
}

TEST(NormalizerTest, SentencePieceSpaces) {
  const auto apply = [](bool dummy, bool extra, std::string_view text, bool at_start = true) {
    SentencePieceStep step{
        .dummy_prefix = dummy, .remove_extra_spaces = extra, .charsmap = nullptr, .user_defined = nullptr};
    return Normalizer({step}).apply(text, at_start);
  };
  const std::string mark = "\xE2\x96\x81";
  EXPECT_EQ(apply(true, true, "  a   b "), mark + "a" + mark + "b");
  EXPECT_EQ(apply(true, false, " a "), mark + mark + "a" + mark);
  EXPECT_EQ(apply(true, false, "a", false), "a");
  EXPECT_EQ(apply(false, false, "a b"), "a" + mark + "b");
  EXPECT_EQ(apply(true, true, "   "), "");
  EXPECT_EQ(apply(true, false, ""), "");
}

TEST(CharsmapTest, RefusesBrokenRules) {
  EXPECT_ERROR(Charsmap("abc", "file"), ErrorCode::kBadFile, "cut off");
  EXPECT_ERROR(Charsmap(std::string("\xFF\xFF\0\0abcd", 8), "file"), ErrorCode::kBadFile, "wrong size");
  EXPECT_ERROR(Charsmap(std::string("\0\0\0\0abcd", 8), "file"), ErrorCode::kBadFile, "wrong size");
  // Units that point anywhere: whatever they say, nothing outside of them is read.
  std::string wild("\x10\0\0\0", 4);
  for (unsigned i = 0; i < 4; ++i) wild += std::string("\xFF\xFF\xFF\x7F", 4);
  EXPECT_EQ(Charsmap(wild, "file").match("abc", 0).size, 0u);
}

TEST(RegexTest, RefusesWhatMeansSomethingElse) {
  EXPECT_ERROR(Regex("(a", "file"), ErrorCode::kBadFile, "(a");
  EXPECT_ERROR(Regex("[\\p{L}&&[^a]]", "file"), ErrorCode::kBadFile, "&&");
  EXPECT_ERROR(Regex("\\h", "file"), ErrorCode::kBadFile, "\\h");
  EXPECT_ERROR(Regex(std::string(20000, 'a'), "file"), ErrorCode::kBadFile, "16384");
}

TEST(RegexTest, GivesUpOnEndlessBacktracking) {
  const Regex regex("(?:a+)+$", "file");
  EXPECT_ERROR(regex.for_each_match(std::string(64, 'a') + "b", [](auto, auto) {}), ErrorCode::kBadFile, "file");
}

}  // namespace
}  // namespace backplane::text

#include "core/text/utf8.h"

#include <gtest/gtest.h>

#include "tests/unit/text/test_data.h"

namespace backplane::text {
namespace {

TEST(Utf8Test, ReplacesMaximalSubparts) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(to_valid_utf8("na\xC3\xAFve \xF0\x9F\x98\x80"), "na\xC3\xAFve \xF0\x9F\x98\x80");
  EXPECT_EQ(to_valid_utf8("a\x80z"), "a" + bad + "z");
  EXPECT_EQ(to_valid_utf8("\xE2\x82"), bad);  // cut off: one subpart
  EXPECT_EQ(to_valid_utf8("\xF0\x9F\x98z"), bad + "z");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), bad + bad + bad);            // a surrogate
  EXPECT_EQ(to_valid_utf8("\xC0\xAF"), bad + bad);                      // overlong
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80"), bad + bad + bad + bad);  // above U+10FFFF
}

TEST(Utf8Test, FindsIncompleteTails) {
  EXPECT_EQ(incomplete_tail(""), 0u);
  EXPECT_EQ(incomplete_tail("abc"), 0u);
  EXPECT_EQ(incomplete_tail("a\xC3"), 1u);
  EXPECT_EQ(incomplete_tail("a\xE2\x82"), 2u);
  EXPECT_EQ(incomplete_tail("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_tail("a\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(incomplete_tail("a\xED\xA0"), 0u);  // can't become a character
  EXPECT_EQ(incomplete_tail("\x80\x80\x80"), 0u);
}

TEST(Utf8Test, AppendsWhatItDecodes) {
  for (const char32_t value : {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFDu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    append_code_point(text, value);
    const CodePoint point = decode_code_point(text, 0);
    EXPECT_TRUE(point.valid);
    EXPECT_EQ(point.value, value);
    EXPECT_EQ(point.size, text.size());
  }
}

TEST(Utf8DataTest, ReplacesMaximalSubparts) {
  const auto path = shared_data() / "text/utf8/invalid_utf8.jsonl";
  SKIP_WITHOUT(path);
  const auto rows = read_json_lines(path);
  ASSERT_GT(rows.size(), 100u);
  for (const nlohmann::json& row : rows) {
    std::string bytes;
    const auto hex = row["hex"].get<std::string>();
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
      bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    EXPECT_EQ(to_valid_utf8(bytes), row["replaced"].get<std::string>()) << hex;
    EXPECT_EQ(to_valid_utf8(bytes) == bytes, row["valid"].get<bool>()) << hex;
  }
}

}  // namespace
}  // namespace backplane::text

// Detokenizer and stop strings, however the text is cut.
#include <gtest/gtest.h>

#include <random>

#include "core/text/detokenizer.h"
#include "core/text/stop_matcher.h"
#include "core/text/utf8.h"
#include "tests/support/expect_error.h"

namespace backplane::text {
namespace {

// Ids 0 to 255 are the bytes, 256 is "<end>", 257 is " hi".
std::shared_ptr<const Tokenizer> byte_tokenizer(LeadingSpace leading_space = LeadingSpace::kKeep) {
  std::vector<std::string> names;
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    names.emplace_back(name);
  }
  names.emplace_back("<end>");
  names.emplace_back("\xE2\x96\x81hi");
  TokenizerSpec spec;
  spec.where = "test";
  spec.pieces.assign(names.begin(), names.end());
  spec.kinds.assign(names.size(), PieceKind::kByte);
  spec.kinds[256] = PieceKind::kControl;
  spec.kinds[257] = PieceKind::kNormal;
  spec.alphabet = PieceAlphabet::kMetaspace;
  spec.model = TokenizerSpec::Model::kScores;
  spec.scores.assign(names.size(), 0.0F);
  spec.leading_space = leading_space;
  return std::make_shared<const Tokenizer>(std::move(spec));
}

TEST(DetokenizerTest, HoldsIncompleteCharactersBack) {
  Detokenizer out(byte_tokenizer());
  EXPECT_EQ(out.push('a'), "a");
  EXPECT_EQ(out.push(0xF0), "");
  EXPECT_EQ(out.push(0x9F), "");
  EXPECT_EQ(out.push(0x98), "");
  EXPECT_EQ(out.push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(out.push(0xE2), "");
  EXPECT_EQ(out.push('b'),
            "\xEF\xBF\xBD"
            "b");                // it can't be completed any more
  EXPECT_EQ(out.push(256), "");  // special tokens aren't shown
  EXPECT_EQ(out.push(0xC3), "");
  EXPECT_EQ(out.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(out.flush(), "");
  EXPECT_ERROR(out.push(258), ErrorCode::kUsage, "258");
  EXPECT_ERROR(out.push(-1), ErrorCode::kUsage, "-1");
}

TEST(DetokenizerTest, JoinsToTheRepairedText) {
  std::mt19937 random(5);
  const auto tokenizer = byte_tokenizer();
  for (int round = 0; round < 3000; ++round) {
    std::string bytes, joined;
    Detokenizer out(tokenizer);
    for (unsigned n = random() % 12; n > 0; --n) {
      static constexpr unsigned char kBytes[] = {'a', 0x80, 0x9F, 0xA0, 0xBF, 0xC3, 0xE0, 0xE2, 0xED, 0xF0, 0xF4, 0xFF};
      const unsigned char byte = kBytes[random() % std::size(kBytes)];
      bytes.push_back(static_cast<char>(byte));
      const std::string part = out.push(byte);
      EXPECT_EQ(to_valid_utf8(part), part);
      joined += part;
    }
    EXPECT_EQ(joined + out.flush(), to_valid_utf8(bytes));
  }
}

TEST(DetokenizerTest, LeadingSpace) {
  const std::vector<TokenId> ids{257, 257};
  const auto one = byte_tokenizer(LeadingSpace::kDropOne);
  EXPECT_EQ(one->decode(ids), "hi hi");
  Detokenizer start(one), middle(one, {.at_start = false});
  EXPECT_EQ(start.push(257), "hi");
  EXPECT_EQ(start.push(257), " hi");
  EXPECT_EQ(middle.push(257), " hi");
  EXPECT_EQ(one->decode(std::vector<TokenId>{256, 257}), "<end> hi");
  EXPECT_EQ(one->decode(std::vector<TokenId>{256, 257}, {.skip_special = true}), "hi");
  const std::vector<TokenId> spaces{' ', ' ', 'a', ' '};
  EXPECT_EQ(one->decode(spaces), " a ");
  EXPECT_EQ(byte_tokenizer(LeadingSpace::kDropEach)->decode(spaces), "a ");
  EXPECT_EQ(byte_tokenizer()->decode(spaces), "  a ");
}

struct Stopped {
  std::string text, stop;
};

// The first `free` parts may not stop it.
Stopped feed(const std::vector<std::string>& stops, const std::vector<std::string>& parts, std::size_t free = 0) {
  StopMatcher matcher(stops);
  Stopped out;
  for (std::size_t i = 0; i < parts.size(); ++i) out.text += matcher.push(parts[i], i >= free);
  out.text += matcher.flush();
  if (matcher.stopped()) out.stop = matcher.stop_string();
  return out;
}

TEST(StopMatcherTest, HoldsBackWhatMayBeAStop) {
  StopMatcher matcher({"\n\nUser:", "END"});
  EXPECT_EQ(matcher.push("Hello E"), "Hello ");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("x\n"), "ENx");
  EXPECT_EQ(matcher.push("\n"), "");
  EXPECT_EQ(matcher.push("\nUs"), "\n");  // the newest two line breaks may still be it
  EXPECT_EQ(matcher.push("er: next"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.stop_string(), "\n\nUser:");
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcherTest, FlushGivesBackWhatWasNoStop) {
  StopMatcher matcher({"abcd"});
  EXPECT_EQ(matcher.push("xabc"), "x");
  EXPECT_EQ(matcher.flush(), "abc");
  EXPECT_EQ(matcher.push("d"), "d");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcherTest, FirstCompleteThenLongest) {
  EXPECT_EQ(feed({"bc", "abcd"}, {"xabcd"}).text, "xa");
  EXPECT_EQ(feed({"c", "abc"}, {"xabc"}).text, "x");
  EXPECT_EQ(feed({"aab"}, {"a", "a", "a", "b"}).text, "a");
  EXPECT_EQ(feed({}, {"text"}).text, "text");
  EXPECT_EQ(feed({""}, {"text"}).text, "text");
}

TEST(StopMatcherTest, WholeCharactersOnly) {
  EXPECT_ERROR(StopMatcher({"ok", "\x9F\x98"}), ErrorCode::kUsage, "UTF-8");
  EXPECT_ERROR(StopMatcher({"\xF0\x9F"}), ErrorCode::kUsage, "UTF-8");
  EXPECT_EQ(feed({"\u00E9"}, {"caf\u00E9 au lait"}).text, "caf");
}

TEST(StopMatcherTest, MayBeToldNotToStop) {
  StopMatcher matcher({"END", "\n\n"});
  EXPECT_EQ(matcher.push("an END here", false), "an END here");
  EXPECT_EQ(matcher.push("\n\n", false), "\n");  // the second line break may begin another stop
  EXPECT_EQ(matcher.push(" EN", false), "\n ");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.push("D of it"), "");  // begun when it wasn't allowed to stop, completed when it was
  EXPECT_EQ(matcher.stop_string(), "END");
}

TEST(StopMatcherTest, CutsMakeNoDifference) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    const auto letters = [&](unsigned most) {
      std::string text;
      for (unsigned n = random() % most; n > 0; --n) text.push_back("ab"[random() % 2]);
      return text;
    };
    const std::vector<std::string> stops{letters(6), letters(4)};
    const std::string text = letters(24);
    std::vector<std::string> parts;
    const std::size_t free = round % 2 == 0 ? 0 : random() % 5;
    std::size_t begin = 0;  // of the first part that may stop it
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random() % 4;
      parts.push_back(text.substr(at, size));
      at += size;
      if (parts.size() <= free) begin = std::min(at, text.size());
    }
    // The definition: the shortest prefix, longer than where it may not stop, that ends with a stop string.
    std::string want = text;
    for (std::size_t end = begin + 1; end <= text.size() && want == text; ++end) {
      std::size_t longest = 0;
      for (const std::string& stop : stops) {
        if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
      }
      if (longest > 0) want = text.substr(0, end - longest);
      if (longest > 0) break;
    }
    ASSERT_EQ(feed(stops, parts, free).text, want) << text << " / " << stops[0] << " / " << stops[1];
  }
}

}  // namespace
}  // namespace backplane::text

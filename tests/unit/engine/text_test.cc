// Streamed text, with a vocabulary made for the purpose.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/engine/speaker.h"

namespace backplane::engine {
namespace {

TEST(Text, StreamsPieces) {
  Speaker speaker(letters("hello"));
  const Generation g = speaker.speak({});
  EXPECT_EQ(g.text, "hello");
  EXPECT_EQ(speaker.pieces, (std::vector<std::string>{"h", "e", "l", "l", "o"}));
}

TEST(Text, EndTokensAreNoText) {
  Speaker speaker({7, 8, kEnd, 9});
  const Generation g = speaker.speak({.stop_ids = {kEnd}});
  EXPECT_EQ(g.text, "hi");
  EXPECT_EQ(g.ids, (std::vector<TokenId>{7, 8, kEnd}));
  EXPECT_EQ(speaker.speak({.stop_ids = {8}}).text, "h");  // a letter too, when it is a stop id
}

// https://github.com/ggml-org/llama.cpp/pull/4446: a character that several tokens spell was cut.
TEST(Text, NeverHalfACharacter) {
  const std::vector<TokenId> says{0, 26, 27, 28, 29, 1};
  for (std::uint32_t n = 1; n <= 6; ++n) {
    Speaker speaker(says);
    const Generation g = speaker.speak({.max_tokens = n});
    const std::string end = n == 1 ? "" : n < 5 ? "\uFFFD" : "\U0001F60A";
    EXPECT_EQ(g.text, "a" + end + (n == 6 ? "b" : ""));
    for (const std::string& piece : speaker.pieces) EXPECT_TRUE(piece.empty() || (piece[0] & 0xC0) != 0x80);
  }
}

TEST(Text, AnIdWithoutATokenHasNoText) {
  Speaker speaker({0, 34, 1});
  EXPECT_EQ(speaker.speak({}).text, "ab");
}

}  // namespace
}  // namespace backplane::engine

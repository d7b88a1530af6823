// Stop strings and streamed text, with a vocabulary made for the purpose.
#include <gtest/gtest.h>

#include <string>

#include "core/engine/generation.h"
#include "tests/unit/engine/engine_fixture.h"

namespace backplane::engine {
namespace {

// Ids 0 to 25 are letters, the next four the bytes of an emoji, then some longer pieces; the model has two ids more.
std::shared_ptr<const text::Tokenizer> make_tokenizer() {
  static const std::vector<std::string> pieces = [] {
    std::vector<std::string> out;
    for (char c = 'a'; c <= 'z'; ++c) out.emplace_back(1, c);
    for (const char* byte : {"<0xF0>", "<0x9F>", "<0x98>", "<0x8A>"}) out.emplace_back(byte);
    for (const char* more : {"def", "hij", "</s>"}) out.emplace_back(more);
    return out;
  }();
  text::TokenizerSpec spec;
  spec.where = "test";
  spec.pieces.assign(pieces.begin(), pieces.end());
  spec.kinds.assign(pieces.size(), text::PieceKind::kNormal);
  for (std::size_t i = 26; i < 30; ++i) spec.kinds[i] = text::PieceKind::kByte;
  spec.kinds[32] = text::PieceKind::kControl;
  spec.alphabet = text::PieceAlphabet::kMetaspace;
  spec.model = text::TokenizerSpec::Model::kScores;
  spec.scores.assign(pieces.size(), 0.0f);
  return std::make_shared<const text::Tokenizer>(std::move(spec));
}

constexpr std::uint32_t kVocabulary = 35;

// A model that says the given tokens, whatever the prompt.
class Speaker {
 public:
  explicit Speaker(std::vector<TokenId> says)
      : model_({.vocab_size = kVocabulary}), engine_(model_, {.tokenizer = make_tokenizer()}), says_(std::move(says)) {
    model_.after_step = [this](const sched::Step& step, Logits& logits) {
      for (std::size_t r = 0; r < step.out_row.size(); ++r) {
        const auto next = static_cast<std::size_t>(step.pos[static_cast<std::size_t>(step.out_row[r])]);
        logits.values[r * kVocabulary + static_cast<std::size_t>(says_.at(next))] = 100;
      }
    };
  }
  // The prompt has one token, so the token at position p is followed by says[p].
  Generation speak(std::uint32_t n, std::vector<std::string> stop = {}, std::vector<TokenId> stop_ids = {}) {
    pieces.clear();
    return generate(engine_, {.prompt = {0}, .max_tokens = n, .stop_ids = std::move(stop_ids), .stop = std::move(stop)},
                    [this](const Event& event) { pieces.push_back(event.text); });
  }

  std::vector<std::string> pieces;  // as they were streamed

 private:
  FakeModel model_;
  Engine engine_;
  std::vector<TokenId> says_;
};

std::vector<TokenId> letters(const std::string& text) {
  std::vector<TokenId> out;
  for (const char c : text) out.push_back(c - 'a');
  return out;
}

TEST(Text, StreamsPieces) {
  Speaker speaker(letters("hello"));
  const Generation g = speaker.speak(5);
  EXPECT_EQ(g.text, "hello");
  EXPECT_EQ(speaker.pieces, (std::vector<std::string>{"h", "e", "l", "l", "o"}));
}

TEST(Text, AStopStringAcrossTokensNeverLeaks) {
  Speaker speaker(letters("abcdefghijklmnop"));
  const Generation g = speaker.speak(16, {"defghij"});
  EXPECT_EQ(g.text, "abc");
  EXPECT_EQ(g.finish, FinishReason::kStop);
  EXPECT_EQ(g.ids, letters("abcdefghij"));
  EXPECT_EQ(speaker.pieces, (std::vector<std::string>{"a", "b", "c", "", "", "", "", "", "", ""}));
}

TEST(Text, AStopStringInsideATokenCutsIt) {
  Speaker speaker({0, 30, 31, 5});  // a def hij f
  EXPECT_EQ(speaker.speak(4, {"fh"}).text, "ade");
  EXPECT_EQ(speaker.speak(4, {"hij", "ef"}).text, "ad");
}

TEST(Text, WhatOnlyBeganLikeAStopStringIsText) {
  Speaker speaker(letters("abcdezzzz"));
  EXPECT_EQ(speaker.speak(9, {"defghij"}).text, "abcdezzzz");
  const Generation cut = speaker.speak(5, {"defghij"});  // ends in the middle of it
  EXPECT_EQ(cut.text, "abcde");
  EXPECT_EQ(cut.finish, FinishReason::kLength);
}

TEST(Text, EndTokensAreNoText) {
  Speaker speaker({7, 8, 32, 9});
  const Generation g = speaker.speak(4, {}, {32});
  EXPECT_EQ(g.text, "hi");
  EXPECT_EQ(g.ids, (std::vector<TokenId>{7, 8, 32}));
  EXPECT_EQ(speaker.speak(4, {}, {8}).text, "h");  // a letter too, when it is a stop id
}

TEST(Text, NeverHalfACharacter) {
  const std::vector<TokenId> says{0, 26, 27, 28, 29, 1};
  for (std::uint32_t n = 1; n <= 6; ++n) {
    Speaker speaker(says);
    const Generation g = speaker.speak(n);
    const std::string end = n == 1 ? "" : n < 5 ? "\uFFFD" : "\U0001F60A";
    EXPECT_EQ(g.text, "a" + end + (n == 6 ? "b" : ""));
    for (const std::string& piece : speaker.pieces) EXPECT_TRUE(piece.empty() || (piece[0] & 0xC0) != 0x80);
  }
}

TEST(Text, AnIdWithoutATokenHasNoText) {
  Speaker speaker({0, 34, 1});
  EXPECT_EQ(speaker.speak(3).text, "ab");
}

}  // namespace
}  // namespace backplane::engine

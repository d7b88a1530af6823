// A vocabulary made to test text with, and a model that says what it is told.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/engine/generation.h"
#include "tests/unit/engine/engine_fixture.h"

namespace backplane::engine {

// Ids 0 to 25 are letters, the next four the bytes of an emoji, then some longer pieces; the model has two ids more.
inline constexpr TokenId kEmoji = 26, kDef = 30, kHij = 31, kEnd = 32;
inline constexpr std::uint32_t kSpeakerVocabulary = 35;

inline std::shared_ptr<const text::Tokenizer> letter_tokenizer() {
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
  for (std::size_t i = kEmoji; i < kDef; ++i) spec.kinds[i] = text::PieceKind::kByte;
  spec.kinds[kEnd] = text::PieceKind::kControl;
  spec.alphabet = text::PieceAlphabet::kMetaspace;
  spec.model = text::TokenizerSpec::Model::kScores;
  spec.scores.assign(pieces.size(), 0.0f);
  return std::make_shared<const text::Tokenizer>(std::move(spec));
}

inline std::vector<TokenId> letters(const std::string& text) {
  std::vector<TokenId> out;
  for (const char c : text) out.push_back(c - 'a');
  return out;
}

// A model that wants to say the given tokens, whatever the prompt, which has one token.
class Speaker {
 public:
  explicit Speaker(std::vector<TokenId> says)
      : model_({.vocab_size = kSpeakerVocabulary}),
        engine_(model_, {.tokenizer = letter_tokenizer()}),
        says_(std::move(says)) {
    model_.after_step = [this](const sched::Step& step, Logits& logits) {
      for (std::size_t r = 0; r < step.out_row.size(); ++r) {
        // The token at position p is followed by says_[p].
        const auto next = static_cast<std::size_t>(step.pos[static_cast<std::size_t>(step.out_row[r])]);
        logits.values[r * kSpeakerVocabulary + static_cast<std::size_t>(says_.at(next))] = 100;
      }
    };
  }

  // The prompt may be left out of the request, and max_tokens: then it says all.
  Generation speak(Request request) {
    pieces.clear();
    if (request.prompt.empty()) request.prompt = {0};
    if (!request.max_tokens) request.max_tokens = static_cast<std::uint32_t>(says_.size());
    return generate(engine_, std::move(request), [this](const Event& event) { pieces.push_back(event.text); });
  }

  std::vector<std::string> pieces;  // as they were streamed

 private:
  FakeModel model_;
  Engine engine_;
  std::vector<TokenId> says_;
};

}  // namespace backplane::engine

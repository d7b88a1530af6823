// All that a tokenizer file says, in one form: what the file readers fill in and text::Tokenizer is made from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/added_tokens.h"
#include "core/text/bpe.h"
#include "core/text/normalizer.h"
#include "core/text/pretokenizer.h"
#include "core/text/token_id.h"
#include "core/text/vocabulary.h"

namespace backplane::text {

struct SpecialTokens {
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId eot = kNoToken;  // ends a turn of a chat
  TokenId unk = kNoToken;
  TokenId pad = kNoToken;
  std::vector<TokenId> end_of_generation;  // every id after which a model has nothing more to say; sorted
};

// What decoding does to spaces at the start of a text, where encoding may have put one or taken some away.
enum class LeadingSpace : std::uint8_t {
  kKeep,
  kDropOne,  // the first token's
  kDropEach  // one of every token's until something else comes: what SentencePiece does where extra spaces are removed
};

struct TokenizerSpec {
  std::string where;  // the file, for messages

  // Views, read while the tokenizer is constructed only.
  std::vector<std::string_view> pieces;  // by id; empty for ids without a token
  std::vector<PieceKind> kinds;          // by id, or empty: all normal
  PieceAlphabet alphabet = PieceAlphabet::kByteLevel;

  enum class Model { kMerges, kScores } model = Model::kMerges;
  std::vector<BpeModel::Merge> merges;  // kMerges
  BpeOptions bpe;
  std::vector<float> scores;  // kScores, by id
  bool freeze_user_defined = false;

  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<AddedToken> added_tokens;

  SpecialTokens special;
  std::vector<TokenId> prefix, suffix;  // what add_special puts around a text
  LeadingSpace leading_space = LeadingSpace::kKeep;
};

}  // namespace backplane::text

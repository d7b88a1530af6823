// Merging and added tokens on vocabularies small enough to follow by hand.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "core/text/tokenizer.h"
#include "tests/support/expect_error.h"

namespace backplane::text {
namespace {

using Ids = std::vector<TokenId>;

// Byte-level, no pre-tokenizer: letters a to e, then what the merges make of them.
TokenizerSpec letters() {
  TokenizerSpec spec;
  spec.where = "test";
  spec.pieces = {"a", "b", "c", "d", "e", "ab", "bc", "abc", "aa", "aaaa"};
  spec.merges = {{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"a", "a"}, {"aa", "aa"}};
  return spec;
}

TEST(BpeTest, BestRankThenLeftmost) {
  const Tokenizer tokenizer(letters());
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{7}));  // b c first, then a bc
  EXPECT_EQ(tokenizer.encode("abd"), (Ids{5, 3}));
  EXPECT_EQ(tokenizer.encode("aaa"), (Ids{8, 0}));  // the left pair
  EXPECT_EQ(tokenizer.encode("aaaaaaa"), (Ids{9, 8, 0}));
  EXPECT_EQ(tokenizer.encode("abab"), (Ids{5, 5}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.encode("axb"), (Ids{5}));  // what has no token and no unknown token is left out
}

TEST(BpeTest, ATokenThatMergingDoesNotReach) {
  TokenizerSpec spec = letters();
  spec.pieces.push_back("abd");  // no merge makes it
  spec.bpe.ignore_merges = false;
  const Tokenizer merging(std::move(spec));
  EXPECT_EQ(merging.encode("abd"), (Ids{5, 3}));
  EXPECT_EQ(merging.encode("abd"), (Ids{5, 3}));  // now from the memo
  TokenizerSpec direct = letters();
  direct.pieces.push_back("abd");
  direct.bpe.ignore_merges = true;
  EXPECT_EQ(Tokenizer(std::move(direct)).encode("abd"), (Ids{10}));
}

// The heap for long pieces and the scan for short ones are two programs for one result.
TEST(BpeTest, LongPiecesMergeAsShortOnes) {
  TokenizerSpec spec = letters();
  const Tokenizer tokenizer(letters());
  std::mt19937 random(2);
  const auto plain = [&](std::string_view text) {  // the definition, in the slowest way
    std::vector<std::string> symbols;
    for (const char c : text) symbols.emplace_back(1, c);
    for (bool merged = true; merged;) {
      merged = false;
      for (const auto& [left, right] : spec.merges) {
        for (std::size_t i = 0; i + 1 < symbols.size() && !merged; ++i) {
          if (symbols[i] != left || symbols[i + 1] != right) continue;
          symbols[i] += symbols[i + 1];
          symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          merged = true;
        }
        if (merged) break;
      }
    }
    Ids ids;
    for (const std::string& symbol : symbols) {
      ids.push_back(
          static_cast<TokenId>(std::find(spec.pieces.begin(), spec.pieces.end(), symbol) - spec.pieces.begin()));
    }
    return ids;
  };
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (unsigned n = random() % 120; n > 0; --n) text.push_back("aaabbcde"[random() % 8]);
    ASSERT_EQ(tokenizer.encode(text), plain(text)) << text;
  }
}

// In quadratic time it would not end.
TEST(BpeTest, AMillionBytesOfOneLetter) {
  const Tokenizer tokenizer(letters());
  EXPECT_EQ(tokenizer.encode(std::string(1 << 20, 'a')).size(), std::size_t{1} << 18);
}

TEST(BpeTest, RefusesMergesThatDoNotFit) {
  TokenizerSpec unknown = letters();
  unknown.merges.emplace_back("d", "e");
  EXPECT_ERROR(Tokenizer(std::move(unknown)), ErrorCode::kBadFile, "merge 5");
  TokenizerSpec empty = letters();
  empty.merges.emplace_back("", "e");
  EXPECT_ERROR(Tokenizer(std::move(empty)), ErrorCode::kBadFile, "empty side");
  TokenizerSpec none;
  EXPECT_ERROR(Tokenizer(std::move(none)), ErrorCode::kBadFile, "no tokens");
  TokenizerSpec range = letters();
  range.special.bos = 99;
  EXPECT_ERROR(Tokenizer(std::move(range)), ErrorCode::kBadFile, "BOS");
}

TEST(BpeTest, InvalidUtf8ComesBackAsItIs) {
  TokenizerSpec spec;
  std::vector<std::string> alphabet;
  for (int value = 0; value < 0x180; ++value) {  // every character of the byte alphabet is in this range
    std::string piece, bytes;
    if (value < 0x80) {
      piece.push_back(static_cast<char>(value));
    } else {
      piece = {static_cast<char>(0xC0 | value >> 6), static_cast<char>(0x80 | (value & 0x3F))};
    }
    if (append_byte_level(piece, bytes)) alphabet.push_back(piece);
  }
  ASSERT_EQ(alphabet.size(), 256u);
  spec.pieces.assign(alphabet.begin(), alphabet.end());
  spec.pre_tokenizer.emplace_back(ScannerStep{ScannerKind::kLlama3});
  spec.normalizer.emplace_back(UnicodeStep{UnicodeForm::kNfc});
  const Tokenizer tokenizer(std::move(spec));
  std::string bytes;
  for (int value = 255; value >= 0; --value) bytes.push_back(static_cast<char>(value));
  const Ids ids = tokenizer.encode(bytes);
  EXPECT_EQ(ids.size(), 256u);
  EXPECT_EQ(tokenizer.decode(ids), bytes);
}

TEST(AddedTokensTest, SpecialOnesOnlyWhenAskedFor) {
  TokenizerSpec spec = letters();
  spec.pieces.push_back("<s>");
  spec.pieces.push_back("<d>");
  spec.kinds.assign(12, PieceKind::kNormal);
  spec.kinds[10] = PieceKind::kControl;
  spec.kinds[11] = PieceKind::kUserDefined;
  spec.added_tokens = {{.content = "<s>", .id = 10, .special = true}, {.content = "<d>", .id = 11}};
  spec.special.bos = 10;
  spec.prefix = {10};
  const Tokenizer tokenizer(std::move(spec));
  EXPECT_EQ(tokenizer.encode("a<s>b<d>c"), (Ids{5, 11, 2}));  // its text, which this vocabulary has no letters for
  EXPECT_EQ(tokenizer.encode("a<s>b<d>c", {.parse_special = true}), (Ids{0, 10, 1, 11, 2}));
  EXPECT_EQ(tokenizer.encode("a", {.add_special = true}), (Ids{10, 0}));
  EXPECT_EQ(tokenizer.encode("", {.add_special = true}), (Ids{10}));
  EXPECT_TRUE(tokenizer.add_bos());
  EXPECT_TRUE(tokenizer.is_special(10));
  EXPECT_FALSE(tokenizer.is_special(11));
  EXPECT_EQ(tokenizer.decode(Ids{10, 0, 11}), "<s>a<d>");
  EXPECT_EQ(tokenizer.decode(Ids{10, 0, 11}, {.skip_special = true}), "a<d>");
  EXPECT_ERROR(tokenizer.decode(Ids{12}), ErrorCode::kUsage, "12");
  EXPECT_ERROR(tokenizer.piece(-1), ErrorCode::kUsage, "-1");
}

// Metaspace pieces with scores: a higher score merges first.
TokenizerSpec scored() {
  TokenizerSpec spec;
  spec.where = "test";
  spec.model = TokenizerSpec::Model::kScores;
  spec.alphabet = PieceAlphabet::kMetaspace;
  spec.pieces = {"<unk>",
                 "a",
                 "b",
                 "c",
                 "ab",
                 "bc",
                 "abc",
                 "\xE2\x96\x81",
                 "\xE2\x96\x81"
                 "a"};
  spec.kinds.assign(spec.pieces.size(), PieceKind::kNormal);
  spec.kinds[0] = PieceKind::kUnknown;
  spec.scores = {0, -9, -9, -9, -2, -1, -3, -9, -8};
  spec.special.unk = 0;
  return spec;
}

TEST(ScoreBpeTest, BestScoreThenLeftmost) {
  const Tokenizer tokenizer(scored());
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{6}));  // bc, then a bc
  EXPECT_EQ(tokenizer.encode("abab"), (Ids{4, 4}));
  EXPECT_EQ(tokenizer.encode("xyzab"), (Ids{0, 4}));  // a run of unknown characters is one token
  EXPECT_EQ(tokenizer.encode("\xE2\x96\x81"
                             "ab"),
            (Ids{7, 4}));
}

TEST(ScoreBpeTest, UnusedPiecesAreTakenApart) {
  TokenizerSpec spec = scored();
  spec.kinds[5] = PieceKind::kUnused;  // bc forms on the way to abc, but never comes out
  const Tokenizer tokenizer(std::move(spec));
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{6}));
  EXPECT_EQ(tokenizer.encode("bc"), (Ids{2, 3}));
}

TEST(ScoreBpeTest, FrozenPiecesDoNotMerge) {
  TokenizerSpec spec = scored();
  spec.kinds[5] = PieceKind::kUserDefined;
  spec.freeze_user_defined = true;
  EXPECT_EQ(Tokenizer(std::move(spec)).encode("abc"), (Ids{1, 5}));
}

// In quadratic time it would not end.
TEST(ScoreBpeTest, AMillionBytes) {
  const Tokenizer tokenizer(scored());
  std::string text;
  while (text.size() < (1u << 20)) text += "abc";
  EXPECT_EQ(tokenizer.encode(text), Ids(text.size() / 3, 6));
  EXPECT_EQ(tokenizer.encode(std::string(1 << 20, 'a')).size(), std::size_t{1} << 20);
}

TEST(ScoreBpeTest, RefusesScoresThatAreNoNumbers) {
  TokenizerSpec spec = scored();
  spec.scores[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_ERROR(Tokenizer(std::move(spec)), ErrorCode::kBadFile, "score");
  TokenizerSpec few = scored();
  few.scores.pop_back();
  EXPECT_ERROR(Tokenizer(std::move(few)), ErrorCode::kBadFile, "8 scores for 9 tokens");
}

}  // namespace
}  // namespace backplane::text

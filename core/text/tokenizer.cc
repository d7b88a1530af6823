#include "core/text/tokenizer.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/text/score_bpe.h"

namespace backplane::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

AddedTokenMatcher make_matcher(const std::vector<AddedToken>& tokens, const Normalizer& normalizer, bool normalized,
                               bool special) {
  std::vector<AddedToken> chosen;
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized || (token.special && !special)) continue;
    chosen.push_back(token);
    if (normalized) chosen.back().content = normalizer.apply(token.content, false);
  }
  return AddedTokenMatcher(std::move(chosen));
}

}  // namespace

Tokenizer::Tokenizer(TokenizerSpec spec)
    : vocabulary_(spec.pieces, std::move(spec.kinds), spec.alphabet, spec.where),
      normalizer_(std::move(spec.normalizer)),
      pre_tokenizer_(spec.pre_tokenizer),
      special_(std::move(spec.special)),
      prefix_(std::move(spec.prefix)),
      suffix_(std::move(spec.suffix)),
      is_special_(vocabulary_.size()),
      leading_space_(spec.leading_space) {
  check_ids(spec);
  if (spec.model == TokenizerSpec::Model::kMerges) {
    merges_ = std::make_unique<BpeModel>(vocabulary_, spec.merges, spec.bpe, spec.where);
    split_words_ = !spec.bpe.byte_level && spec.pre_tokenizer.empty() && vocabulary_.words_are_separate() &&
                   vocabulary_.find(kSpaceMark) != kNoToken;
  } else {
    scores_ = std::make_unique<ScoreBpeModel>(vocabulary_, std::move(spec.scores), special_.unk,
                                              spec.freeze_user_defined, spec.where);
  }
  plain_given_ = make_matcher(spec.added_tokens, normalizer_, false, false);
  plain_normalized_ = make_matcher(spec.added_tokens, normalizer_, true, false);
  all_given_ = make_matcher(spec.added_tokens, normalizer_, false, true);
  all_normalized_ = make_matcher(spec.added_tokens, normalizer_, true, true);
  for (std::size_t id = 0; id < vocabulary_.size(); ++id) {
    const PieceKind kind = vocabulary_.kind(static_cast<TokenId>(id));
    is_special_[id] = kind == PieceKind::kControl || kind == PieceKind::kUnknown;
  }
  for (const AddedToken& token : spec.added_tokens) {
    if (token.special) is_special_[token.id] = true;
  }
  std::vector<TokenId>& ends = special_.end_of_generation;
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

Tokenizer::~Tokenizer() = default;

void Tokenizer::check_ids(const TokenizerSpec& spec) const {
  const auto check = [&](TokenId id, std::string_view what) {
    if (id == kNoToken || (id >= 0 && static_cast<std::size_t>(id) < vocabulary_.size())) return;
    throw Error(ErrorCode::kBadFile,
                std::string(what) + " " + std::to_string(id) + " isn't one of the " +
                    std::to_string(vocabulary_.size()) + " tokens",
                spec.where);
  };
  check(special_.bos, "the BOS token");
  check(special_.eos, "the EOS token");
  check(special_.eot, "the end-of-turn token");
  check(special_.unk, "the unknown token");
  check(special_.pad, "the padding token");
  check(spec.bpe.unknown, "the unknown token");
  for (const TokenId id : special_.end_of_generation) check(id, "the end-of-generation token");
  for (const TokenId id : prefix_) check(id, "the token before a text");
  for (const TokenId id : suffix_) check(id, "the token behind a text");
  for (const AddedToken& token : spec.added_tokens) {
    check(token.id, "the added token");
    if (token.id == kNoToken) throw Error(ErrorCode::kBadFile, "an added token without an id", spec.where);
  }
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const AddedTokenMatcher& given = options.parse_special ? all_given_ : plain_given_;
  const AddedTokenMatcher& normalized = options.parse_special ? all_normalized_ : plain_normalized_;
  std::vector<TokenId> out;
  out.reserve(text.size() / 3 + 8);
  if (options.add_special) out.insert(out.end(), prefix_.begin(), prefix_.end());
  if (given.empty()) {
    encode_part(text, true, true, normalized, out);
  } else {
    bool after_token = true;
    given.split(
        text,
        [&](std::string_view part) {
          encode_part(part, part.data() == text.data(), after_token, normalized, out);
          after_token = false;
        },
        [&](TokenId id) {
          out.push_back(id);
          after_token = true;
        });
  }
  if (options.add_special) out.insert(out.end(), suffix_.begin(), suffix_.end());
  return out;
}

void Tokenizer::encode_part(std::string_view part, bool first, bool after_token, const AddedTokenMatcher& normalized,
                            std::vector<TokenId>& out) const {
  std::string changed;
  if (!normalizer_.empty()) {
    changed = normalizer_.apply(part, after_token);
    part = changed;
  }
  if (normalized.empty()) return encode_normalized(part, first, out);
  normalized.split(
      part, [&](std::string_view text) { encode_normalized(text, first && text.data() == part.data(), out); },
      [&](TokenId id) { out.push_back(id); });
}

void Tokenizer::encode_normalized(std::string_view text, bool first, std::vector<TokenId>& out) const {
  pre_tokenizer_.split(text, first, [&](std::string_view piece) {
    if (scores_) return scores_->encode(piece, out);
    if (!split_words_) return merges_->encode(piece, out);
    for (std::size_t begin = 0; begin < piece.size();) {  // no merge crosses the start of a word
      std::size_t end = begin;
      while (piece.substr(end).starts_with(kSpaceMark)) end += kSpaceMark.size();
      end = std::min(piece.find(kSpaceMark, end), piece.size());
      merges_->encode(piece.substr(begin, end - begin), out);
      begin = end;
    }
  });
}

std::string Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  std::string out;
  out.reserve(ids.size() * 4);
  bool at_start = true;
  for (const TokenId id : ids) {
    check_id(id);
    if (!options.skip_special || !is_special_[id]) out.append(shown_bytes(id, at_start));
  }
  return out;
}

std::string_view Tokenizer::shown_bytes(TokenId id, bool& at_start) const {
  std::string_view bytes = token_bytes(id);
  if (!at_start || bytes.empty()) return bytes;
  const bool drop = leading_space_ != LeadingSpace::kKeep && bytes.front() == ' ' && !is_special_[id];
  if (drop) bytes.remove_prefix(1);
  at_start = leading_space_ == LeadingSpace::kDropEach && bytes.empty();
  return bytes;
}

void Tokenizer::check_id(TokenId id) const {
  if (id >= 0 && static_cast<std::size_t>(id) < vocabulary_.size()) return;
  throw Error(ErrorCode::kUsage, "token id " + std::to_string(id) + " isn't in the vocabulary", {},
              "ids are 0 to " + std::to_string(vocabulary_.size() - 1));
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  check_id(id);
  return vocabulary_.bytes(id);
}

std::string_view Tokenizer::piece(TokenId id) const {
  check_id(id);
  return vocabulary_.piece(id);
}

bool Tokenizer::is_special(TokenId id) const {
  check_id(id);
  return is_special_[id];
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  return std::binary_search(special_.end_of_generation.begin(), special_.end_of_generation.end(), id);
}

}  // namespace backplane::text

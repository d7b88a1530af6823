// Text -> token ids -> text.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/token_id.h"
#include "core/text/tokenizer_spec.h"

namespace backplane::text {

class ScoreBpeModel;

struct EncodeOptions {
  bool add_special = false;    // BOS, EOS and the like, as the vocabulary's own policy says
  bool parse_special = false;  // special tokens written in the text become those tokens; otherwise they stay text
};

struct DecodeOptions {
  bool skip_special = false;
};

// Immutable after construction, so free-threaded.
class Tokenizer {
 public:
  // Throws Error{kBadFile}, naming spec.where, when the parts don't fit together.
  explicit Tokenizer(TokenizerSpec spec);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Takes any bytes; a byte-level vocabulary gives them back exactly.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;

  // The bytes that the ids stand for: not always UTF-8 (see Detokenizer and to_valid_utf8). Throws Error{kUsage} for an
  // id outside of the vocabulary, as do the functions that take one id.
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  std::string_view token_bytes(TokenId id) const;  // what the token adds to a text
  std::string_view piece(TokenId id) const;        // as the vocabulary file writes it
  bool is_special(TokenId id) const;               // a control or unknown token, which isn't text
  bool is_end_of_generation(TokenId id) const;

  std::size_t vocab_size() const { return vocabulary_.size(); }
  const SpecialTokens& special() const { return special_; }
  TokenId bos() const { return special_.bos; }
  TokenId eos() const { return special_.eos; }
  TokenId eot() const { return special_.eot; }
  TokenId unk() const { return special_.unk; }
  TokenId pad() const { return special_.pad; }
  // What add_special puts before and behind a text.
  bool add_bos() const { return !prefix_.empty(); }
  bool add_eos() const { return !suffix_.empty(); }
  LeadingSpace leading_space() const { return leading_space_; }
  // token_bytes(id) without the space that decoding drops at the start of a text. `at_start` is true at first, where a
  // text starts, and becomes false when nothing is dropped any more; the id is one that is shown.
  std::string_view shown_bytes(TokenId id, bool& at_start) const;
  // The id of a token by its text in the file, or kNoToken; takes a scan of the vocabulary.
  TokenId find(std::string_view piece) const { return vocabulary_.find_piece(piece); }

 private:
  void check_ids(const TokenizerSpec& spec) const;
  void check_id(TokenId id) const;
  void encode_part(std::string_view part, bool first, bool after_token, const AddedTokenMatcher& normalized,
                   std::vector<TokenId>& out) const;
  void encode_normalized(std::string_view text, bool first, std::vector<TokenId>& out) const;

  Vocabulary vocabulary_;
  std::unique_ptr<const BpeModel> merges_;  // one of the two
  std::unique_ptr<const ScoreBpeModel> scores_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  // Added tokens found in the text as given and in normalized text: those that aren't special, and all of them.
  AddedTokenMatcher plain_given_, plain_normalized_, all_given_, all_normalized_;
  SpecialTokens special_;
  std::vector<TokenId> prefix_, suffix_;
  std::vector<bool> is_special_;
  LeadingSpace leading_space_;
  bool split_words_ = false;
};

}  // namespace backplane::text

// What the tokenizer readers share. Internal to core/formats.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/formats/tokenizer_bundle.h"
#include "core/text/tokenizer_spec.h"

namespace backplane::formats {

// What tokenizer_config.json and its neighbors say; everything may be absent.
struct TokenizerSettings {
  std::string where;  // the folder
  std::string tokenizer_class;
  std::string bos_token, eos_token, unk_token, pad_token;
  std::optional<bool> add_bos, add_eos;
  std::vector<text::AddedToken> added_tokens;  // of added_tokens_decoder and added_tokens.json
  std::vector<std::int64_t> end_ids;           // eos_token_id of generation_config.json
  std::optional<std::string> chat_template;
};

// Reads the folder's tokenizer_config.json, special_tokens_map.json, added_tokens.json, generation_config.json and
// chat_template.jinja, as far as they exist.
TokenizerSettings read_tokenizer_settings(const std::filesystem::path& folder);

// Sets the special ids that are still open from names in `settings`, then from names that models commonly use, and the
// ids that end a generation; takes add_bos and add_eos from `settings` when the file itself has no policy.
void apply_settings(text::TokenizerSpec& spec, const TokenizerSettings& settings, bool has_policy);

// The tokenizer and the strings beside it. `spec` must not refer to anything that is gone already.
TokenizerBundle make_bundle(text::TokenizerSpec spec, TokenizerSettings settings);

// `spec.pieces` by text; for the few look-ups of a reader.
text::TokenId find_piece(const text::TokenizerSpec& spec, std::string_view piece);

TokenizerBundle load_tokenizer_json(const std::filesystem::path& path, TokenizerSettings settings);
TokenizerBundle load_sentence_piece(const std::filesystem::path& path, TokenizerSettings settings);
// GPT-2's pair of files: piece -> id as JSON, and the merges, one a line.
TokenizerBundle load_vocab_and_merges(const std::filesystem::path& vocab, const std::filesystem::path& merges,
                                      TokenizerSettings settings);

}  // namespace backplane::formats

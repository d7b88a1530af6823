#include "core/formats/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/formats/tokenizer_parts.h"
#include "core/formats/utf8.h"

namespace backplane::formats {
namespace {

using text::PieceKind;
using text::TokenId;

constexpr std::size_t kMaxFile = std::size_t{1} << 30;
constexpr std::size_t kMaxGap = 65536;  // ids that no token has

// Makes room for `id` among `count` tokens.
std::size_t place_id(JsonElement value, std::size_t count, std::string_view name, text::TokenizerSpec& spec) {
  std::int64_t id = 0;
  if (value.get(id) != simdjson::SUCCESS || id < 0) {
    json_refuse("the token " + quote_name(name) + " has no valid id", spec.where);
  }
  if (static_cast<std::uint64_t>(id) >= count + kMaxGap) {
    json_refuse("the id " + std::to_string(id) + " of " + quote_name(name) + " is far beyond the " +
                    std::to_string(count) + " tokens",
                spec.where);
  }
  const auto index = static_cast<std::size_t>(id);
  if (index >= spec.pieces.size()) {
    spec.pieces.resize(index + 1);
    spec.kinds.resize(index + 1, PieceKind::kNormal);
  }
  return index;
}

text::AddedToken read_added_token(JsonElement token, text::TokenizerSpec& spec) {
  text::AddedToken added;
  added.content = std::string(json_text(token, "content", "", spec.where));
  added.special = json_flag(token, "special", false, spec.where);
  added.normalized = json_flag(token, "normalized", !added.special, spec.where);
  added.strip_left = json_flag(token, "lstrip", false, spec.where);
  added.strip_right = json_flag(token, "rstrip", false, spec.where);
  added.single_word = json_flag(token, "single_word", false, spec.where);
  return added;
}

}  // namespace

void json_refuse(std::string_view what, std::string_view where) { throw Error(ErrorCode::kBadFile, what, where); }

bool json_field(JsonElement object, std::string_view key, JsonElement& out) {
  simdjson::dom::object fields;
  return object.get(fields) == simdjson::SUCCESS && fields[key].get(out) == simdjson::SUCCESS && !out.is_null();
}

bool json_flag(JsonElement object, std::string_view key, bool fallback, std::string_view where) {
  JsonElement value;
  if (!json_field(object, key, value)) return fallback;
  bool flag = fallback;
  if (value.get(flag) != simdjson::SUCCESS) json_refuse(fmt::format("\"{}\" isn't true or false", key), where);
  return flag;
}

std::string_view json_text(JsonElement object, std::string_view key, std::string_view fallback,
                           std::string_view where) {
  JsonElement value;
  if (!json_field(object, key, value)) return fallback;
  std::string_view out = fallback;
  if (value.get(out) != simdjson::SUCCESS) json_refuse(fmt::format("\"{}\" isn't a string", key), where);
  return out;
}

void read_json_vocab(JsonElement vocab, std::size_t added_tokens, text::TokenizerSpec& spec) {
  simdjson::dom::object entries;
  if (vocab.get(entries) != simdjson::SUCCESS) json_refuse("the vocabulary isn't an object of ids", spec.where);
  std::size_t count = 0;  // object::size() saturates at 2^24 - 1
  for ([[maybe_unused]] const auto entry : entries) ++count;
  spec.pieces.reserve(count + added_tokens);
  spec.kinds.reserve(count + added_tokens);
  for (const auto [piece, value] : entries) {
    const std::size_t id = place_id(value, count + added_tokens, piece, spec);
    if (!spec.pieces[id].empty()) {
      json_refuse("the id " + std::to_string(id) + " belongs to " + quote_name(spec.pieces[id]) + " and to " +
                      quote_name(piece),
                  spec.where);
    }
    spec.pieces[id] = piece;
  }
}

text::BpeModel::Merge parse_merge(std::string_view line, std::string_view where) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    json_refuse("the merge " + quote_name(line) + " isn't two pieces with a space between", where);
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

namespace {

void read_merges(JsonElement model, text::TokenizerSpec& spec) {
  JsonElement field;
  simdjson::dom::array merges;
  if (!json_field(model, "merges", field) || field.get(merges) != simdjson::SUCCESS) {
    json_refuse("the model has no list of merges", spec.where);
  }
  spec.merges.reserve(merges.size());
  for (const JsonElement merge : merges) {
    std::string_view line;
    simdjson::dom::array pair;
    if (merge.get(line) == simdjson::SUCCESS) {
      if (!line.starts_with("#version")) spec.merges.push_back(parse_merge(line, spec.where));
      continue;
    }
    std::string_view left, right;
    if (merge.get(pair) != simdjson::SUCCESS || pair.size() != 2 || pair.at(0).get(left) != simdjson::SUCCESS ||
        pair.at(1).get(right) != simdjson::SUCCESS) {
      json_refuse("merge " + std::to_string(spec.merges.size()) + " isn't a pair of pieces", spec.where);
    }
    spec.merges.emplace_back(left, right);
  }
}

void read_bpe_options(JsonElement model, text::TokenizerSpec& spec) {
  JsonElement field;
  double dropout = 0;
  if (json_field(model, "dropout", field) && (field.get(dropout) != simdjson::SUCCESS || dropout != 0)) {
    json_refuse("BPE dropout isn't supported", spec.where);
  }
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!json_text(model, key, "", spec.where).empty()) {
      json_refuse("the BPE setting " + std::string(key) + " isn't supported", spec.where);
    }
  }
  spec.bpe.fuse_unknown = json_flag(model, "fuse_unk", false, spec.where);
  spec.bpe.byte_fallback = json_flag(model, "byte_fallback", false, spec.where);
  spec.bpe.ignore_merges = json_flag(model, "ignore_merges", false, spec.where);
  const std::string_view unknown = json_text(model, "unk_token", "", spec.where);
  if (unknown.empty()) return;
  spec.bpe.unknown = spec.special.unk = find_piece(spec, unknown);
  if (spec.special.unk == text::kNoToken) {
    json_refuse("the unknown token " + quote_name(unknown) + " isn't in the vocabulary", spec.where);
  }
}

}  // namespace

void read_json_model(JsonElement root, text::TokenizerSpec& spec) {
  JsonElement model, vocab, added;
  if (!json_field(root, "model", model)) {
    json_refuse("no \"model\": this isn't a tokenizer.json", spec.where);
  }
  const std::string_view type = json_text(model, "type", "BPE", spec.where);
  if (type != "BPE") json_refuse("the tokenizer model " + quote_name(type) + " isn't supported", spec.where);
  if (!json_field(model, "vocab", vocab)) json_refuse("the model has no vocabulary", spec.where);
  simdjson::dom::array tokens;
  const bool has_added = json_field(root, "added_tokens", added) && added.get(tokens) == simdjson::SUCCESS;
  read_json_vocab(vocab, has_added ? tokens.size() : 0, spec);
  read_bpe_options(model, spec);
  read_merges(model, spec);
  for (std::size_t id = 0; spec.bpe.byte_fallback && id < spec.pieces.size(); ++id) {
    if (text::byte_piece_value(spec.pieces[id]) >= 0) spec.kinds[id] = PieceKind::kByte;
  }
}

namespace {

// The ids of those added tokens that the model's vocabulary has as well: there they count, whatever "id" says.
std::unordered_map<std::string_view, TokenId> find_in_vocab(simdjson::dom::array tokens,
                                                            const text::TokenizerSpec& spec) {
  std::unordered_map<std::string_view, TokenId> ids;
  for (const JsonElement token : tokens) ids.emplace(json_text(token, "content", "", spec.where), text::kNoToken);
  for (std::size_t id = 0; id < spec.pieces.size(); ++id) {
    const auto found = ids.find(spec.pieces[id]);
    if (found != ids.end()) found->second = static_cast<TokenId>(id);
  }
  return ids;
}

}  // namespace

void read_json_added_tokens(JsonElement root, text::TokenizerSpec& spec) {
  JsonElement field;
  if (!json_field(root, "added_tokens", field)) return;
  simdjson::dom::array tokens;
  if (field.get(tokens) != simdjson::SUCCESS) json_refuse("\"added_tokens\" isn't a list", spec.where);
  const auto in_vocab = find_in_vocab(tokens, spec);
  const std::size_t count = spec.pieces.size() + tokens.size();
  for (const JsonElement token : tokens) {
    text::AddedToken added = read_added_token(token, spec);
    JsonElement id;
    if (added.content.empty()) continue;  // matches nothing
    if (!json_field(token, "id", id)) json_refuse("an added token has no id", spec.where);
    const std::string_view content = json_text(token, "content", "", spec.where);
    added.id = in_vocab.at(content);
    const bool fresh = added.id == text::kNoToken;
    if (fresh) added.id = static_cast<TokenId>(place_id(id, count, content, spec));
    std::string_view& piece = spec.pieces[added.id];
    if (!piece.empty() && piece != content) {
      json_refuse("the id " + std::to_string(added.id) + " belongs to " + quote_name(piece) +
                      " and to the added token " + quote_name(content),
                  spec.where);
    }
    piece = content;
    if (added.special) {
      spec.kinds[added.id] = added.id == spec.special.unk ? PieceKind::kUnknown : PieceKind::kControl;
    } else if (fresh) {
      spec.kinds[added.id] = PieceKind::kUserDefined;
    }
    spec.added_tokens.push_back(std::move(added));
  }
}

TokenizerBundle load_tokenizer_json(const std::filesystem::path& path, TokenizerSettings settings) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (bytes.size() > kMaxFile) json_refuse("a tokenizer.json of more than 1 GiB", path.string());
  simdjson::dom::parser parser;
  JsonElement root;
  const auto error = parser.parse(reinterpret_cast<const char*>(bytes.data()), bytes.size(), true).get(root);
  if (error != simdjson::SUCCESS) {
    json_refuse(std::string("broken JSON: ") + simdjson::error_message(error), path.string());
  }
  if (!root.is_object()) json_refuse("this isn't a tokenizer.json", path.string());
  text::TokenizerSpec spec;
  spec.where = path.string();
  read_json_model(root, spec);
  read_json_added_tokens(root, spec);
  read_json_normalizer(root, spec);
  read_json_pre_tokenizer(root, spec);
  read_json_post_processor(root, spec);
  read_json_decoder(root, spec);
  const bool has_policy = !spec.prefix.empty() || !spec.suffix.empty();
  apply_settings(spec, settings, has_policy);
  return make_bundle(std::move(spec), std::move(settings));
}

}  // namespace backplane::formats

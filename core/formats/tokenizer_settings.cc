// The small files beside a tokenizer, and what follows from them.
#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/formats/json_input.h"
#include "core/formats/tokenizer_parts.h"
#include "core/formats/utf8.h"

namespace backplane::formats {
namespace {

using nlohmann::json;
using text::TokenId;

constexpr std::size_t kMaxSettingsFile = 16u << 20;

// The object in a file, or null when there is no such file.
json read_object(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return nullptr;
  json value = parse_json_file(path, kMaxSettingsFile);
  if (!value.is_object()) throw Error(ErrorCode::kBadFile, "this isn't a JSON object", path.string());
  return value;
}

// A token is a string or an object with its text in "content".
void take_token(const json& object, const char* key, std::string& out) {
  if (!object.is_object() || !object.contains(key) || !out.empty()) return;
  const json& value = object[key];
  if (value.is_string()) out = value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    out = value["content"].get<std::string>();
  }
}

bool flag(const json& object, const char* key) { return object.contains(key) && object[key] == true; }

void take_added_tokens(const json& config, TokenizerSettings& settings) {
  if (!config.is_object() || !config.contains("added_tokens_decoder")) return;
  for (const auto& [id, token] : config["added_tokens_decoder"].items()) {
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string()) continue;
    if (id.empty() || id.size() > 8 || id.find_first_not_of("0123456789") != std::string::npos) {
      throw Error(ErrorCode::kBadFile, "an added token has the id " + quote_name(id), settings.where);
    }
    settings.added_tokens.push_back({.content = token["content"].get<std::string>(),
                                     .id = static_cast<TokenId>(std::stol(id)),
                                     .special = flag(token, "special"),
                                     .normalized = flag(token, "normalized"),
                                     .strip_left = flag(token, "lstrip"),
                                     .strip_right = flag(token, "rstrip"),
                                     .single_word = flag(token, "single_word")});
  }
}

void take_template(const json& config, TokenizerSettings& settings) {
  if (!config.is_object() || !config.contains("chat_template")) return;
  const json& value = config["chat_template"];
  if (value.is_string()) settings.chat_template = value.get<std::string>();
  if (!value.is_array()) return;
  for (const json& entry : value) {
    const bool named = entry.is_object() && entry.contains("template") && entry["template"].is_string();
    if (named && entry.value("name", json()) == "default")
      settings.chat_template = entry["template"].get<std::string>();
  }
}

void take_end_ids(const json& generation, TokenizerSettings& settings) {
  if (!generation.is_object() || !generation.contains("eos_token_id")) return;
  const json& ids = generation["eos_token_id"];
  for (const json& id : ids.is_array() ? ids : json::array({ids})) {
    if (id.is_number_integer()) settings.end_ids.push_back(id.get<std::int64_t>());
  }
}

// Special tokens that end a turn or a text, by the names that models give them. The first ones end a turn.
constexpr std::array<std::string_view, 7> kTurnEnds = {"<|eot_id|>", "<|im_end|>", "<|end|>",        "<end_of_turn>",
                                                       "<|eom_id|>", "<EOT>",      "<|end_of_turn|>"};
constexpr std::array<std::string_view, 5> kTextEnds = {"</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>",
                                                       "<\xEF\xBD\x9C"
                                                       "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};
constexpr std::array<std::string_view, 4> kTextStarts = {"<s>", "<|begin_of_text|>", "<bos>",
                                                         "<\xEF\xBD\x9C"
                                                         "begin\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};

bool is_special(const text::TokenizerSpec& spec, TokenId id) {
  return !spec.kinds.empty() && spec.kinds[id] == text::PieceKind::kControl;
}

template <std::size_t N>
TokenId find_named(const text::TokenizerSpec& spec, const std::array<std::string_view, N>& names) {
  for (const std::string_view name : names) {
    const TokenId id = find_piece(spec, name);
    if (id != text::kNoToken && is_special(spec, id)) return id;
  }
  return text::kNoToken;
}

void find_ends(text::TokenizerSpec& spec) {
  const auto named = [](const auto& names, std::string_view piece) {
    return std::find(names.begin(), names.end(), piece) != names.end();
  };
  for (std::size_t id = 0; id < spec.kinds.size(); ++id) {
    const std::string_view piece = spec.pieces[id];
    if (!is_special(spec, static_cast<TokenId>(id)) || piece.empty() || piece.front() != '<') continue;
    if (named(kTurnEnds, piece) || named(kTextEnds, piece)) {
      spec.special.end_of_generation.push_back(static_cast<TokenId>(id));
    }
  }
  for (const TokenId id : {spec.special.eos, spec.special.eot}) {
    if (id != text::kNoToken) spec.special.end_of_generation.push_back(id);
  }
}

}  // namespace

TokenizerSettings read_tokenizer_settings(const std::filesystem::path& folder) {
  TokenizerSettings settings;
  settings.where = folder.string();
  const json config = read_object(folder / "tokenizer_config.json");
  for (const json& source : {config, read_object(folder / "special_tokens_map.json")}) {
    take_token(source, "bos_token", settings.bos_token);
    take_token(source, "eos_token", settings.eos_token);
    take_token(source, "unk_token", settings.unk_token);
    take_token(source, "pad_token", settings.pad_token);
  }
  if (config.is_object()) {
    if (config.contains("add_bos_token") && config["add_bos_token"].is_boolean()) {
      settings.add_bos = config["add_bos_token"].get<bool>();
    }
    if (config.contains("add_eos_token") && config["add_eos_token"].is_boolean()) {
      settings.add_eos = config["add_eos_token"].get<bool>();
    }
    take_token(config, "tokenizer_class", settings.tokenizer_class);
  }
  take_added_tokens(config, settings);
  take_template(config, settings);
  take_end_ids(read_object(folder / "generation_config.json"), settings);
  if (const auto path = folder / "chat_template.jinja"; std::filesystem::is_regular_file(path)) {
    const MappedFile file(path);
    if (file.bytes().size() > kMaxSettingsFile) throw Error(ErrorCode::kBadFile, "more than 16 MiB", path.string());
    settings.chat_template.emplace(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  }
  return settings;
}

TokenId find_piece(const text::TokenizerSpec& spec, std::string_view piece) {
  const auto found = std::find(spec.pieces.begin(), spec.pieces.end(), piece);
  if (piece.empty() || found == spec.pieces.end()) return text::kNoToken;
  return static_cast<TokenId>(found - spec.pieces.begin());
}

void apply_settings(text::TokenizerSpec& spec, const TokenizerSettings& settings, bool has_policy) {
  text::SpecialTokens& special = spec.special;
  const auto name = [&](TokenId& id, const std::string& token) {
    if (id == text::kNoToken) id = find_piece(spec, token);
  };
  name(special.bos, settings.bos_token);
  name(special.eos, settings.eos_token);
  name(special.unk, settings.unk_token);
  name(special.pad, settings.pad_token);
  if (special.bos == text::kNoToken) special.bos = find_named(spec, kTextStarts);
  if (special.bos == text::kNoToken && !spec.prefix.empty()) special.bos = spec.prefix.front();
  if (special.eos == text::kNoToken) special.eos = find_named(spec, kTextEnds);
  if (special.eot == text::kNoToken) special.eot = find_named(spec, kTurnEnds);
  if (special.eos == text::kNoToken) special.eos = special.eot;
  for (const std::int64_t id : settings.end_ids) {
    if (id >= 0 && static_cast<std::uint64_t>(id) < spec.pieces.size()) {
      special.end_of_generation.push_back(static_cast<TokenId>(id));
    }
  }
  find_ends(spec);
  if (has_policy) return;
  if (settings.add_bos.value_or(false) && special.bos != text::kNoToken) spec.prefix = {special.bos};
  if (settings.add_eos.value_or(false) && special.eos != text::kNoToken) spec.suffix = {special.eos};
}

TokenizerBundle make_bundle(text::TokenizerSpec spec, TokenizerSettings settings) {
  TokenizerBundle bundle;
  bundle.chat_template = std::move(settings.chat_template);
  bundle.bos_token = std::move(settings.bos_token);
  bundle.eos_token = std::move(settings.eos_token);
  const auto name = [&](std::string& token, TokenId id) {
    if (token.empty() && id != text::kNoToken) token = bundle.tokenizer->piece(id);
  };
  bundle.tokenizer = std::make_shared<const text::Tokenizer>(std::move(spec));
  name(bundle.bos_token, bundle.tokenizer->bos());
  name(bundle.eos_token, bundle.tokenizer->eos());
  return bundle;
}

}  // namespace backplane::formats

// The tokenizer in the metadata of a GGUF file.
#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/formats/gguf.h"
#include "core/formats/tokenizer_json.h"
#include "core/formats/tokenizer_parts.h"
#include "core/formats/utf8.h"

namespace backplane::formats {
namespace {

using text::PieceKind;
using text::PreTokenizerStep;
using text::ScannerKind;
using text::TokenId;

[[noreturn]] void refuse(const std::string& what, const text::TokenizerSpec& spec) {
  throw Error(ErrorCode::kBadFile, what, spec.where);
}

PreTokenizerStep split(std::string_view pattern, std::string_view where) {
  return text::SplitStep{std::make_shared<const text::Regex>(pattern, where)};
}

// tokenizer.ggml.pre names the pre-tokenizer and little settings that came with its models.
void set_pre_tokenizer(std::string_view name, text::TokenizerSpec& spec) {
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto scan = [&](ScannerKind kind) { spec.pre_tokenizer.emplace_back(text::ScannerStep{kind}); };
  if (is({"gpt-2", "gpt2", "phi-2", "olmo", "mpt", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jais"})) {
    scan(ScannerKind::kGpt2);
  } else if (is({"smollm", "starcoder", "refact", "command-r", "codeshell"})) {
    scan(ScannerKind::kSmolLm);
  } else if (is({"llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe"})) {
    scan(ScannerKind::kLlama3);
    spec.bpe.ignore_merges = is({"llama-bpe", "llama3", "llama-v3"});
  } else if (is({"qwen2", "stablelm2", "deepseek-r1-qwen"})) {
    scan(ScannerKind::kQwen2);
  } else if (name == "falcon") {
    spec.pre_tokenizer.push_back(split("[\\p{P}\\$\\+<=>\\^~\\|`]+", spec.where));
    scan(ScannerKind::kGpt2);
    spec.pre_tokenizer.push_back(split("[0-9][0-9][0-9]", spec.where));
  } else if (name == "deepseek-coder") {
    for (const std::string_view pattern : {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
                                           "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}"}) {
      spec.pre_tokenizer.push_back(split(pattern, spec.where));
    }
  } else {
    refuse("the pre-tokenizer (tokenizer.ggml.pre) " + quote_name(name) + " isn't supported", spec);
  }
}

void read_kinds(const Gguf& gguf, text::TokenizerSpec& spec) {
  const std::vector<std::int64_t> types = gguf.integer_array("tokenizer.ggml.token_type");
  spec.kinds.assign(spec.pieces.size(), PieceKind::kNormal);
  if (types.empty() && !gguf.has("tokenizer.ggml.token_type")) return;
  if (types.size() != spec.pieces.size()) {
    refuse(std::to_string(types.size()) + " token types for " + std::to_string(spec.pieces.size()) + " tokens", spec);
  }
  for (std::size_t id = 0; id < types.size(); ++id) {
    if (types[id] < 0 || types[id] > 6) refuse("the token type " + std::to_string(types[id]), spec);
    if (types[id] != 0) spec.kinds[id] = static_cast<PieceKind>(types[id]);  // 0 is "undefined"
  }
}

TokenId read_id(const Gguf& gguf, const std::string& name, const text::TokenizerSpec& spec) {
  const std::string key = "tokenizer.ggml." + name + "_token_id";
  if (!gguf.has(key)) return text::kNoToken;
  const std::int64_t id = gguf.get_i64(key);
  const bool optional = name != "bos" && name != "eos";
  if (optional && (id == -1 || id == 0xFFFFFFFF)) return text::kNoToken;  // how some writers say "none"
  if (id < 0 || static_cast<std::uint64_t>(id) >= spec.pieces.size()) {
    refuse(key + " is " + std::to_string(id) + ", with " + std::to_string(spec.pieces.size()) + " tokens", spec);
  }
  return static_cast<TokenId>(id);
}

void read_special(const Gguf& gguf, text::TokenizerSpec& spec) {
  spec.special.bos = read_id(gguf, "bos", spec);
  spec.special.eos = read_id(gguf, "eos", spec);
  spec.special.eot = read_id(gguf, "eot", spec);
  spec.special.unk = read_id(gguf, "unknown", spec);
  spec.special.pad = read_id(gguf, "padding", spec);
  const TokenId eom = read_id(gguf, "eom", spec);
  if (eom != text::kNoToken) spec.special.end_of_generation.push_back(eom);
  for (std::size_t id = 0; id < spec.pieces.size(); ++id) {
    const PieceKind kind = spec.kinds[id];
    const bool special = kind == PieceKind::kControl || kind == PieceKind::kUnknown;
    if ((!special && kind != PieceKind::kUserDefined) || spec.pieces[id].empty()) continue;
    spec.added_tokens.push_back(
        {.content = std::string(spec.pieces[id]), .id = static_cast<TokenId>(id), .special = special});
  }
}

void read_merges(const Gguf& gguf, text::TokenizerSpec& spec) {
  const GgufArray* merges = gguf.find_array("tokenizer.ggml.merges");
  if (merges == nullptr) refuse("no merges (tokenizer.ggml.merges) for a byte pair vocabulary", spec);
  spec.merges.reserve(merges->size());
  if (merges->size() == 0) return;
  for (const std::string_view line : gguf.string_array("tokenizer.ggml.merges")) {
    spec.merges.push_back(parse_merge(line, spec.where));
  }
}

void read_scores(const Gguf& gguf, text::TokenizerSpec& spec) {
  const std::vector<double> scores = gguf.number_array("tokenizer.ggml.scores");
  spec.scores.assign(scores.begin(), scores.end());
  spec.model = text::TokenizerSpec::Model::kScores;
  spec.alphabet = text::PieceAlphabet::kMetaspace;
  const bool prefix = gguf.get_bool("tokenizer.ggml.add_space_prefix", true);
  spec.normalizer.emplace_back(text::SentencePieceStep{
      .dummy_prefix = prefix, .remove_extra_spaces = false, .charsmap = nullptr, .user_defined = nullptr});
  spec.leading_space = prefix ? text::LeadingSpace::kDropOne : text::LeadingSpace::kKeep;
}

}  // namespace

TokenizerBundle tokenizer_from_gguf(const Gguf& gguf) {
  text::TokenizerSpec spec;
  spec.where = gguf.path().string();
  const auto model = gguf.find_string("tokenizer.ggml.model");
  if (!model) refuse("the file has no tokenizer (no tokenizer.ggml.model)", spec);
  const bool merges = *model == "gpt2";
  if (!merges && *model != "llama") {
    refuse("the tokenizer model (tokenizer.ggml.model) " + quote_name(*model) + " isn't supported", spec);
  }
  spec.pieces = gguf.string_array("tokenizer.ggml.tokens");
  read_kinds(gguf, spec);
  read_special(gguf, spec);
  bool add_bos = !merges;
  if (merges) {
    const std::string_view pre = gguf.get_string("tokenizer.ggml.pre", "gpt-2");
    set_pre_tokenizer(pre == "default" ? "gpt-2" : pre, spec);
    read_merges(gguf, spec);
    add_bos = spec.bpe.ignore_merges;  // Llama 3
  } else {
    read_scores(gguf, spec);
  }
  add_bos = gguf.get_bool("tokenizer.ggml.add_bos_token", add_bos);
  if (add_bos && spec.special.bos != text::kNoToken) spec.prefix = {spec.special.bos};
  const bool add_eos = gguf.get_bool("tokenizer.ggml.add_eos_token", false);
  if (add_eos && spec.special.eos != text::kNoToken) spec.suffix = {spec.special.eos};
  TokenizerSettings settings;
  settings.where = spec.where;
  if (const auto source = gguf.find_string("tokenizer.chat_template")) settings.chat_template = std::string(*source);
  apply_settings(spec, settings, true);
  return make_bundle(std::move(spec), std::move(settings));
}

}  // namespace backplane::formats

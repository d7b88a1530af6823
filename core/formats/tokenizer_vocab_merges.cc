// GPT-2's own pair of files, and other models' that use the same form.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/formats/tokenizer_json.h"
#include "core/formats/tokenizer_parts.h"
#include "core/formats/utf8.h"

namespace backplane::formats {
namespace {

void read_merge_lines(const MappedFile& file, text::TokenizerSpec& spec) {
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    spec.merges.push_back(parse_merge(line, file.path().string()));
  }
}

// Files of this form don't say how text is cut; the class of the tokenizer does.
void set_class(const TokenizerSettings& settings, text::TokenizerSpec& spec) {
  const std::string& name = settings.tokenizer_class;
  if (name.empty() || name == "GPT2Tokenizer" || name == "GPT2TokenizerFast") {
    spec.pre_tokenizer.emplace_back(text::ScannerStep{text::ScannerKind::kGpt2});
  } else if (name == "Qwen2Tokenizer" || name == "Qwen2TokenizerFast") {
    spec.normalizer.emplace_back(text::UnicodeStep{text::UnicodeForm::kNfc});
    spec.pre_tokenizer.emplace_back(text::ScannerStep{text::ScannerKind::kQwen2});
  } else {
    throw Error(ErrorCode::kBadFile, "the tokenizer class " + quote_name(name) + " isn't supported with such files",
                spec.where, "use the model's tokenizer.json");
  }
}

// Added tokens keep their place in the vocabulary or get the ids that the settings give them. `settings` must outlive
// the views in `spec`.
void add_tokens(const TokenizerSettings& settings, text::TokenizerSpec& spec) {
  for (const text::AddedToken& token : settings.added_tokens) {
    const auto id = static_cast<std::size_t>(token.id);
    if (token.content.empty()) continue;
    if (id > spec.pieces.size() + settings.added_tokens.size()) {
      json_refuse("the id of the added token " + quote_name(token.content) + " is far beyond the vocabulary",
                  spec.where);
    }
    if (id >= spec.pieces.size()) {
      spec.pieces.resize(id + 1);
      spec.kinds.resize(id + 1, text::PieceKind::kNormal);
    }
    if (!spec.pieces[id].empty() && spec.pieces[id] != token.content) {
      json_refuse("the id " + std::to_string(id) + " belongs to two tokens", spec.where);
    }
    spec.pieces[id] = token.content;
    spec.kinds[id] = token.special ? text::PieceKind::kControl : text::PieceKind::kUserDefined;
    spec.added_tokens.push_back(token);
  }
  for (const std::string_view name : {std::string_view(settings.bos_token), std::string_view(settings.eos_token),
                                      std::string_view(settings.unk_token), std::string_view(settings.pad_token),
                                      std::string_view("<|endoftext|>")}) {
    const text::TokenId id = find_piece(spec, name);
    if (id == text::kNoToken || spec.kinds[id] != text::PieceKind::kNormal) continue;
    spec.kinds[id] = text::PieceKind::kControl;
    spec.added_tokens.push_back({.content = std::string(name), .id = id, .special = true});
  }
}

}  // namespace

TokenizerBundle load_vocab_and_merges(const std::filesystem::path& vocab, const std::filesystem::path& merges,
                                      TokenizerSettings settings) {
  const MappedFile vocab_file(vocab), merges_file(merges);
  simdjson::dom::parser parser;
  JsonElement root;
  const auto bytes = vocab_file.bytes();
  const auto error = parser.parse(reinterpret_cast<const char*>(bytes.data()), bytes.size(), true).get(root);
  if (error != simdjson::SUCCESS) {
    json_refuse(std::string("broken JSON: ") + simdjson::error_message(error), vocab.string());
  }
  text::TokenizerSpec spec;
  spec.where = vocab.string();
  read_json_vocab(root, 0, spec);
  read_merge_lines(merges_file, spec);
  set_class(settings, spec);
  add_tokens(settings, spec);
  apply_settings(spec, settings, false);
  TokenizerSettings rest = settings;  // spec has views of the original
  return make_bundle(std::move(spec), std::move(rest));
}

}  // namespace backplane::formats

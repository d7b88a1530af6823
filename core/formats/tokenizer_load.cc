#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/formats/gguf.h"
#include "core/formats/tokenizer_parts.h"

namespace backplane::formats {
namespace {

namespace fs = std::filesystem;

enum class Content { kGguf, kJson, kOther };

Content look_at(const fs::path& path) {
  const MappedFile file(path);
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (bytes.empty()) throw Error(ErrorCode::kBadFile, "the file is empty", path.string());
  if (bytes.starts_with("GGUF")) return Content::kGguf;
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  const bool json = first != std::string_view::npos && (bytes[first] == '{' || bytes[first] == '[');
  return json ? Content::kJson : Content::kOther;  // a SentencePiece model starts with 0x0A, a length and a name
}

TokenizerBundle load_folder(const fs::path& folder) {
  const auto has = [&](const char* name) { return fs::is_regular_file(folder / name); };
  TokenizerSettings settings = read_tokenizer_settings(folder);
  if (has("tokenizer.json")) return load_tokenizer_json(folder / "tokenizer.json", std::move(settings));
  if (has("tokenizer.model")) return load_sentence_piece(folder / "tokenizer.model", std::move(settings));
  if (has("encoder.json") && has("vocab.bpe")) {
    return load_vocab_and_merges(folder / "encoder.json", folder / "vocab.bpe", std::move(settings));
  }
  if (has("vocab.json") && has("merges.txt")) {
    return load_vocab_and_merges(folder / "vocab.json", folder / "merges.txt", std::move(settings));
  }
  throw Error(
      ErrorCode::kBadFile, "no tokenizer in this folder", folder.string(),
      "a tokenizer.json, tokenizer.model, encoder.json with vocab.bpe, or vocab.json with merges.txt is needed");
}

}  // namespace

TokenizerBundle load_tokenizer(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return load_folder(path);
  switch (look_at(path)) {
    case Content::kGguf:
      return tokenizer_from_gguf(*Gguf::open(path));
    case Content::kJson:
      return load_tokenizer_json(path, read_tokenizer_settings(path.parent_path()));
    case Content::kOther:
      break;
  }
  return load_sentence_piece(path, read_tokenizer_settings(path.parent_path()));
}

}  // namespace backplane::formats

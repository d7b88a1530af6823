// Reads tokenizers, and the chat template that comes with them, from every kind of file models ship them in.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/text/tokenizer.h"

namespace backplane::formats {

class Gguf;

struct TokenizerBundle {
  std::shared_ptr<const text::Tokenizer> tokenizer;  // never null
  std::optional<std::string> chat_template;          // Jinja source
  std::string bos_token, eos_token;                  // their text for the template; may be empty
};

// `path` is a tokenizer.json, a SentencePiece tokenizer.model, a GGUF file (whole or only its vocabulary), or a folder
// with, in this order, tokenizer.json, tokenizer.model, encoder.json and vocab.bpe, or vocab.json and merges.txt. A
// file is recognized by its contents, not its name. From the folder come also tokenizer_config.json,
// generation_config.json and chat_template.jinja. Throws Error{kBadFile}: broken, or with a part that isn't supported,
// which the message names.
TokenizerBundle load_tokenizer(const std::filesystem::path& path);

// Throws Error{kBadFile}, also when the file has no tokenizer at all.
TokenizerBundle tokenizer_from_gguf(const Gguf& gguf);

}  // namespace backplane::formats

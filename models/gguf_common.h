// What the GGUF readers of several architectures share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "core/formats/gguf.h"
#include "models/decoder_spec.h"

namespace backplane::models {

// The metadata of one architecture: keys without their "llama." in front. Every read is remembered.
class GgufKeys {
 public:
  explicit GgufKeys(const formats::Gguf& gguf) : gguf_(gguf), prefix_(gguf.architecture() + ".") {}

  // Throw Error{kBadFile}: absent (without a fallback), of another kind, or beyond 31 bits.
  std::uint32_t u32(std::string_view key);
  std::uint32_t u32(std::string_view key, std::uint32_t fallback);
  double f64(std::string_view key);
  double f64(std::string_view key, double fallback);

  // To be called last: keys of this architecture that nobody read may change the result; they are an error naming them.
  // `ignored` ones don't; rope.* is read elsewhere.
  void refuse_unread(std::initializer_list<std::string_view> ignored) const;

 private:
  std::string full(std::string_view key);

  const formats::Gguf& gguf_;
  std::string prefix_;
  std::vector<std::string> read_;
};

struct GgufOptions {
  bool interleaved_rope = false;
  bool attention_bias = false;  // q, k, v must have one; otherwise each has one where the file has it
  bool qk_norm = false;
};
DecoderSpec llama_like_from_gguf(const formats::Gguf& gguf, const GgufOptions& options);

// Rows of the embedding; it must agree with the tokenizer's tokens where the file has them.
std::uint32_t vocabulary_rows(const formats::Gguf& gguf);
// 4096 at most: a forged count must not fill memory. The first missing tensor then ends it.
std::uint32_t layer_count(GgufKeys& keys);
// output.weight, or the embedding where the file has none.
MatrixRef output_matrix(const formats::Gguf& gguf, const DecoderSpec& spec);

}  // namespace backplane::models

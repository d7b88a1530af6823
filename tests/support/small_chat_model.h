// A GGUF Llama with random weights, a byte-level tokenizer and a chat template: all that `run` needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/gguf_builder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace backplane::test {

struct SmallChatModel {
  std::string architecture = "llama";
  std::uint32_t context = 256;
  bool tokenizer = true;
  bool chat_template = true;
  int eos = 257;  // kImEnd
};

// Its vocabulary: byte b is token b, then these.
inline constexpr int kImStart = 256, kImEnd = 257, kHi = 258, kSmallVocabulary = 259;

inline constexpr const char* kSmallTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// GPT-2's alphabet: printable bytes are themselves, the others follow from U+0100 on.
inline std::string byte_level_piece(unsigned byte) {
  const auto printable = [](unsigned b) { return (b > 32 && b < 127) || (b > 160 && b != 173); };
  unsigned code = byte;
  if (!printable(byte)) {
    code = 256;
    for (unsigned b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

inline void add_small_tokenizer(GgufBuilder& gguf, bool chat_template, int eos) {
  std::vector<std::string> pieces;
  std::vector<std::int32_t> kinds(kSmallVocabulary, 1);
  for (unsigned byte = 0; byte < 256; ++byte) pieces.push_back(byte_level_piece(byte));
  pieces.insert(pieces.end(), {"<|im_start|>", "<|im_end|>", "hi"});
  kinds[kImStart] = kinds[kImEnd] = 3;
  gguf.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "gpt-2");
  gguf.strings("tokenizer.ggml.tokens", pieces).strings("tokenizer.ggml.merges", {"h i"});
  gguf.array<std::int32_t>("tokenizer.ggml.token_type", 5, kinds);
  gguf.u32("tokenizer.ggml.bos_token_id", kImStart).u32("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(eos));
  gguf.boolean("tokenizer.ggml.add_bos_token", false);
  if (chat_template) gguf.string("tokenizer.chat_template", kSmallTemplate);
}

inline std::string small_chat_model(const SmallChatModel& model = {}) {
  constexpr std::uint64_t kHidden = 32, kKv = 16, kFfn = 64;
  TinyRandom random(11);
  GgufBuilder gguf;
  gguf.string("general.architecture", model.architecture);
  const auto key = [&](const char* name) { return model.architecture + "." + name; };
  gguf.u32(key("block_count"), 2).u32(key("embedding_length"), kHidden).u32(key("feed_forward_length"), kFfn);
  gguf.u32(key("attention.head_count"), 4).u32(key("attention.head_count_kv"), 2);
  gguf.u32(key("context_length"), model.context).f32(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  if (model.tokenizer) add_small_tokenizer(gguf, model.chat_template, model.eos);
  const auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    gguf.f32_tensor(name, {columns, rows}, tiny_values(random, rows * columns, 0.4f));
  };
  const auto norm = [&](const std::string& name) {
    gguf.f32_tensor(name, {kHidden}, tiny_values(random, kHidden, 0.1f, 1));
  };
  matrix("token_embd.weight", kSmallVocabulary, kHidden);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    norm(blk + "attn_norm.weight");
    matrix(blk + "attn_q.weight", kHidden, kHidden);
    matrix(blk + "attn_k.weight", kKv, kHidden);
    matrix(blk + "attn_v.weight", kKv, kHidden);
    matrix(blk + "attn_output.weight", kHidden, kHidden);
    norm(blk + "ffn_norm.weight");
    matrix(blk + "ffn_gate.weight", kFfn, kHidden);
    matrix(blk + "ffn_up.weight", kFfn, kHidden);
    matrix(blk + "ffn_down.weight", kHidden, kFfn);
  }
  norm("output_norm.weight");
  matrix("output.weight", kSmallVocabulary, kHidden);
  return gguf.build();
}

}  // namespace backplane::test

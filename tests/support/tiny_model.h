// Small models with random weights, written to files as real ones are.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/gguf_builder.h"
#include "tests/support/safetensors_builder.h"
#include "tests/support/temp_folder.h"

namespace backplane::test {

// ggml's numbers.
enum class TinyType : std::uint32_t { kF32 = 0, kF16 = 1, kQ5_0 = 6, kQ8_0 = 8 };

// A Llama, or with qk_norm a Qwen3: 4 heads over 2 KV heads, a hidden size of 32, a vocabulary of 96.
struct TinyLlama {
  std::uint32_t layers = 2;
  bool qk_norm = false;
  std::uint32_t window = 0;
  bool tied = false;
  TinyType type = TinyType::kF32;  // of the matrices
  std::uint32_t head_dim = 8;
  std::uint32_t context = 64;
};

// The same numbers on every machine.
class TinyRandom {
 public:
  explicit TinyRandom(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<std::uint32_t>(state_ >> 33);
  }
  float value(float size) { return size * (static_cast<float>(bits() % 20001) / 10000.0f - 1.0f); }

 private:
  std::uint64_t state_;
};

inline std::vector<float> tiny_values(TinyRandom& random, std::size_t count, float size, float middle = 0) {
  std::vector<float> values(count);
  for (float& v : values) v = middle + random.value(size);
  return values;
}

// `count` random values of a type as bytes, of about the size 0.2.
inline std::string tiny_data(TinyRandom& random, TinyType type, std::size_t count) {
  std::string bytes;
  const auto half = [&](std::uint16_t bits) { bytes.append(reinterpret_cast<const char*>(&bits), 2); };
  if (type == TinyType::kF32) {
    const auto values = tiny_values(random, count, 0.3f);
    return {reinterpret_cast<const char*>(values.data()), count * sizeof(float)};
  }
  if (type == TinyType::kF16) {  // exponents 2^-5 to 2^-2
    for (std::size_t i = 0; i < count; ++i) {
      half(static_cast<std::uint16_t>((random.bits() & 0x83ff) | (10 + random.bits() % 4) << 10));
    }
    return bytes;
  }
  const std::size_t packed = type == TinyType::kQ8_0 ? 32 : 20;
  for (std::size_t i = 0; i < count; i += 32) {
    half(static_cast<std::uint16_t>((type == TinyType::kQ8_0 ? 0x1800 : 0x2800) | (random.bits() & 0x1ff)));
    for (std::size_t b = 0; b < packed; ++b) bytes += static_cast<char>(random.bits());
  }
  return bytes;
}

inline std::filesystem::path write_tiny_llama(const TempFolder& folder, const TinyLlama& model = {}) {
  constexpr std::uint32_t kHidden = 32, kHeads = 4, kKvHeads = 2, kFfn = 64, kVocabulary = 96;
  const std::string arch = model.qk_norm ? "qwen3" : "llama";
  TinyRandom random(7);
  GgufBuilder gguf;
  gguf.string("general.architecture", arch).u32(arch + ".block_count", model.layers);
  gguf.u32(arch + ".embedding_length", kHidden).u32(arch + ".feed_forward_length", kFfn);
  gguf.u32(arch + ".attention.head_count", kHeads).u32(arch + ".attention.head_count_kv", kKvHeads);
  gguf.u32(arch + ".attention.key_length", model.head_dim).u32(arch + ".attention.value_length", model.head_dim);
  gguf.u32(arch + ".context_length", model.context).f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  gguf.f32(arch + ".rope.freq_base", 10000.0f);
  if (model.window) gguf.u32(arch + ".attention.sliding_window", model.window);
  const auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    gguf.tensor(name, static_cast<std::uint32_t>(model.type), {columns, rows},
                tiny_data(random, model.type, rows * columns));
  };
  const auto norm = [&](const std::string& name, std::uint64_t size) {
    gguf.f32_tensor(name, {size}, tiny_values(random, size, 0.3f, 1));
  };
  matrix("token_embd.weight", kVocabulary, kHidden);
  for (std::uint32_t i = 0; i < model.layers; ++i) {
    const std::string at = "blk." + std::to_string(i) + ".";
    norm(at + "attn_norm.weight", kHidden);
    matrix(at + "attn_q.weight", kHeads * model.head_dim, kHidden);
    matrix(at + "attn_k.weight", kKvHeads * model.head_dim, kHidden);
    matrix(at + "attn_v.weight", kKvHeads * model.head_dim, kHidden);
    if (model.qk_norm) norm(at + "attn_q_norm.weight", model.head_dim);
    if (model.qk_norm) norm(at + "attn_k_norm.weight", model.head_dim);
    matrix(at + "attn_output.weight", kHidden, kHeads * model.head_dim);
    norm(at + "ffn_norm.weight", kHidden);
    matrix(at + "ffn_gate.weight", kFfn, kHidden);
    matrix(at + "ffn_up.weight", kFfn, kHidden);
    matrix(at + "ffn_down.weight", kHidden, kFfn);
  }
  norm("output_norm.weight", kHidden);
  if (!model.tied) matrix("output.weight", kVocabulary, kHidden);
  return folder.write("tiny.gguf", gguf.build());
}

// A GPT-2 as Hugging Face stores it: matrices transposed, biases, learned positions, tied embedding.
inline std::filesystem::path write_tiny_gpt2(const TempFolder& folder) {
  constexpr std::uint64_t kHidden = 24, kVocabulary = 90, kPositions = 64;
  TinyRandom random(11);
  std::string header = "{", data;
  const auto tensor = [&](const std::string& name, std::vector<std::uint64_t> shape, float size, float middle = 0) {
    std::size_t count = 1;
    std::string sizes;
    for (const std::uint64_t n : shape) {
      count *= n;
      if (!sizes.empty()) sizes += ',';
      sizes += std::to_string(n);
    }
    const std::size_t begin = data.size();
    const auto values = tiny_values(random, count, size, middle);
    data.append(reinterpret_cast<const char*>(values.data()), count * sizeof(float));
    header += (begin == 0 ? "\"" : ",\"") + name + R"(":{"dtype":"F32","shape":[)" + sizes + R"(],"data_offsets":[)" +
              std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  };
  const auto norm = [&](const std::string& name) {
    tensor(name + ".weight", {kHidden}, 0.3f, 1);
    tensor(name + ".bias", {kHidden}, 0.1f);
  };
  const auto linear = [&](const std::string& name, std::uint64_t inputs, std::uint64_t outputs) {
    tensor(name + ".weight", {inputs, outputs}, 0.3f);
    tensor(name + ".bias", {outputs}, 0.1f);
  };
  tensor("wte.weight", {kVocabulary, kHidden}, 0.3f);
  tensor("wpe.weight", {kPositions, kHidden}, 0.2f);
  for (int i = 0; i < 2; ++i) {
    const std::string at = "h." + std::to_string(i) + ".";
    norm(at + "ln_1");
    linear(at + "attn.c_attn", kHidden, 3 * kHidden);
    linear(at + "attn.c_proj", kHidden, kHidden);
    norm(at + "ln_2");
    linear(at + "mlp.c_fc", kHidden, 4 * kHidden);
    linear(at + "mlp.c_proj", 4 * kHidden, kHidden);
  }
  norm("ln_f");
  folder.write("gpt2/model.safetensors", safetensors_file(header + "}", data));
  folder.write("gpt2/config.json", R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 90,
      "n_embd": 24, "n_positions": 64, "n_ctx": 64, "n_head": 3, "n_layer": 2, "layer_norm_epsilon": 1e-05,
      "activation_function": "gelu_new"})");
  return folder.path() / "gpt2";
}

}  // namespace backplane::test

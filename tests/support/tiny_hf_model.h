// Small models with random weights, as Hugging Face stores them: config.json beside one safetensors file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/tiny_model.h"

namespace backplane::test {

enum class TinyHf {
  kQwen2,   // 2 heads over 1 of 16; biases on q, k and v; the upper of its two layers slides: two groups of KV pages
  kMistral  // 4 heads over 2 of 8; both layers slide; the head is the embedding
};

// A hidden size of 32, a vocabulary of 96, windows of 7 tokens.
inline std::filesystem::path write_tiny_hf(const TempFolder& folder, TinyHf kind) {
  constexpr std::uint64_t kHidden = 32, kKv = 16, kFfn = 64, kVocabulary = 96;
  const bool qwen2 = kind == TinyHf::kQwen2;
  TinyRandom random(qwen2 ? 13 : 17);
  std::string header = "{", data;
  const auto tensor = [&](const std::string& name, const std::string& shape, const std::vector<float>& values) {
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    header += (begin == 0 ? "\"" : ",\"") + name + R"(":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" +
              std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  };
  const auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    tensor(name, std::to_string(rows) + "," + std::to_string(columns), tiny_values(random, rows * columns, 0.3f));
  };
  const auto vector = [&](const std::string& name, std::uint64_t size, float middle) {
    tensor(name, std::to_string(size), tiny_values(random, size, 0.3f, middle));
  };
  matrix("model.embed_tokens.weight", kVocabulary, kHidden);
  for (int i = 0; i < 2; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".";
    vector(at + "input_layernorm.weight", kHidden, 1);
    for (const std::string part : {"q", "k", "v"}) {
      const std::uint64_t rows = part == "q" ? kHidden : kKv;
      matrix(at + "self_attn." + part + "_proj.weight", rows, kHidden);
      if (qwen2) vector(at + "self_attn." + part + "_proj.bias", rows, 0);
    }
    matrix(at + "self_attn.o_proj.weight", kHidden, kHidden);
    vector(at + "post_attention_layernorm.weight", kHidden, 1);
    matrix(at + "mlp.gate_proj.weight", kFfn, kHidden);
    matrix(at + "mlp.up_proj.weight", kFfn, kHidden);
    matrix(at + "mlp.down_proj.weight", kHidden, kFfn);
  }
  vector("model.norm.weight", kHidden, 1);
  if (qwen2) matrix("lm_head.weight", kVocabulary, kHidden);
  folder.write("model.safetensors", safetensors_file(header + "}", data));
  const std::string own =
      qwen2 ? R"("architectures": ["Qwen2ForCausalLM"], "use_sliding_window": true, "max_window_layers": 1,
      "num_attention_heads": 2, "num_key_value_heads": 1)"
            : R"("architectures": ["MistralForCausalLM"], "tie_word_embeddings": true,
      "num_attention_heads": 4, "num_key_value_heads": 2)";
  folder.write("config.json", "{" + own + R"(, "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64,
      "num_hidden_layers": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "sliding_window": 7})");
  return folder.path();
}

}  // namespace backplane::test

// Qwen2 and Qwen2.5: Llama with biases on q, k and v; the upper layers may slide.
#include "models/gguf_common.h"
#include "models/hf_common.h"
#include "models/registry.h"

namespace backplane::models {
namespace {

DecoderSpec from_huggingface(const formats::HuggingFaceFolder& folder) {
  const formats::HfConfig config = folder.config();
  LlamaOptions options;
  options.attention_bias = true;
  options.explicit_head_dim = false;
  DecoderSpec spec = llama_like_from_config(config, options);
  if (config.boolean("tie_word_embeddings", false)) spec.head.weight = spec.embedding;
  // sliding_window counts only when it is switched on.
  const std::uint32_t window = u32(config, "sliding_window", 0);
  const bool on = config.boolean("use_sliding_window", false);
  const std::uint32_t from = u32(config, "max_window_layers", 28);
  set_windows(
      config, spec, on ? window : 0, [](std::uint32_t layer, std::uint32_t first) { return layer >= first; },
      on ? from : UINT32_MAX);
  refuse_unread(config);
  return spec;
}

DecoderSpec from_gguf(const formats::Gguf& gguf) {
  GgufOptions options;
  options.attention_bias = true;
  return llama_like_from_gguf(gguf, options);
}

}  // namespace

Architecture qwen2() { return {"qwen2", {"Qwen2ForCausalLM", "qwen2"}, from_gguf, from_huggingface}; }

}  // namespace backplane::models

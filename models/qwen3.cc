// Qwen3: no biases, a norm on each query and key head, a head size of its own.
#include "models/gguf_common.h"
#include "models/hf_common.h"
#include "models/registry.h"

namespace backplane::models {
namespace {

DecoderSpec from_huggingface(const formats::HuggingFaceFolder& folder) {
  const formats::HfConfig config = folder.config();
  LlamaOptions options;
  options.attention_bias = options.output_bias = config.boolean("attention_bias", false);
  options.qk_norm = true;
  DecoderSpec spec = llama_like_from_config(config, options);
  if (config.boolean("tie_word_embeddings", false)) spec.head.weight = spec.embedding;
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
  options.qk_norm = true;
  return llama_like_from_gguf(gguf, options);
}

}  // namespace

Architecture qwen3() { return {"qwen3", {"Qwen3ForCausalLM", "qwen3"}, from_gguf, from_huggingface}; }

}  // namespace backplane::models

// Llama 1 to 3 and what is built like it (SmolLM2, TinyLlama, ...); Mistral, which adds a sliding window.
#include "core/base/error.h"
#include "models/gguf_common.h"
#include "models/hf_common.h"
#include "models/registry.h"

namespace backplane::models {
namespace {

DecoderSpec llama_from_huggingface(const formats::HuggingFaceFolder& folder) {
  const formats::HfConfig config = folder.config();
  LlamaOptions options;
  options.attention_bias = options.output_bias = config.boolean("attention_bias", false);
  options.mlp_bias = config.boolean("mlp_bias", false);
  DecoderSpec spec = llama_like_from_config(config, options);
  tie_head(config, spec);
  refuse_unread(config);
  return spec;
}

DecoderSpec mistral_from_huggingface(const formats::HuggingFaceFolder& folder) {
  const formats::HfConfig config = folder.config();
  DecoderSpec spec = llama_like_from_config(config, {});
  tie_head(config, spec);
  const std::uint32_t window = u32(config, "sliding_window", 0);
  set_windows(
      config, spec, window, [](std::uint32_t, std::uint32_t slides) { return slides != 0; }, window);
  refuse_unread(config);
  return spec;
}

// The converter permutes the rows of q and k of this architecture so that pairs are neighbors.
DecoderSpec llama_from_gguf(const formats::Gguf& gguf) {
  GgufOptions options;
  options.interleaved_rope = true;
  return llama_like_from_gguf(gguf, options);
}

}  // namespace

Architecture llama() { return {"llama", {"LlamaForCausalLM", "llama"}, llama_from_gguf, llama_from_huggingface}; }

Architecture mistral() {
  // GGUF files of Mistral say "llama".
  return {"mistral", {"MistralForCausalLM", "mistral"}, nullptr, mistral_from_huggingface};
}

}  // namespace backplane::models

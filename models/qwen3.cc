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
  tie_head(config, spec);
  set_switched_windows(config, spec);
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

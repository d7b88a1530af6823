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
  tie_head(config, spec);
  set_switched_windows(config, spec);
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

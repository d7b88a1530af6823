// What the config.json readers of several architectures share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/formats/hf_folder.h"
#include "models/decoder_spec.h"

namespace backplane::models {

// Throws Error{kBadFile} when the value doesn't fit 32 bits.
std::uint32_t u32(const formats::HfConfig& config, std::string_view key);
std::uint32_t u32(const formats::HfConfig& config, std::string_view key, std::uint64_t fallback);

// BP_ACT_* of "silu", "gelu_new" and so on; an unknown name is Error{kBadFile}.
std::uint32_t activation_of(const formats::HfConfig& config, std::string_view name);

// What Llama and its relatives have in common; rope and layers included, biases by the flags.
struct LlamaOptions {
  bool attention_bias = false;  // q, k, v
  bool output_bias = false;     // o
  bool mlp_bias = false;
  bool qk_norm = false;           // q_norm and k_norm of each head
  bool explicit_head_dim = true;  // config.json may have head_dim
};
DecoderSpec llama_like_from_config(const formats::HfConfig& config, const LlamaOptions& options);

// The window of each layer: from layer_types where the config has them, else by the rule given.
void set_windows(const formats::HfConfig& config, DecoderSpec& spec, std::uint32_t window,
                 bool (*slides)(std::uint32_t layer, std::uint32_t max_window_layers), std::uint32_t max_window_layers);

// Qwen's: sliding_window counts only with use_sliding_window, for the layers from max_window_layers on.
void set_switched_windows(const formats::HfConfig& config, DecoderSpec& spec);

// The head is the embedding where tie_word_embeddings says so.
void tie_head(const formats::HfConfig& config, DecoderSpec& spec);

// To be called last: keys that nobody read may change the result, so they are an error naming them, unless they are
// known to concern training, generation or bookkeeping.
void refuse_unread(const formats::HfConfig& config);

}  // namespace backplane::models

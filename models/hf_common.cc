#include "models/hf_common.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "models/rope_tables.h"

namespace backplane::models {
namespace {

using formats::HfConfig;

// None of these changes a forward pass: names, training, generation, output options.
constexpr std::array kBookkeeping = {"_name_or_path",
                                     "_attn_implementation",
                                     "add_cross_attention",
                                     "architectures",
                                     "attention_dropout",
                                     "attn_pdrop",
                                     "auto_map",
                                     "bad_words_ids",
                                     "begin_suppress_tokens",
                                     "bos_token_id",
                                     "chunk_size_feed_forward",
                                     "cross_attention_hidden_size",
                                     "decoder_start_token_id",
                                     "diversity_penalty",
                                     "do_sample",
                                     "dtype",
                                     "early_stopping",
                                     "embd_pdrop",
                                     "encoder_no_repeat_ngram_size",
                                     "eos_token_id",
                                     "exponential_decay_length_penalty",
                                     "finetuning_task",
                                     "forced_bos_token_id",
                                     "forced_eos_token_id",
                                     "gradient_checkpointing",
                                     "id2label",
                                     "initializer_range",
                                     "is_decoder",
                                     "is_encoder_decoder",
                                     "label2id",
                                     "length_penalty",
                                     "max_length",
                                     "min_length",
                                     "model_type",
                                     "n_ctx",
                                     "no_repeat_ngram_size",
                                     "num_beam_groups",
                                     "num_beams",
                                     "num_return_sequences",
                                     "output_attentions",
                                     "output_hidden_states",
                                     "output_scores",
                                     "pad_token_id",
                                     "prefix",
                                     "pretraining_tp",
                                     "problem_type",
                                     "remove_invalid_values",
                                     "reorder_and_upcast_attn",
                                     "repetition_penalty",
                                     "resid_pdrop",
                                     "return_dict",
                                     "return_dict_in_generate",
                                     "sep_token_id",
                                     "summary_activation",
                                     "summary_first_dropout",
                                     "summary_proj_to_labels",
                                     "summary_type",
                                     "summary_use_proj",
                                     "suppress_tokens",
                                     "task_specific_params",
                                     "temperature",
                                     "tf_legacy_loss",
                                     "tie_encoder_decoder",
                                     "tokenizer_class",
                                     "top_k",
                                     "top_p",
                                     "torch_dtype",
                                     "torchscript",
                                     "transformers_version",
                                     "transformers.js_config",
                                     "typical_p",
                                     "unsloth_fixed",
                                     "unsloth_version",
                                     "use_bfloat16",
                                     "use_cache"};

}  // namespace

std::uint32_t u32(const HfConfig& config, std::string_view key) {
  const std::uint64_t value = config.u64(key);
  if (value > std::numeric_limits<std::int32_t>::max()) {
    throw Error(ErrorCode::kBadFile, fmt::format("{} is {}, which no model has", key, value), config.where());
  }
  return static_cast<std::uint32_t>(value);
}

std::uint32_t u32(const HfConfig& config, std::string_view key, std::uint64_t fallback) {
  return config.has(key) ? u32(config, key) : static_cast<std::uint32_t>(fallback);
}

std::uint32_t activation_of(const HfConfig& config, std::string_view name) {
  if (name == "silu" || name == "swish") return BP_ACT_SILU;
  if (name == "relu") return BP_ACT_RELU;
  if (name == "gelu") return BP_ACT_GELU_ERF;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return BP_ACT_GELU_TANH;
  throw Error(ErrorCode::kBadFile, fmt::format("unknown activation {}", name), config.where(),
              "known ones are silu, relu, gelu, gelu_new, gelu_pytorch_tanh");
}

namespace {

LinearRef linear(const std::string& name, std::uint64_t rows, std::uint64_t columns, bool bias) {
  LinearRef ref;
  ref.weight = {name + ".weight", rows, columns, 0, false};
  if (bias) ref.bias = {name + ".bias", rows, 0};
  return ref;
}

NormRef norm(const std::string& name, std::uint64_t size) { return {{name + ".weight", size, 0}, {}}; }

void read_sizes(const HfConfig& config, const LlamaOptions& options, DecoderSpec& spec) {
  spec.vocab_size = u32(config, "vocab_size");
  spec.hidden = u32(config, "hidden_size");
  spec.heads = u32(config, "num_attention_heads");
  spec.kv_heads = u32(config, "num_key_value_heads", spec.heads);
  spec.ffn = u32(config, "intermediate_size");
  spec.max_context = u32(config, "max_position_embeddings");
  if (spec.heads == 0) throw Error(ErrorCode::kBadFile, "num_attention_heads is 0", config.where());
  spec.head_dim = spec.hidden / spec.heads;
  if (options.explicit_head_dim) spec.head_dim = u32(config, "head_dim", spec.head_dim);
  spec.value_dim = spec.head_dim;
  spec.norm_eps = config.f64("rms_norm_eps", 1e-6);
  spec.activation = activation_of(config, config.string("hidden_act", "silu"));
}

LayerSpec read_layer(const DecoderSpec& spec, const LlamaOptions& options, std::uint32_t index) {
  const std::string at = fmt::format("model.layers.{}.", index);
  const std::uint64_t nq = std::uint64_t{spec.heads} * spec.head_dim, nk = std::uint64_t{spec.kv_heads} * spec.head_dim;
  LayerSpec layer;
  layer.attention_norm = norm(at + "input_layernorm", spec.hidden);
  layer.q = linear(at + "self_attn.q_proj", nq, spec.hidden, options.attention_bias);
  layer.k = linear(at + "self_attn.k_proj", nk, spec.hidden, options.attention_bias);
  layer.v = linear(at + "self_attn.v_proj", nk, spec.hidden, options.attention_bias);
  if (options.qk_norm) {
    layer.q_norm = norm(at + "self_attn.q_norm", spec.head_dim);
    layer.k_norm = norm(at + "self_attn.k_norm", spec.head_dim);
  }
  layer.o = linear(at + "self_attn.o_proj", spec.hidden, nq, options.output_bias);
  layer.mlp_norm = norm(at + "post_attention_layernorm", spec.hidden);
  layer.gate = linear(at + "mlp.gate_proj", spec.ffn, spec.hidden, options.mlp_bias);
  layer.up = linear(at + "mlp.up_proj", spec.ffn, spec.hidden, options.mlp_bias);
  layer.down = linear(at + "mlp.down_proj", spec.hidden, spec.ffn, options.mlp_bias);
  layer.rope = 0;
  layer.attention_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim));
  return layer;
}

}  // namespace

DecoderSpec llama_like_from_config(const HfConfig& config, const LlamaOptions& options) {
  DecoderSpec spec;
  read_sizes(config, options, spec);
  const std::uint32_t layers = u32(config, "num_hidden_layers");
  RopeSpec rope;
  rope.settings = formats::rope_settings_from_config(config).full;
  rope.n_dims = static_cast<std::uint32_t>(spec.head_dim * rope.settings.partial_rotary_factor);
  spec.ropes.push_back(rope);
  spec.rope_context = spec.max_context;
  spec.max_context = stretched_context(rope.settings, spec.max_context);
  spec.embedding = {"model.embed_tokens.weight", spec.vocab_size, spec.hidden, 0, false};
  // A forged number of layers must not fill memory: the first missing tensor ends it in check_spec.
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(layers, 4096); ++i)
    spec.layers.push_back(read_layer(spec, options, i));
  spec.final_norm = norm("model.norm", spec.hidden);
  spec.head.weight = {"lm_head.weight", spec.vocab_size, spec.hidden, 0, false};
  return spec;
}

void set_windows(const HfConfig& config, DecoderSpec& spec, std::uint32_t window,
                 bool (*slides)(std::uint32_t, std::uint32_t), std::uint32_t max_window_layers) {
  const std::vector<std::string> types = config.strings("layer_types");
  if (!types.empty() && types.size() != spec.layers.size()) {
    throw Error(ErrorCode::kBadFile,
                fmt::format("layer_types has {} entries for {} layers", types.size(), spec.layers.size()),
                config.where());
  }
  for (std::uint32_t i = 0; i < spec.layers.size(); ++i) {
    bool sliding = slides(i, max_window_layers);
    if (!types.empty()) {
      if (types[i] != "full_attention" && types[i] != "sliding_attention") {
        throw Error(ErrorCode::kBadFile, fmt::format("unknown layer type {}", types[i]), config.where());
      }
      sliding = types[i] == "sliding_attention";
    }
    if (sliding && window == 0) {
      throw Error(ErrorCode::kBadFile, "layers slide but there is no sliding_window", config.where());
    }
    spec.layers[i].window = sliding ? window : 0;
  }
}

void set_switched_windows(const HfConfig& config, DecoderSpec& spec) {
  const std::uint32_t window = u32(config, "sliding_window", 0);
  const bool on = config.boolean("use_sliding_window", false);
  const std::uint32_t from = u32(config, "max_window_layers", 28);
  const auto slides = [](std::uint32_t layer, std::uint32_t first) { return layer >= first; };
  set_windows(config, spec, on ? window : 0, slides, on ? from : UINT32_MAX);
}

void tie_head(const HfConfig& config, DecoderSpec& spec) {
  if (config.boolean("tie_word_embeddings", false)) spec.head.weight = spec.embedding;
}

void refuse_unread(const HfConfig& config) {
  for (const std::string& key : config.unread_keys()) {
    if (std::find(kBookkeeping.begin(), kBookkeeping.end(), key) != kBookkeeping.end()) continue;
    const auto& document = config.document();
    const auto it = document.find(key);
    const bool off = it != document.end() && (it->is_null() || (it->is_boolean() && !it->get<bool>()));
    if (off) continue;  // a feature that is switched off
    throw Error(ErrorCode::kBadFile, fmt::format("unknown setting {}", key), config.where(),
                "it may change the model's results; remove it only if you know that it doesn't");
  }
}

}  // namespace backplane::models

// GPT-2: learned positions, LayerNorm with biases, one matrix for q, k and v, no gate. Hub checkpoints store matrices
// transposed and may lack the "transformer." in front of names.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "models/gguf_common.h"
#include "models/hf_common.h"
#include "models/registry.h"

namespace backplane::models {
namespace {

struct Names {
  std::string embedding, positions, layer, final_norm;
  std::string attention_norm, qkv, o, mlp_norm, up, down;  // after the layer's prefix
};

NormRef norm(const std::string& name, std::uint64_t size) {
  return {{name + ".weight", size, 0}, {name + ".bias", size, 0}};
}

LinearRef linear(const std::string& name, std::uint64_t rows, std::uint64_t columns, bool transposed) {
  return {{name + ".weight", rows, columns, 0, transposed}, {name + ".bias", rows, 0}};
}

void add_layers(DecoderSpec& spec, const Names& names, std::uint32_t layers, bool transposed) {
  const std::uint64_t h = spec.hidden;
  spec.embedding = {names.embedding, spec.vocab_size, h, 0, false};
  spec.positions = {names.positions, spec.max_context, h, 0, false};
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(layers, 4096); ++i) {
    const std::string at = fmt::format(fmt::runtime(names.layer), i);
    LayerSpec layer;
    layer.attention_norm = norm(at + names.attention_norm, h);
    layer.qkv = linear(at + names.qkv, 3 * h, h, transposed);
    layer.o = linear(at + names.o, h, h, transposed);
    layer.mlp_norm = norm(at + names.mlp_norm, h);
    layer.up = linear(at + names.up, spec.ffn, h, transposed);
    layer.down = linear(at + names.down, h, spec.ffn, transposed);
    layer.attention_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim));
    spec.layers.push_back(layer);
  }
  spec.final_norm = norm(names.final_norm, h);
}

void set_heads(DecoderSpec& spec, std::uint32_t heads, const std::string& where) {
  if (heads == 0 || spec.hidden % heads != 0) {
    throw Error(ErrorCode::kBadFile, "the hidden size is not a multiple of the number of heads", where);
  }
  spec.heads = spec.kv_heads = heads;
  spec.head_dim = spec.value_dim = spec.hidden / heads;
  spec.norm_kind = BP_NORM_LAYER;
  spec.context_is_hard = true;
}

DecoderSpec from_huggingface(const formats::HuggingFaceFolder& folder) {
  const formats::HfConfig config = folder.config();
  DecoderSpec spec;
  spec.vocab_size = u32(config, "vocab_size");
  spec.hidden = u32(config, "n_embd");
  spec.max_context = u32(config, "n_positions");
  spec.ffn = u32(config, "n_inner", 4 * std::uint64_t{spec.hidden});
  spec.norm_eps = config.f64("layer_norm_epsilon", 1e-5);
  spec.activation = activation_of(config, config.string("activation_function", "gelu_new"));
  set_heads(spec, u32(config, "n_head"), config.where());
  const std::string prefix = folder.find("transformer.wte.weight") ? "transformer." : "";
  const Names names{prefix + "wte.weight", prefix + "wpe.weight", prefix + "h.{}.", prefix + "ln_f", "ln_1",
                    "attn.c_attn",         "attn.c_proj",         "ln_2",           "mlp.c_fc",      "mlp.c_proj"};
  add_layers(spec, names, u32(config, "n_layer"), true);
  const bool scaled = config.boolean("scale_attn_weights", true);
  const bool by_layer = config.boolean("scale_attn_by_inverse_layer_idx", false);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (!scaled) spec.layers[i].attention_scale = 1;
    if (by_layer) spec.layers[i].attention_scale /= static_cast<double>(i + 1);
  }
  spec.head.weight = spec.embedding;
  if (!config.boolean("tie_word_embeddings", true)) {
    spec.head.weight = {"lm_head.weight", spec.vocab_size, spec.hidden, 0, false};
  }
  refuse_unread(config);
  return spec;
}

DecoderSpec from_gguf(const formats::Gguf& gguf) {
  GgufKeys keys(gguf);
  DecoderSpec spec;
  spec.vocab_size = vocabulary_rows(gguf);
  spec.hidden = keys.u32("embedding_length");
  spec.max_context = keys.u32("context_length");
  spec.ffn = keys.u32("feed_forward_length");
  spec.norm_eps = keys.f64("attention.layer_norm_epsilon");
  spec.activation = BP_ACT_GELU_TANH;
  set_heads(spec, keys.u32("attention.head_count"), gguf.path().string());
  const Names names{"token_embd.weight", "position_embd.weight", "blk.{}.",  "output_norm", "attn_norm",
                    "attn_qkv",          "attn_output",          "ffn_norm", "ffn_up",      "ffn_down"};
  add_layers(spec, names, layer_count(keys), false);
  spec.head.weight = output_matrix(gguf, spec);
  if (keys.u32("attention.head_count_kv", spec.heads) != spec.heads) {
    throw Error(ErrorCode::kBadFile, "GPT-2 with fewer KV heads than heads", gguf.path().string());
  }
  keys.refuse_unread({"vocab_size", "tensor_data_layout", "rope.dimension_count"});
  return spec;
}

}  // namespace

Architecture gpt2() { return {"gpt2", {"GPT2LMHeadModel", "GPT2Model", "gpt2"}, from_gguf, from_huggingface}; }

}  // namespace backplane::models

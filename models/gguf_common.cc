#include "models/gguf_common.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/formats/gguf_rope.h"
#include "models/rope_tables.h"

namespace backplane::models {
namespace {

using formats::Gguf;

std::uint32_t narrow(const Gguf& gguf, std::string_view key, std::uint64_t value) {
  if (value > std::numeric_limits<std::int32_t>::max()) {
    throw Error(ErrorCode::kBadFile, fmt::format("{} is {}, which no model has", key, value), gguf.path().string(),
                "the file is broken");
  }
  return static_cast<std::uint32_t>(value);
}

LinearRef linear(const Gguf& gguf, const std::string& name, std::uint64_t rows, std::uint64_t columns,
                 bool need_bias = false) {
  LinearRef ref;
  ref.weight = {name + ".weight", rows, columns, 0, false};
  if (need_bias || gguf.find(name + ".bias")) ref.bias = {name + ".bias", rows, 0};
  return ref;
}

NormRef norm(const std::string& name, std::uint64_t size) { return {{name + ".weight", size, 0}, {}}; }

LayerSpec read_layer(const Gguf& gguf, const DecoderSpec& spec, const GgufOptions& options, std::uint32_t index) {
  const std::string at = fmt::format("blk.{}.", index);
  const std::uint64_t nq = std::uint64_t{spec.heads} * spec.head_dim, nk = std::uint64_t{spec.kv_heads} * spec.head_dim;
  const std::uint64_t nv = std::uint64_t{spec.kv_heads} * spec.value_dim,
                      no = std::uint64_t{spec.heads} * spec.value_dim;
  LayerSpec layer;
  layer.attention_norm = norm(at + "attn_norm", spec.hidden);
  layer.q = linear(gguf, at + "attn_q", nq, spec.hidden, options.attention_bias);
  layer.k = linear(gguf, at + "attn_k", nk, spec.hidden, options.attention_bias);
  layer.v = linear(gguf, at + "attn_v", nv, spec.hidden, options.attention_bias);
  if (options.qk_norm) {
    layer.q_norm = norm(at + "attn_q_norm", spec.head_dim);
    layer.k_norm = norm(at + "attn_k_norm", spec.head_dim);
  }
  layer.o = linear(gguf, at + "attn_output", spec.hidden, no);
  layer.mlp_norm = norm(at + "ffn_norm", spec.hidden);
  layer.gate = linear(gguf, at + "ffn_gate", spec.ffn, spec.hidden);
  layer.up = linear(gguf, at + "ffn_up", spec.ffn, spec.hidden);
  layer.down = linear(gguf, at + "ffn_down", spec.hidden, spec.ffn);
  layer.rope = 0;
  layer.attention_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim));
  return layer;
}

}  // namespace

std::string GgufKeys::full(std::string_view key) {
  read_.push_back(prefix_ + std::string(key));
  return read_.back();
}

std::uint32_t GgufKeys::u32(std::string_view key) {
  const std::string name = full(key);
  return narrow(gguf_, name, gguf_.get_u64(name));
}

std::uint32_t GgufKeys::u32(std::string_view key, std::uint32_t fallback) {
  const std::string name = full(key);
  return narrow(gguf_, name, gguf_.get_u64(name, fallback));
}

double GgufKeys::f64(std::string_view key) { return gguf_.get_f64(full(key)); }
double GgufKeys::f64(std::string_view key, double fallback) { return gguf_.get_f64(full(key), fallback); }

void GgufKeys::refuse_unread(std::initializer_list<std::string_view> ignored) const {
  const std::string rope = prefix_ + "rope.";
  for (const formats::GgufEntry& entry : gguf_.entries()) {
    if (!entry.key.starts_with(prefix_) || entry.key.starts_with(rope)) continue;
    if (std::find(read_.begin(), read_.end(), entry.key) != read_.end()) continue;
    const std::string_view rest = entry.key.substr(prefix_.size());
    if (std::find(ignored.begin(), ignored.end(), rest) != ignored.end()) continue;
    throw Error(ErrorCode::kBadFile, fmt::format("unknown setting {}", entry.key), gguf_.path().string(),
                "it may change the model's results: this variant is not supported");
  }
}

std::uint32_t vocabulary_rows(const Gguf& gguf) {
  const formats::TensorInfo& embedding = gguf.tensor("token_embd.weight");
  const std::uint64_t rows = embedding.shape.empty() ? 0 : embedding.shape[0];
  if (const formats::GgufArray* tokens = gguf.find_array("tokenizer.ggml.tokens"); tokens && tokens->size() != rows) {
    throw Error(ErrorCode::kBadFile, fmt::format("token_embd.weight has {} rows for {} tokens", rows, tokens->size()),
                gguf.path().string(), "the file is broken");
  }
  return narrow(gguf, "token_embd.weight", rows);
}

std::uint32_t layer_count(GgufKeys& keys) { return std::min<std::uint32_t>(keys.u32("block_count"), 4096); }

MatrixRef output_matrix(const Gguf& gguf, const DecoderSpec& spec) {
  if (!gguf.find("output.weight")) return spec.embedding;
  return {"output.weight", spec.vocab_size, spec.hidden, 0, false};
}

DecoderSpec llama_like_from_gguf(const Gguf& gguf, const GgufOptions& options) {
  GgufKeys keys(gguf);
  DecoderSpec spec;
  spec.vocab_size = vocabulary_rows(gguf);
  spec.hidden = keys.u32("embedding_length");
  spec.heads = keys.u32("attention.head_count");
  spec.kv_heads = keys.u32("attention.head_count_kv", spec.heads);
  spec.ffn = keys.u32("feed_forward_length");
  spec.max_context = keys.u32("context_length");
  spec.norm_eps = keys.f64("attention.layer_norm_rms_epsilon");
  if (spec.heads == 0) throw Error(ErrorCode::kBadFile, "attention.head_count is 0", gguf.path().string());
  spec.head_dim = keys.u32("attention.key_length", spec.hidden / spec.heads);
  spec.value_dim = keys.u32("attention.value_length", spec.head_dim);
  const std::uint32_t window = keys.u32("attention.sliding_window", 0);
  RopeSpec rope;
  rope.settings = formats::rope_settings_from_gguf(gguf, gguf.architecture()).full;
  rope.n_dims = static_cast<std::uint32_t>(rope.settings.rotary_dimensions.value_or(spec.head_dim));
  rope.interleaved = options.interleaved_rope;
  spec.ropes.push_back(rope);
  spec.rope_context = spec.max_context;
  spec.max_context = stretched_context(rope.settings, spec.max_context);
  spec.embedding = {"token_embd.weight", spec.vocab_size, spec.hidden, 0, false};
  const std::uint32_t layers = layer_count(keys);
  for (std::uint32_t i = 0; i < layers; ++i) {
    spec.layers.push_back(read_layer(gguf, spec, options, i));
    spec.layers.back().window = window;
  }
  spec.final_norm = norm("output_norm", spec.hidden);
  spec.head.weight = output_matrix(gguf, spec);
  // An expert count of 0 says that there are none.
  if (keys.u32("expert_count", 0) != 0) {
    throw Error(ErrorCode::kBadFile, "a mixture of experts, which is not supported", gguf.path().string());
  }
  keys.refuse_unread({"vocab_size", "expert_used_count", "tensor_data_layout"});
  return spec;
}

}  // namespace backplane::models

#include "models/check.h"

#include <fmt/format.h>

#include <set>

#include "core/base/error.h"

namespace backplane::models {
namespace {

class Checker {
 public:
  Checker(const DecoderSpec& spec, const formats::Container& container) : spec_(spec), container_(container) {}

  void run() {
    sizes();
    matrix(spec_.embedding);
    matrix(spec_.positions);
    for (const LayerSpec& layer : spec_.layers) {
      for (const LinearRef* l :
           {&layer.q, &layer.k, &layer.v, &layer.qkv, &layer.o, &layer.gate, &layer.up, &layer.down}) {
        linear(*l);
      }
      for (const NormRef* n : {&layer.attention_norm, &layer.q_norm, &layer.k_norm, &layer.attention_post_norm,
                               &layer.mlp_norm, &layer.mlp_post_norm}) {
        norm(*n);
      }
    }
    norm(spec_.final_norm);
    linear(spec_.head);
    unused();
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& todo = "") const {
    throw Error(ErrorCode::kBadFile, what, container_.path().string(), todo);
  }

  void sizes() const {
    const auto need = [&](bool good, std::string_view what) {
      if (!good)
        refuse(fmt::format("the model's sizes can't be: {}", what),
               "the file is broken or not made for this architecture");
    };
    need(spec_.vocab_size > 0, "no vocabulary");
    need(spec_.hidden > 0, "a hidden size of 0");
    need(!spec_.layers.empty(), "no layers");
    need(spec_.heads > 0 && spec_.kv_heads > 0, "no attention heads");
    need(spec_.heads % spec_.kv_heads == 0, "heads that aren't a multiple of KV heads");
    need(spec_.head_dim > 0 && spec_.value_dim > 0, "a head size of 0");
    need(spec_.ffn > 0, "a feed-forward size of 0");
    need(spec_.max_context > 0, "a context of 0");
    need(spec_.norm_eps >= 0 && spec_.norm_eps < 1, "a norm epsilon outside [0, 1)");
    for (const RopeSpec& rope : spec_.ropes) {
      need(rope.n_dims > 0 && rope.n_dims % 2 == 0 && rope.n_dims <= spec_.head_dim, "a rotary size that no head has");
    }
  }

  const formats::TensorInfo& tensor(const std::string& name) {
    const formats::TensorInfo& found = container_.tensor(name);
    used_.insert(name);
    const bool computable = found.type && (is_float(*found.type) || is_quantized(*found.type));
    if (!computable) {
      refuse(fmt::format("tensor {} has type {}, which is not supported", name, found.type_name),
             "convert the model to another type");
    }
    return found;
  }

  [[noreturn]] void wrong_shape(const formats::TensorInfo& found, const std::string& wanted) const {
    refuse(
        fmt::format("tensor {} has shape [{}], the model needs [{}]", found.name, fmt::join(found.shape, ","), wanted),
        "the file is broken or not made for this architecture");
  }

  void matrix(const MatrixRef& ref) {
    if (!ref.present()) return;
    const formats::TensorInfo& found = tensor(ref.name);
    const std::uint64_t rows = ref.transposed ? ref.columns : ref.row_begin + ref.rows;
    const std::uint64_t columns = ref.transposed ? ref.rows : ref.columns;
    const bool good = found.shape.size() == 2 && found.shape[1] == columns &&
                      (ref.transposed ? found.shape[0] == rows : found.shape[0] >= rows);
    if (!good) wrong_shape(found, fmt::format("{},{}", rows, columns));
    if (ref.transposed && is_quantized(*found.type)) {
      refuse(fmt::format("tensor {} is quantized across its rows", ref.name), "convert the model to GGUF");
    }
    if (!row_bytes(*found.type, columns)) {
      refuse(fmt::format("rows of tensor {} are not whole blocks of {}", ref.name, found.type_name),
             "convert the model again");
    }
  }

  void vector(const VectorRef& ref) {
    if (!ref.present()) return;
    const formats::TensorInfo& found = tensor(ref.name);
    if (found.shape.size() != 1 || found.shape[0] < ref.begin + ref.count) {
      wrong_shape(found, fmt::format("{}", ref.begin + ref.count));
    }
    if (!is_float(*found.type))
      refuse(fmt::format("tensor {} must be floating point", ref.name), "convert the model again");
  }

  void linear(const LinearRef& ref) {
    matrix(ref.weight);
    vector(ref.bias);
  }
  void norm(const NormRef& ref) {
    vector(ref.weight);
    vector(ref.bias);
  }

  static bool harmless(std::string_view name) {
    // Buffers that old checkpoints carry along: masks of GPT-2, inverse frequencies of Llama; and what rope settings
    // read.
    for (std::string_view end : {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq", "rope_freqs.weight",
                                 "rope_factors_long.weight", "rope_factors_short.weight"}) {
      if (name.ends_with(end)) return true;
    }
    return false;
  }

  void unused() const {
    for (const formats::TensorInfo& t : container_.tensors()) {
      if (used_.count(t.name) || harmless(t.name)) continue;
      // A head beside a tied embedding is stored by some tools although the model ignores it.
      if (t.name == "lm_head.weight") continue;
      refuse(fmt::format("tensor {} has no place in architecture {}", t.name, spec_.architecture),
             "this variant of the model is not supported");
    }
  }

  const DecoderSpec& spec_;
  const formats::Container& container_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace

void check_spec(const DecoderSpec& spec, const formats::Container& container) { Checker(spec, container).run(); }

}  // namespace backplane::models

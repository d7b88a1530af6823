// What a decoder-only transformer is made of, as data. An architecture file reads a config into this; decoder.cc runs
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/formats/rope_settings.h"
#include "plugins/abi/backplane_plugin.h"

namespace backplane::models {

// Part of a stored matrix: rows [row_begin, row_begin + rows) of tensor `name`. Transposed: the file holds [C,N], and
// the part is the whole tensor.
struct MatrixRef {
  std::string name;           // empty: there is none
  std::uint64_t rows = 0;     // N
  std::uint64_t columns = 0;  // C
  std::uint64_t row_begin = 0;
  bool transposed = false;

  bool present() const { return !name.empty(); }
};

// Values [begin, begin + count) of a stored vector.
struct VectorRef {
  std::string name;  // empty: there is none
  std::uint64_t count = 0;
  std::uint64_t begin = 0;

  bool present() const { return !name.empty(); }
};

struct LinearRef {
  MatrixRef weight;
  VectorRef bias;
};

struct NormRef {
  VectorRef weight, bias;

  bool present() const { return weight.present(); }
};

// A table of rotary frequencies. n_dims: the rotated part of a head.
struct RopeSpec {
  formats::RopeSettings settings;
  std::uint32_t n_dims = 0;
  bool interleaved = false;  // pairs are neighbors rather than halves
};

struct LayerSpec {
  NormRef attention_norm;  // before attention
  LinearRef q, k, v;       // either these three,
  LinearRef qkv;           // or one whose rows are q, k, v in this order
  NormRef q_norm, k_norm;  // of each head
  LinearRef o;
  NormRef attention_post_norm;  // of attention's output, before it is added
  NormRef mlp_norm;
  LinearRef gate;  // absent: down(act(up x)); present: down(act(gate x) * up x)
  LinearRef up, down;
  NormRef mlp_post_norm;
  std::uint32_t window = 0;    // 0: full attention
  std::int32_t rope = -1;      // index into DecoderSpec::ropes; -1: none
  double attention_scale = 1;  // of q k
};

struct DecoderSpec {
  std::string architecture;  // "llama"
  std::uint32_t vocab_size = 0;
  std::uint32_t hidden = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;   // of q and k
  std::uint32_t value_dim = 0;  // of v
  std::uint32_t ffn = 0;
  std::uint32_t max_context = 0;   // tokens of a sequence the model is good for
  std::uint32_t rope_context = 0;  // the positions its config gives, from which rope scaling computes; 0: max_context
  bool context_is_hard = false;    // learned positions end there; rotary ones only get worse

  std::uint32_t norm_kind = BP_NORM_RMS;
  double norm_eps = 1e-5;
  double norm_unit_offset = 0;  // 1 where the file stores w - 1
  std::uint32_t activation = BP_ACT_SILU;

  MatrixRef embedding;
  MatrixRef positions;  // learned, one row a position; absent: none
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;
  NormRef final_norm;
  LinearRef head;  // its weight is the embedding's where the two are tied

  double embedding_scale = 1;
  double residual_scale = 1;
  double logits_scale = 1;
  double attention_softcap = 0;  // 0: none
  double final_softcap = 0;
};

}  // namespace backplane::models

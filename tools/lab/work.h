// How much arithmetic and memory traffic a step needs, from the model's sizes. Formulas, not measurements.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/device/device.h"
#include "models/load.h"

namespace backplane::lab {

struct Work {
  double flops = 0;
  double bytes = 0;
  double intensity() const { return bytes > 0 ? flops / bytes : 0; }
};

// Tokens of one sequence that a step computes.
struct Share {
  std::uint64_t past = 0;    // tokens of the sequence that are in the cache already
  std::uint64_t tokens = 0;  // that are computed
  std::uint64_t rows = 0;    // of logits
};

// Counted are, with 2 FLOP for a multiplication and an addition:
//   a token         2 x (elements of all matrices of the layers)
//   a row of logits 2 x vocabulary x hidden
//   attention       2 x heads x (head_dim + value_dim), for each token, layer and token that it sees
// and, each moved once in a step, because that is the least that is possible:
//   the matrices of the layers and, when there are rows, of the head; a row of the embedding for each token;
//   K and V that the tokens see and K and V that they write; the logits.
// Left out is what is small beside them: norms, rope, activations.
class StepWork {
 public:
  // `device`: the one that holds the matrices, in the file's types where it takes them.
  StepWork(const models::ModelFile& file, const device::Device& device, DType kv_type);

  double token_flops() const { return token_flops_; }
  double row_flops() const { return row_flops_; }
  double attention_flops(std::uint64_t past, std::uint64_t tokens) const;  // causal, within windows
  double attention_flops_per_key() const { return key_flops_ * static_cast<double>(windows_.size()); }
  std::uint32_t smallest_window() const;  // 0: all layers see everything
  double layer_bytes() const { return layer_bytes_; }
  double head_bytes() const { return head_bytes_; }
  double kv_bytes_per_token() const { return kv_layer_bytes_ * static_cast<double>(windows_.size()); }
  double logits_row_bytes() const { return logits_row_bytes_; }
  double tokens_flops(const Share& share) const;

  Work of(const Share& share) const;

 private:
  std::vector<std::uint32_t> windows_;  // by layer, 0: none
  double token_flops_ = 0, row_flops_ = 0, key_flops_ = 0;
  double layer_bytes_ = 0, head_bytes_ = 0, embedding_row_bytes_ = 0, kv_layer_bytes_ = 0, logits_row_bytes_ = 0;
};

}  // namespace backplane::lab

// One step of the model as arrays: what the engine builds from a plan and a device reads as bp_step.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/ids.h"

namespace backplane::sched {

// T tokens of B sequences, R of which need logits; G groups of layers, M pages a sequence. The arrays mean exactly what
// the members of bp_step in plugins/abi/backplane_plugin.h mean, and are laid out alike (last index fastest).
struct Step {
  std::uint32_t n_decode = 0;  // sequences [0, n_decode) decode, the rest prefill
  std::uint32_t groups = 1;
  std::uint32_t page_size = 16;
  std::uint32_t max_pages = 0;
  std::uint32_t max_q = 0;
  std::uint32_t max_kv = 0;
  std::vector<TokenId> token;            // [T]
  std::vector<std::int32_t> pos;         // [T]
  std::vector<std::int32_t> q_start;     // [B+1]
  std::vector<std::int32_t> kv_len;      // [B]
  std::vector<std::int32_t> page_table;  // [G,B,M]
  std::vector<std::int64_t> slot;        // [G,T]
  std::vector<std::int32_t> rope_row;    // [T]
  std::vector<std::int32_t> out_row;     // [R]

  std::uint32_t tokens() const { return static_cast<std::uint32_t>(token.size()); }
  std::uint32_t sequences() const { return static_cast<std::uint32_t>(kv_len.size()); }
  std::uint32_t rows() const { return static_cast<std::uint32_t>(out_row.size()); }
};

}  // namespace backplane::sched

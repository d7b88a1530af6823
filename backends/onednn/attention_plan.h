// How the work of attention is cut.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/onednn/ops.h"

namespace backplane::onednn {

// Queries of a unit, unless the heads of one token are more: whole kMostRows for most groups.
constexpr std::int64_t kUnitRows = 48;
constexpr std::int64_t kSplitRows = 16;         // units that may be cut have at most so many
constexpr std::uint64_t kSplitBytes = 8 << 20;  // what their partial results may take
constexpr std::int64_t kExpandFrom = 4;         // tokens that are worth a copy of a chunk as floats

// Sizes that decide how the work is cut; from arguments, or from a query that has no tensors.
struct Plan {
  std::int64_t heads, kv_heads, group, dim, value_dim;
  std::int64_t unit_tokens, unit_rows;

  explicit Plan(const bp_attention_args& args)
      : heads(args.q.shape[1]),
        kv_heads(args.kv_heads),
        group(heads / std::max<std::int64_t>(1, kv_heads)),
        dim(args.q.shape[2]),
        value_dim(args.out.shape[2]),
        unit_tokens(std::max<std::int64_t>(1, kUnitRows / std::max<std::int64_t>(1, group))),
        unit_rows(unit_tokens * group) {}

  // A partial result of a row: maximum, sum, values.
  std::int64_t partial_floats() const { return 2 + value_dim; }

  // For each worker: scores, a chunk of K and V as floats, scales of its values, the rows' results so far and those of
  // one chunk.
  std::uint64_t worker_floats() const {
    return static_cast<std::uint64_t>(kMostRows * kChunk + kChunk * (dim + value_dim + value_dim / kBlock) +
                                      (unit_rows + kMostRows) * partial_floats());
  }
  std::uint64_t split_units() const { return 4 * std::uint64_t{plugin::threads()}; }
  // Room for partial results: never less for a longer context, and never more than kSplitBytes.
  std::uint64_t split_floats(std::uint64_t max_kv) const {
    const std::uint64_t chunks = max_kv / kChunk + 2;
    const std::uint64_t floats = split_units() * chunks * kSplitRows * static_cast<std::uint64_t>(partial_floats());
    return std::min<std::uint64_t>(floats, kSplitBytes / sizeof(float));
  }
};

// Tokens [token, token + tokens) of sequence `sequence`, for one KV head; keys [first, last].
struct Unit {
  std::uint32_t sequence;
  std::int64_t kv_head, token, tokens, first, last;

  std::int64_t first_chunk() const { return first / kChunk; }
  std::int64_t chunks() const { return last / kChunk - first_chunk() + 1; }
  std::int64_t cost() const { return tokens * (last - first + 1); }
  std::int64_t cost_of(std::int64_t chunk) const {
    return tokens * (std::min(last, (chunk + 1) * kChunk - 1) - std::max(first, chunk * kChunk) + 1);
  }
};

}  // namespace backplane::onednn

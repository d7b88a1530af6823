// Rows of queries, and the softmax over some of the keys of one.
#pragma once

#include <cmath>

#include "backends/cuda/kv_cache.cuh"

namespace backplane::cuda {

// Softmax over some keys: the largest score, the sum of exp(score - largest), and the values' weighted sum of which a
// lane has every 32nd element.
template <int kParts>
struct Softmax {
  float largest = -INFINITY, sum = 0.0f;
  float out[kParts] = {};

  // Takes in another one that follows in the order of keys.
  __device__ __forceinline__ void combine(const Softmax& next) {
    const float together = fmaxf(largest, next.largest);
    const float own = expf(largest - together), others = expf(next.largest - together);
    largest = together;
    sum = fmaf(next.sum, others, sum * own);
#pragma unroll
    for (int i = 0; i < kParts; ++i) out[i] = fmaf(next.out[i], others, out[i] * own);
  }
};

// The last step of a row: the sink's share, and the division.
template <class A, int kParts>
__device__ __forceinline__ void finish(const AttentionCall& call, Softmax<kParts>& all, std::int64_t token,
                                       std::int64_t head, int lane) {
  if (call.sinks != nullptr) {
    const float sink = cu::ld_global(call.sinks + head), together = fmaxf(all.largest, sink);
    const float own = expf(all.largest - together);
    all.sum = fmaf(all.sum, own, expf(sink - together));
#pragma unroll
    for (int i = 0; i < kParts; ++i) all.out[i] *= own;
  }
  A* out = row_of<A>(call.out, token * call.heads + head);
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int d = lane + 32 * i;
    if (d < call.cache.v.dim) cu::st_global(out + d, from_float<A>(all.out[i] / all.sum));
  }
}

// What a token sees: [first, last]. Nothing, and a fault, where its position lies beyond its sequence's pages.
struct Keys {
  std::int64_t first = 0, last = -1;
};

__device__ __forceinline__ Keys keys_of(const AttentionCall& call, std::int64_t token) {
  const std::int64_t position = cu::ld_global(call.pos + token);
  if (position < 0 || position >= call.max_pages * call.cache.page_size || position / kChunk >= call.chunks) {
    report(call.fault, kPageFault);
    return {};
  }
  return {call.window > 0 && position >= call.window ? position - call.window + 1 : 0, position};
}

// A row of this block.
struct Row {
  std::int32_t token = -1, head = 0;  // -1: there is none
  std::int32_t first = 0, last = -1;  // keys
};

__device__ __forceinline__ Row find_row(const AttentionCall& call, std::int64_t start, std::int64_t tokens,
                                        std::int64_t number) {
  const std::int64_t group = call.heads / call.cache.heads;
  Row row;
  if (number >= tokens * group) return row;
  const Keys keys = keys_of(call, start + number / group);
  if (keys.last < 0) return row;
  row.token = static_cast<std::int32_t>(start + number / group);
  row.head = static_cast<std::int32_t>(blockIdx.y * group + number % group);
  row.first = static_cast<std::int32_t>(keys.first);
  row.last = static_cast<std::int32_t>(keys.last);
  return row;
}

// The floats of {largest, sum, out} that one chunk of a row leaves in `partial`.
__device__ __forceinline__ float* partial_of(const AttentionCall& call, std::int64_t token, std::int64_t head,
                                             std::int64_t chunk) {
  const std::int64_t first = cu::ld_global(call.q_start + call.first_sequence);
  const std::int64_t number = ((token - first) * call.heads + head) * call.chunks + chunk;
  return call.partial + number * (2 + call.cache.v.dim);
}

template <int kParts>
__device__ __forceinline__ void store_partial(const AttentionCall& call, const Softmax<kParts>& part, const Row& row,
                                              std::int64_t chunk) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float* to = partial_of(call, row.token, row.head, chunk);
  if (lane == 0) {
    cu::st_global(to, part.largest);
    cu::st_global(to + 1, part.sum);
  }
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    if (lane + 32 * i < call.cache.v.dim) cu::st_global(to + 2 + lane + 32 * i, part.out[i]);
  }
}

__device__ __forceinline__ bool sees(const Row& row, std::int64_t chunk) {
  return row.token >= 0 && row.first / kChunk <= chunk && chunk <= row.last / kChunk;
}

}  // namespace backplane::cuda

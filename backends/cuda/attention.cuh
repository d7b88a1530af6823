// What a token of a step sees of its sequence, and the softmax over some of its keys.
#pragma once

#include <cmath>

#include "backends/cuda/kv_cache.cuh"

namespace backplane::cuda {

// ---- Queries and keys

// A sequence's tokens. None, and a fault, where the step's numbers are no rising list within its tokens, or where any
// of these that count for the workspace has more than max_q.
struct Tokens {
  std::int64_t start = 0, count = 0;
};

__device__ __forceinline__ Tokens tokens_of(const AttentionCall& call, std::int64_t sequence) {
  const std::int64_t first = cu::ld_global(call.q_start + call.first_sequence);
  const std::int64_t start = cu::ld_global(call.q_start + sequence), end = cu::ld_global(call.q_start + sequence + 1);
  const std::int64_t most = (sequence - call.first_sequence) * call.max_q;
  const bool follows = 0 <= first && first <= start && start - first <= most;
  if (follows && start <= end && end <= call.tokens && end - start <= call.max_q) return {start, end - start};
  if (threadIdx.x == 0) report(call.fault, kIndexFault);
  return {};
}

// What a token sees: [first, last]. Nothing, and a fault, where its position lies beyond its sequence's pages.
struct Keys {
  std::int32_t first = 0, last = -1;
};

__device__ __forceinline__ Keys keys_of(const AttentionCall& call, std::int64_t token) {
  const std::int64_t position = cu::ld_global(call.pos + token);
  if (position < 0 || position >= call.max_pages * call.cache.page_size || position / kChunk >= call.chunks) {
    report(call.fault, kPageFault);
    return {};
  }
  const bool passed = call.window > 0 && position >= call.window;
  const std::int64_t first = passed ? position - call.window + (CU_FAULT("attention.window") ? 2 : 1) : 0;
  return {static_cast<std::int32_t>(first),
          static_cast<std::int32_t>(position - (CU_FAULT("attention.lost_key") && position > 0 ? 1 : 0))};
}

// A row is one query head of one token: those of a sequence that share a KV head, token after token.
struct Row {
  std::int32_t token = -1, head = 0;  // -1: there is none
  Keys keys;
};

__device__ __forceinline__ Row find_row(const AttentionCall& call, std::int64_t start, std::int64_t tokens,
                                        std::int64_t number) {
  const std::int64_t group = call.heads / call.cache.heads;
  Row row;
  if (number >= tokens * group) return row;
  row.keys = keys_of(call, start + number / group);
  if (row.keys.last < 0) return row;
  row.token = static_cast<std::int32_t>(start + number / group);
  row.head = static_cast<std::int32_t>(blockIdx.y * group + number % group);
  if (CU_FAULT("attention.kv_head"))
    row.head = static_cast<std::int32_t>(number % group * call.cache.heads + blockIdx.y);
  return row;
}

__device__ __forceinline__ bool sees(const Row& row, std::int64_t chunk) {
  return row.token >= 0 && row.keys.first / kChunk <= chunk && chunk <= row.keys.last / kChunk;
}

// Where the cache has a key of this block's KV head; -1, and a fault, where its page is missing.
__device__ __forceinline__ std::int32_t place_of_key(const AttentionCall& call, const std::int32_t* table,
                                                     std::int32_t position) {
  const CacheView& cache = call.cache;
  const auto size = static_cast<std::uint32_t>(cache.page_size), number = static_cast<std::uint32_t>(position) / size;
  const std::int32_t page = cu::ld_global(table + number);
  if (page < 0 || page >= cache.pages) {
    report(call.fault, kPageFault);
    return -1;
  }
  const std::int64_t offset = position - static_cast<std::int64_t>(number) * size;
  if (CU_FAULT("attention.page_stride")) {
    return static_cast<std::int32_t>((page * size + offset) * cache.heads + blockIdx.y);
  }
  return static_cast<std::int32_t>(place_of(cache, page, blockIdx.y, offset));
}

// ---- Results

// Softmax over some keys: the largest score, the sum of exp(score - largest), and the values' weighted sum of which a
// lane has every 32nd element.
template <int kParts>
struct Softmax {
  float largest = -INFINITY, sum = 0.0f;
  float out[kParts] = {};

  // Takes in another one that follows in the order of keys.
  __device__ __forceinline__ void combine(const Softmax& next) {
    const float together = fmaxf(largest, next.largest);
    const float own = largest == together ? 1.0f : expf(largest - together);
    float others = next.largest == together ? 1.0f : expf(next.largest - together);
    if (CU_FAULT("attention.rescale")) others = 1.0f;
    largest = together;
    sum = fmaf(next.sum, others, sum * own);
#pragma unroll
    for (int i = 0; i < kParts; ++i) out[i] = fmaf(next.out[i], others, out[i] * own);
  }
};

// The last step of a row: the sink's share, and the division.
template <int kParts>
__device__ __forceinline__ void finish(const AttentionCall& call, Softmax<kParts>& all, const Row& row) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (call.sinks != nullptr) {
    const float sink = cu::ld_global(call.sinks + row.head), together = fmaxf(all.largest, sink);
    const float own = expf(all.largest - together);
    all.sum = fmaf(all.sum, own, expf(sink - together));
#pragma unroll
    for (int i = 0; i < kParts; ++i) all.out[i] *= own;
  }
  std::byte* out = row_of<std::byte>(call.out, static_cast<std::int64_t>(row.token) * call.heads + row.head);
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int d = lane + 32 * i;
    const float value = all.out[i] / all.sum;
    if (d >= call.cache.v.dim) continue;
    if (call.activation == BP_TYPE_BF16) {
      cu::st_global(reinterpret_cast<__nv_bfloat16*>(out) + d, __float2bfloat16_rn(value));
    } else {
      cu::st_global(reinterpret_cast<float*>(out) + d, value);
    }
  }
}

// What one chunk of a row leaves in `partial`: its values' sum, then the largest score and the sum of weights.
__device__ __forceinline__ float* partial_of(const AttentionCall& call, const Row& row, std::int64_t chunk) {
  const std::int64_t first = cu::ld_global(call.q_start + call.first_sequence);
  const std::int64_t number = ((row.token - first) * call.heads + row.head) * call.chunks + chunk;
  return call.partial + number * call.partial_step;
}

template <int kParts>
__device__ __forceinline__ void store_partial(const AttentionCall& call, const Softmax<kParts>& part, const Row& row,
                                              std::int64_t chunk) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float* to = partial_of(call, row, chunk);
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    if (lane + 32 * i < call.cache.v.dim) cu::st_global(to + lane + 32 * i, part.out[i]);
  }
  float* numbers = to + call.partial_step - 8;
  if (lane < 2) cu::st_global(numbers + lane, lane == 0 ? part.largest : part.sum);
}

// The same by whoever reads what other blocks have left: not from this multiprocessor's own cache.
template <int kParts>
__device__ __forceinline__ Softmax<kParts> load_partial(const AttentionCall& call, const Row& row, std::int64_t chunk) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const float* from = partial_of(call, row, chunk);
  const float* numbers = from + call.partial_step - 8;
  Softmax<kParts> part;
  part.largest = __ldcg(numbers);
  part.sum = __ldcg(numbers + 1);
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    part.out[i] = lane + 32 * i < call.cache.v.dim ? __ldcg(from + lane + 32 * i) : 0.0f;
  }
  return part;
}

}  // namespace backplane::cuda

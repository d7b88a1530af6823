// Attention of prompts over pages, on tensor cores. A block has one KV head and 64 of the rows that share it, a row
// being one query head of one token, 16 for each warp; it goes through the keys 32 at a time with a running softmax, so
// that scores never leave registers. While scores are computed values are on their way, and the next keys while values
// are added, if the cache has the bytes that products take.
#include "backends/cuda/attention_prefill.cuh"

namespace backplane::cuda {
namespace prefill {
namespace {

// A warp's 16 rows: the running softmax of a lane's two, of which it has every fourth pair of keys and values. The sum
// is the lane's own until the end.
template <int kGroups>
struct State {
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  float out[kGroups / 4][4][4] = {};  // by groups of eight values
};

// Scores of the tile's keys, as fragments: four groups of eight.
template <class P>
__device__ __forceinline__ void add_scores(const Room& room, int warp, float (&scores)[4][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const Piece* row = room.rows + (warp * 16 + lane % 16) * room.row_pitch + lane / 16;
  const Piece* key = room.keys + (lane / 16 * 8 + lane % 8) * room.key_pitch + lane / 8 % 2;
#pragma unroll 2
  for (int step = 0; step < room.key_pitch / 2; ++step) {
    std::uint32_t left[4], words[4][2];
    load_matrices(left, row + step * 2);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      std::uint32_t loaded[4];
      load_matrices(loaded, key + pair * 16 * room.key_pitch + step * 2);
      words[2 * pair][0] = loaded[0];
      words[2 * pair][1] = loaded[1];
      words[2 * pair + 1][0] = loaded[2];
      words[2 * pair + 1][1] = loaded[3];
    }
    P::Type::add(scores, left, Right<P::Type::kTermsOfRight, 4>(words), 4);
  }
}

// Turns scores into weights and scales what is there down to the new largest score.
template <int kGroups>
__device__ __forceinline__ void weigh(const AttentionCall& call, int begin, const OwnRow (&rows)[2],
                                      float (&scores)[4][4], State<kGroups>& state) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    const auto sees = [&](int group, int e) {
      const int key = begin + group * 8 + lane % 4 * 2 + e;
      return key >= rows[which].first && key <= rows[which].last + (CU_FAULT("prefill.causal_edge") ? 1 : 0);
    };
    float largest = state.largest[which];
#pragma unroll
    for (int group = 0; group < 4; ++group) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[group][which * 2 + e];
        score *= call.scale;
        if (call.softcap > 0.0f) score = call.softcap * tanhf(score / call.softcap);
        if (sees(group, e)) largest = fmaxf(largest, score);
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const float before = state.largest[which] == largest ? 1.0f : expf(state.largest[which] - largest);
    state.largest[which] = largest;
    if (!CU_FAULT("prefill.rescale")) state.sum[which] *= before;
#pragma unroll
    for (int group = 0; group < 4; ++group) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[group][which * 2 + e];
        score = sees(group, e) ? expf(score - largest) : 0.0f;
        state.sum[which] += score;
      }
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int e = 0; e < 2; ++e) state.out[group / 4][group % 4][which * 2 + e] *= before;
    }
  }
}

// The weights of one step of keys as a left factor. Where values are floats, a lane's two neighboring keys stand for
// word t of each half, and load_values does likewise, so that no weight changes its lane.
template <class P>
__device__ __forceinline__ void take_weights(const float (&weights)[4][4], int step, std::uint32_t (&left)[4]) {
  if constexpr (P::kBf16) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float* pair = weights[2 * step + w / 2] + w % 2 * 2;
      left[w] = pack_bf16(pair[0], pair[1]);
    }
  } else {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      left[w] = __float_as_uint(weights[step][w % 2 * 2 + w / 2]);
      // To the nearest tf32: the unit would cut it off. One that isn't a number may get lost, as its row's sum isn't
      // one.
      if (P::kOwnTerms == 1) left[w] += 0x1000u;
    }
  }
}

// One for each weight that isn't 0, and for each element that has an infinity of a sign, or isn't a number.
template <class P>
__device__ __forceinline__ std::uint32_t mark_weight(std::uint32_t word) {
  if constexpr (P::kBf16) {
    return ((word & 0x7fffu) != 0 ? 0x3f80u : 0u) | ((word & 0x7fff0000u) != 0 ? 0x3f800000u : 0u);
  } else {
    return (word & 0x7fffe000u) != 0 ? 0x3f800000u : 0u;
  }
}
template <class P>
__device__ __forceinline__ std::uint32_t mark_special(std::uint32_t word, bool negative) {
  const auto marks = [negative](std::uint32_t bits) {  // of a float
    if ((bits & 0x7f800000u) != 0x7f800000u) return 0u;
    return (bits & 0x007fffffu) != 0 || (bits >> 31 != 0) == negative ? 0x3f800000u : 0u;
  };
  return P::kBf16 ? marks(word & 0xffff0000u) | marks(word << 16) >> 16 : marks(word);
}
template <class P>
__device__ __forceinline__ std::uint32_t without_special(std::uint32_t word) {
  if constexpr (P::kBf16) {
    const std::uint32_t upper = is_special<P>(word & 0xffff0000u) ? 0 : word & 0xffff0000u;
    return upper | (is_special<P>(word << 16) ? 0 : word & 0xffffu);
  } else {
    return is_special<P>(word) ? 0 : word;
  }
}

// Infinite values and what isn't a number would reach rows that don't see them, as 0 times infinity. So they are left
// out of the product and counted in two of their own, by sign, for rows that give them a weight.
template <class P>
__device__ __forceinline__ void add_special(const std::uint32_t (&left)[4], std::uint32_t (&words)[4][2], int count,
                                            float (&out)[4][4]) {
  std::uint32_t seen[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) seen[w] = mark_weight<P>(left[w]);
#pragma unroll 1
  for (int negative = 0; negative < 2; ++negative) {
    std::uint32_t marks[4][2];
    float found[4][4] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) marks[i / 2][i % 2] = mark_special<P>(words[i / 2][i % 2], negative == 1);
    multiply<P::kUnit>(found, seen, marks, count);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (found[i / 4][i % 4] > 0.0f) out[i / 4][i % 4] += negative == 1 ? -INFINITY : INFINITY;
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) words[i / 2][i % 2] = without_special<P>(words[i / 2][i % 2]);
}

template <class P, int kGroups>
__device__ __forceinline__ void add_values(const AttentionCall& call, const Room& room, bool special,
                                           const float (&weights)[4][4], State<kGroups>& state) {
  const int groups = static_cast<int>(call.cache.v.dim + 7) / 8;
  constexpr int kSteps = P::kBf16 ? 2 : 4;
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    std::uint32_t left[4];
#pragma unroll
    for (int s = 0; s < kSteps;
         ++s) {  // registers have no index, and code that is unrolled here too takes nvcc minutes
      if (s == step) take_weights<P>(weights, s, left);
    }
#pragma unroll
    for (int part = 0; part < kGroups / 4; ++part) {
      const int count = groups - part * 4 < 4 ? groups - part * 4 : 4;
      if (count <= 0) break;
      std::uint32_t words[4][2];
      load_values<P>(room, step, part * 32, words);
      if (special) add_special<P>(left, words, count, state.out[part]);
      P::Type::add(state.out[part], left, Right<P::Type::kTermsOfRight, 4>(words), count);
    }
  }
}

// The sink's share, the division, and the way out over the shared memory that the warp's own queries had.
template <class A, int kGroups>
__device__ __forceinline__ void store_rows(const AttentionCall& call, const Room& room, int warp,
                                           const OwnRow (&rows)[2], State<kGroups>& state) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto line = [&](int row) { return reinterpret_cast<A*>(room.rows + (warp * 16 + row) * room.row_pitch); };
  __syncwarp();
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    float sum = state.sum[which], own = 1.0f;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (call.sinks != nullptr && rows[which].token >= 0) {
      const float sink = cu::ld_global(call.sinks + rows[which].head);
      const float together = fmaxf(state.largest[which], sink);
      own = expf(state.largest[which] - together);
      sum = fmaf(sum, own, expf(sink - together));
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int d = group * 8 + lane % 4 * 2 + e;
        const float value = state.out[group / 4][group % 4][which * 2 + e] * own / sum;
        if (d < call.cache.v.dim) cu::st_shared(line(lane / 4 + which * 8) + d, from_float<A>(value));
      }
    }
  }
  __syncwarp();
  for (int i = 0; i < 16; ++i) {
    const std::int64_t token = __shfl_sync(0xffffffffu, i < 8 ? rows[0].token : rows[1].token, i % 8 * 4);
    const std::int64_t head = __shfl_sync(0xffffffffu, i < 8 ? rows[0].head : rows[1].head, i % 8 * 4);
    if (token < 0) continue;
    A* out = row_of<A>(call.out, token * call.heads + head);
    for (int d = lane; d < call.cache.v.dim; d += 32) cu::st_global(out + d, cu::ld_shared(line(i) + d));
  }
}

constexpr std::size_t kOwnBytes = 2 * kWarps * sizeof(int);  // of shared memory, in find_range

// The keys that any row of the block sees; none where last < first.
__device__ __forceinline__ void find_range(const OwnRow (&rows)[2], int& first, int& last) {
  CU_SHARED(int, firsts, [kWarps]);
  CU_SHARED(int, lasts, [kWarps]);
  first = INT32_MAX;
  last = -1;
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    if (rows[which].token < 0) continue;
    first = min(first, rows[which].first);
    last = max(last, rows[which].last);
  }
  first = __reduce_min_sync(0xffffffffu, first);
  last = __reduce_max_sync(0xffffffffu, last);
  if (threadIdx.x % 32 == 0) {
    cu::st_shared(&firsts[threadIdx.x / 32], first);
    cu::st_shared(&lasts[threadIdx.x / 32], last);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    first = min(first, cu::ld_shared(&firsts[i]));
    last = max(last, cu::ld_shared(&lasts[i]));
  }
}

template <class A, bp_type kType, int kGroups>
__global__ void __launch_bounds__(kThreads) prefill_kernel(const PrefillCall call) {
  using P = FactorsOf<A, kType>;
  CU_DYN_SHARED(std::byte, shared);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const Block block = find_block(call);
  if (block.first_row >= block.tokens * block.group) return;
  const Room room = divide<P>(shared, call.cache);
  const OwnRow rows[2] = {block.row(call, warp * 16 + lane / 4), block.row(call, warp * 16 + lane / 4 + 8)};
  int first = 0, last = 0;
  find_range(rows, first, last);
  if (last < first) return;
  const bool works = __any_sync(0xffffffffu, rows[0].token >= 0 || rows[1].token >= 0) != 0;
  load_queries<P, A>(call, room, block);

  State<kGroups> state;
  int number = first / kKeys;  // of the tile
  const int end = last / kKeys;
  const auto places = [&](int tile) { return room.places + tile % 2 * kKeys; };
  find_places(call, room, block, number, first, last);
  __syncthreads();
  fetch_tile<P, kType>(call.cache.k, places(number), room.keys, room.key_pitch);
  for (; number <= end; ++number) {
    __pipeline_wait_prior(0);
    __syncthreads();  // keys are there, and nobody needs the values before
    fetch_tile<P, kType>(call.cache.v, places(number), room.values, room.value_pitch);
    if (number < end) find_places(call, room, block, number + 1, first, last);
    float scores[4][4] = {};
    if (works) {
      add_scores<P>(room, warp, scores);
      weigh(call, number * kKeys, rows, scores, state);
    }
    if (!CU_FAULT("prefill.missing_wait")) __pipeline_wait_prior(0);
    const bool special = __syncthreads_or(finds_special<P>(room.values, room.value_pitch) ? 1 : 0) != 0;
    if (number < end) fetch_tile<P, kType>(call.cache.k, places(number + 1), room.keys, room.key_pitch);
    if (works) add_values<P>(call, room, special && !CU_FAULT("prefill.not_finite"), scores, state);
  }
  if (works) store_rows<A>(call, room, warp, rows, state);
}

template <class A, bp_type kType, int kGroups>
cudaError_t launch_tiles(cudaStream_t stream, const PrefillCall& call) {
  const std::size_t bytes = room_bytes<FactorsOf<A, kType>>(call.cache);
  const auto kernel = prefill_kernel<A, kType, kGroups>;
  const std::int64_t sequences = call.last_sequence - call.first_sequence, group = call.heads / call.cache.heads;
  const dim3 grid(static_cast<unsigned>(sequences) * blocks_for(call.max_q * group, kRows),
                  static_cast<unsigned>(call.cache.heads));
  return launch_shared(stream, kernel, grid, kThreads, bytes, kOwnBytes, call.shared_bytes, call);
}

}  // namespace
}  // namespace prefill

std::uint64_t prefill_shared_bytes(const AttentionCall& call) {
  std::uint64_t bytes = 0;
  visit_activation(call.activation, [&]<class A>() {
    return visit_cache(call.cache.type, [&]<bp_type kType>() {
      bytes = prefill::room_bytes<prefill::FactorsOf<A, kType>>(call.cache) + prefill::kOwnBytes;
      return cudaSuccess;
    });
  });
  return bytes;
}

cudaError_t enqueue(cudaStream_t stream, const PrefillCall& call) {
  if (call.first_sequence == call.last_sequence || call.max_q == 0 || call.heads == 0) return cudaSuccess;
  const bool small = call.cache.v.dim <= 128;
  return visit_activation(call.activation, [&]<class A>() {
    return visit_cache(call.cache.type, [&]<bp_type kType>() {
      return small ? prefill::launch_tiles<A, kType, 16>(stream, call)
                   : prefill::launch_tiles<A, kType, 32>(stream, call);
    });
  });
}

}  // namespace backplane::cuda

// Some keys and values by some rows, in one warp: scores, weights and the values' weighted sum.
#pragma once

#include "backends/cuda/attention.cuh"

namespace backplane::cuda {

constexpr int kWarps = 4;  // of a block

// How a warp shares its keys.
template <int kLanesOfKey, int kRowsOfBlock>
struct Shape {
  static constexpr int kLanes = kLanesOfKey;      // that share a key: 8, 16 or 32
  static constexpr int kRows = kRowsOfBlock;      // 4 or 8
  static constexpr int kGroups = 32 / kLanes;     // keys at once
  static constexpr int kSlots = kLanes / kRows;   // keys of a lane in a tile
  static constexpr int kTile = kGroups * kSlots;  // keys
  static constexpr int kParts = kLanes / 4;       // of a result, a lane's: 8 * kLanes elements by 32 lanes
  static constexpr int kOwn = kRows / kWarps;     // rows that a warp combines
};

// The elements of a head that a lane has: four from `first` and four from `second`.
template <bp_type kType, int kLanes>
struct Elements {
  int first, second;
  __device__ Elements() {
    const int place = static_cast<int>(threadIdx.x % kLanes);
    first = kType == BP_TYPE_F32 ? 4 * place : 8 * place;
    second = kType == BP_TYPE_F32 ? 4 * (place + kLanes) : first + 4;
  }
  // Half of the lanes begin with their second four, so that eight lanes meet all banks of shared memory.
  __device__ bool swaps() const { return kType != BP_TYPE_F32 && threadIdx.x / 4 % 2 != 0; }
  __device__ void load(const float* from, float* to) const {
    const bool swap = swaps();
    const float4 one = cu::ld_shared(reinterpret_cast<const float4*>(from + (swap ? second : first)));
    const float4 other = cu::ld_shared(reinterpret_cast<const float4*>(from + (swap ? first : second)));
    const float4 low = swap ? other : one, high = swap ? one : other;
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
  }
};

// Sums each of x[0..kCount) over as many neighboring lanes; the l-th of them gets x[l]. One tree for all.
template <int kCount>
__device__ __forceinline__ float sum_exchanging(const float (&x)[kCount]) {
  if constexpr (kCount == 1) {
    return x[0];
  } else {
    constexpr int kHalf = kCount / 2;
    const bool upper = (threadIdx.x & static_cast<unsigned>(kHalf)) != 0;
    float halves[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float other = upper ? x[i] : x[i + kHalf];
      halves[i] = (upper ? x[i + kHalf] : x[i]) + __shfl_xor_sync(0xffffffffu, other, kHalf);
    }
    return sum_exchanging(halves);
  }
}

// What a warp has of its rows. The row that a lane has the scores of is lane % kRows.
template <class S>
struct State {
  float q[S::kRows][8];
  float out[S::kRows][8];  // of the keys of the lane's group
  float largest, sum;      // of the lane's row: the largest score of the warp, the sum of the lane's own weights
  Keys keys;               // of the lane's row
  int rows;                // that there are
  bool mixed;              // whether some row sees a key that another doesn't

  __device__ __forceinline__ void clear() {
    largest = -INFINITY;
    sum = 0.0f;
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
#pragma unroll
      for (int i = 0; i < 8; ++i) out[r][i] = 0.0f;
    }
  }
};

// A lane's parts of the keys and values of a tile, as they are stored.
template <bp_type kType, class S>
struct Tile {
  using Raw = typename Cached<kType>::Raw;
  // Both sides at once as long as there are registers for them; and the next tile's as well where a warp's tile is
  // small, because with 8 rows 8 warps are all that fit on a multiprocessor.
  static constexpr bool kTogether = sizeof(Raw) * S::kSlots <= 128;
  static constexpr bool kAhead = S::kRows == 8 && sizeof(Raw) * S::kSlots <= 32;
  Raw k[S::kSlots], v[S::kSlots];

  // Those at `places`, which are the lane's group's.
  __device__ __forceinline__ static void fetch(const CacheSide& side, const std::int32_t* places, Raw* raw) {
    const Elements<kType, S::kLanes> at;
#pragma unroll
    for (int s = 0; s < S::kSlots; ++s) {
      const std::int32_t place = cu::ld_shared(places + s * S::kGroups);
      raw[s] = {};
      if (place >= 0 && at.first < side.pitch) raw[s] = Cached<kType>::fetch(side, place, at.first, at.second);
    }
  }
  __device__ __forceinline__ void fetch(const CacheView& cache, const std::int32_t* places) {
    fetch(cache.k, places, k);
    if constexpr (kTogether) fetch(cache.v, places, v);
  }
};

// The lane's weight: that of key `slot` of its group for its row. Rescales the state by a new largest score.
template <class S>
__device__ __forceinline__ float weigh(const AttentionCall& call, State<S>& state, float dot, bool seen) {
  float score = dot * call.scale;
  if (call.softcap > 0.0f) score = call.softcap * tanhf(score / call.softcap);
  float largest = seen ? score : -INFINITY;
#pragma unroll
  for (int step = S::kRows; step < 32; step *= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  }
  largest = fmaxf(largest, state.largest);
  const float before = largest == state.largest ? 1.0f : expf(state.largest - largest);
  const float weight = seen ? expf(score - largest) : 0.0f;
  state.largest = largest;
  state.sum = fmaf(state.sum, before, weight);
  if (__any_sync(0xffffffffu, before != 1.0f)) {
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      const float factor = __shfl_sync(0xffffffffu, before, r);
#pragma unroll
      for (int i = 0; i < 8; ++i) state.out[r][i] *= factor;
    }
  }
  return weight;
}

// A tile of keys. Where rows see different keys, a weight of 0 is no value at all: what it belongs to may be no number.
template <bp_type kType, class S>
__device__ __forceinline__ void do_tile(const AttentionCall& call, const std::int32_t* places, std::int32_t begin,
                                        Tile<kType, S>& tile, State<S>& state) {
  const int lane = static_cast<int>(threadIdx.x % 32), group = lane / S::kLanes, place = lane % S::kLanes;
  float x[S::kLanes];
#pragma unroll
  for (int s = 0; s < S::kSlots; ++s) {
    float key[8];
    Cached<kType>::expand(tile.k[s], key);
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      float dot = 0.0f;
      if (r < state.rows) {
#pragma unroll
        for (int i = 0; i < 8; ++i) dot = fmaf(state.q[r][i], key[i], dot);
      }
      x[s * S::kRows + r] = dot;
    }
  }
  if constexpr (!Tile<kType, S>::kTogether) Tile<kType, S>::fetch(call.cache.v, places, tile.v);
  const float dot = sum_exchanging(x);
  const std::int32_t position = begin + place / S::kRows * S::kGroups + group;
  const bool seen = position >= state.keys.first && position <= state.keys.last;
  const float weight = weigh(call, state, dot, seen);

#pragma unroll
  for (int s = 0; s < S::kSlots; ++s) {
    float value[8];
    Cached<kType>::expand(tile.v[s], value);
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      const float own = __shfl_sync(0xffffffffu, weight, s * S::kRows + r, S::kLanes);
      if (r >= state.rows || (state.mixed && own == 0.0f)) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) state.out[r][i] = fmaf(own, value[i], state.out[r][i]);
    }
  }
}

}  // namespace backplane::cuda

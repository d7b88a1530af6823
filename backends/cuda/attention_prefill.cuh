// What a block of attention_prefill.cu has in shared memory, how it comes there and how fragments are loaded from it.
//
// Keys and values lie there as the products take them: BF16 where activations and cache are, else floats, which go as
// tf32 in one term or two. Rows are padded to an odd number of 16 bytes, for which no load of fragments meets itself in
// a bank.
#pragma once

#include "backends/cuda/attention.cuh"
#include "backends/cuda/kv_cache.cuh"
#include "backends/cuda/mma.cuh"

namespace backplane::cuda::prefill {

constexpr int kWarps = 4;
constexpr unsigned kThreads = kWarps * 32;
constexpr int kRows = kWarps * 16;
constexpr int kKeys = 32;
using Piece = uint4;  // 16 bytes of a row

template <class A, bp_type kType>
struct FactorsOf {
  static constexpr bool kBf16 = std::is_same_v<A, __nv_bfloat16> && kType == BP_TYPE_BF16;
  static constexpr bool kRaw = kBf16 || kType == BP_TYPE_F32;  // the cache has the bytes that products take
  static constexpr int kElement = kBf16 ? 2 : 4;               // bytes
  static constexpr int kOwnTerms = std::is_same_v<A, float> ? 2 : 1;
  static constexpr int kCacheTerms = kType == BP_TYPE_F32 || kType == BP_TYPE_Q8_0 ? 2 : 1;
  using Type =
      std::conditional_t<kBf16, Arithmetic<Unit::kBf16>, Arithmetic<Unit::kTf32, kOwnTerms, kCacheTerms, true>>;
  static constexpr Unit kUnit = Type::kUnitUsed;

  // Pieces of a row in shared memory: whole steps of 32 bytes and one more.
  static __host__ __device__ int pieces(std::int64_t dim) {
    return static_cast<int>((dim * kElement + 31) / 32) * 2 + 1;
  }
};

struct Room {
  std::int32_t* places;  // [2][kKeys]: of keys in the cache, -1 for those of no row
  Piece *rows, *keys, *values;
  int row_pitch, key_pitch, value_pitch;  // pieces
};

template <class P>
std::size_t room_bytes(const CacheView& cache) {
  const int key = P::pieces(cache.k.dim), value = P::pieces(cache.v.dim);
  return 2 * kKeys * sizeof(std::int32_t) +
         sizeof(Piece) * static_cast<std::size_t>(kRows * (key > value ? key : value) + kKeys * (key + value));
}

template <class P>
__device__ __forceinline__ Room divide(std::byte* shared, const CacheView& cache) {
  Room room;
  room.key_pitch = P::pieces(cache.k.dim);
  room.value_pitch = P::pieces(cache.v.dim);
  room.row_pitch = room.key_pitch > room.value_pitch ? room.key_pitch : room.value_pitch;
  room.places = reinterpret_cast<std::int32_t*>(shared);
  room.rows = reinterpret_cast<Piece*>(room.places + 2 * kKeys);
  room.keys = room.rows + kRows * room.row_pitch;
  room.values = room.keys + kKeys * room.key_pitch;
  return room;
}

// The rows of a lane's fragments are those at lane / 4 and 8 more in its warp's 16.
struct OwnRow {
  std::int64_t token = -1, head = 0;  // -1: there is none
  int first = 0, last = -1;           // keys
};

struct Block {
  std::int64_t start, tokens, group, first_row;
  const std::int32_t* table;

  __device__ OwnRow row(const AttentionCall& call, int number) const {
    OwnRow row;
    const std::int64_t at = first_row + number;
    if (at >= tokens * group) return row;
    const Keys keys = keys_of(call, start + at / group);
    if (keys.last < 0) return row;
    row.token = start + at / group;
    row.head = blockIdx.y * group + at % group;
    row.first = static_cast<int>(keys.first);
    row.last = static_cast<int>(keys.last);
    return row;
  }
};

// Blocks with the last rows of a sequence have the most keys, so they begin first.
__device__ __forceinline__ Block find_block(const AttentionCall& call) {
  const std::int64_t tiles = gridDim.x / (call.last_sequence - call.first_sequence);
  const std::int64_t b = call.first_sequence + blockIdx.x / tiles;
  Block block;
  const Tokens own = tokens_of(call, b);
  block.start = own.start;
  block.tokens = own.count;
  block.group = call.heads / call.cache.heads;
  block.first_row = (tiles - 1 - blockIdx.x % tiles) * kRows;
  block.table = call.page_table + b * call.max_pages;
  return block;
}

// Queries of this warp's rows, as the products take them.
template <class P, class A>
__device__ __forceinline__ void load_queries(const AttentionCall& call, const Room& room, const Block& block) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int width = (room.key_pitch - 1) * static_cast<int>(sizeof(Piece)) / P::kElement;
#pragma unroll 1
  for (int i = 0; i < 16; ++i) {
    const OwnRow row = block.row(call, warp * 16 + i);
    const A* q = row.token >= 0 ? row_of<A>(call.q, row.token * call.heads + row.head) : nullptr;
    Piece* to = room.rows + (warp * 16 + i) * room.row_pitch;
    for (int d = lane; d < width; d += 32) {
      const float value = q != nullptr && d < call.cache.k.dim ? to_float(cu::ld_global(q + d)) : 0.0f;
      if constexpr (P::kBf16) {
        cu::st_shared(reinterpret_cast<__nv_bfloat16*>(to) + d, __float2bfloat16_rn(value));
      } else {
        cu::st_shared(reinterpret_cast<float*>(to) + d, value);
      }
    }
  }
}

// Where the cache has the keys of tile `number`; -1 for those that no row of the block sees.
__device__ __forceinline__ void find_places(const AttentionCall& call, const Room& room, const Block& block, int number,
                                            int first, int last) {
  if (threadIdx.x >= kKeys) return;
  const int position = number * kKeys + static_cast<int>(threadIdx.x);
  const bool seen = position >= first && position <= last;
  cu::st_shared(room.places + number % 2 * kKeys + threadIdx.x, seen ? place_of_key(call, block.table, position) : -1);
}

// Whether a float, or one of two bfloat16, isn't a number or is infinite.
template <class P>
__device__ __forceinline__ bool is_special(std::uint32_t word) {
  const bool upper = (word & 0x7f800000u) == 0x7f800000u;
  return P::kBf16 ? upper || (word & 0x7f80u) == 0x7f80u : upper;
}

// A thread's pieces of a tile: visit(key, piece).
template <class Visit>
__device__ __forceinline__ void for_own(int count, Visit&& visit) {
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>(kKeys * count); i += kThreads) {
    visit(static_cast<int>(i / static_cast<unsigned>(count)), static_cast<int>(i % static_cast<unsigned>(count)));
  }
}

// Lanes whose first halves would meet in a bank take turns.
__device__ __forceinline__ void store_oct(float4* to, unsigned oct, const float* values) {
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned part = i ^ (oct >> 2 & 1);
    float4 four = make_float4(values[0], values[1], values[2], values[3]);
    if (part == 1) four = make_float4(values[4], values[5], values[6], values[7]);
    cu::st_shared(to + part, four);
  }
}

// Begins to fetch keys or values. Bytes that need no change are copied as they are; others are expanded here, as soon
// as the first kMost of a thread's pieces, all fetched at once, are there.
template <class P, bp_type kType>
__device__ __forceinline__ void fetch_tile(const CacheSide& side, const std::int32_t* places, Piece* to, int pitch) {
  if constexpr (P::kRaw) {
    const auto stored = static_cast<int>(side.pitch * P::kElement) / static_cast<int>(sizeof(Piece));
    for_own(pitch - 1, [&](int key, int piece) {
      const std::int64_t place = cu::ld_shared(places + key);
      Piece* at = to + key * pitch + piece;
      if (place >= 0 && piece < stored) {
        __pipeline_memcpy_async(at, reinterpret_cast<const Piece*>(side.data) + place * stored + piece, sizeof(Piece));
      } else {
        cu::st_shared(at, make_uint4(0, 0, 0, 0));
      }
    });
  } else {
    constexpr unsigned kMost = 4;                                // as registers allow
    const unsigned octs = static_cast<unsigned>(pitch - 1) / 2;  // of a row
#pragma unroll 1
    for (unsigned first = threadIdx.x; first < octs * kKeys; first += kMost * kThreads) {
      typename Cached<kType>::Raw raw[kMost];
#pragma unroll
      for (unsigned n = 0; n < kMost; ++n) {
        const unsigned key = (first + n * kThreads) / octs, oct = (first + n * kThreads) % octs;
        const std::int32_t place = key < kKeys ? cu::ld_shared(places + key) : -1;
        raw[n] = {};
        if (place >= 0 && oct * 8 < side.pitch) {
          raw[n] = Cached<kType>::fetch(side, place, static_cast<int>(oct * 8), static_cast<int>(oct * 8 + 4));
        }
      }
#pragma unroll
      for (unsigned n = 0; n < kMost; ++n) {
        const unsigned key = (first + n * kThreads) / octs, oct = (first + n * kThreads) % octs;
        if (key >= kKeys) break;
        float values[8];
        Cached<kType>::expand(raw[n], values);
        store_oct(reinterpret_cast<float4*>(to + key * static_cast<unsigned>(pitch) + oct * 2), oct, values);
      }
    }
  }
  __pipeline_commit();
}

// Whether there is a special value among a thread's own pieces, which have arrived.
template <class P>
__device__ __forceinline__ bool finds_special(const Piece* tile, int pitch) {
  bool found = false;
  const auto look = [&](const Piece& piece) {
    found =
        found || is_special<P>(piece.x) || is_special<P>(piece.y) || is_special<P>(piece.z) || is_special<P>(piece.w);
  };
  if constexpr (P::kRaw) {
    for_own(pitch - 1, [&](int key, int piece) { look(cu::ld_shared(tile + key * pitch + piece)); });
  } else {
    for_own((pitch - 1) / 2, [&](int key, int oct) {
      const int first = oct >> 2 & 1;  // in turns, as they were stored
      look(cu::ld_shared(tile + key * pitch + oct * 2 + first));
      look(cu::ld_shared(tile + key * pitch + oct * 2 + 1 - first));
    });
  }
  return found;
}

// Values of one step of keys, 32 of their elements from `first` on, as a right factor.
template <class P>
__device__ __forceinline__ void load_values(const Room& room, int step, int first, std::uint32_t (&words)[4][2]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if constexpr (P::kBf16) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int piece = first / 8 + pair * 2 + lane / 16;
      std::uint32_t loaded[4];  // what lies beyond the row is another one's, and never stored
      load_matrices<true>(loaded, room.values + (step * 16 + lane % 16) * room.value_pitch +
                                      (piece < room.value_pitch - 1 ? piece : 0));
      words[2 * pair][0] = loaded[0];
      words[2 * pair][1] = loaded[1];
      words[2 * pair + 1][0] = loaded[2];
      words[2 * pair + 1][1] = loaded[3];
    }
  } else {
    const auto* tile = reinterpret_cast<const std::uint32_t*>(room.values);
    const std::uint32_t* row = tile + (step * 8 + lane % 4 * 2) * room.value_pitch * 4;
#pragma unroll
    for (int group = 0; group < 4; ++group) {
      const int column = first + group * 8 < (room.value_pitch - 1) * 4 ? first + group * 8 + lane / 4 : lane / 4;
      words[group][0] = cu::ld_shared(row + column);
      words[group][1] = cu::ld_shared(row + room.value_pitch * 4 + column);
    }
  }
}

}  // namespace backplane::cuda::prefill

// Attention over pages, for decoding and prompts alike. A block has one KV head and up to 16 of the rows that share it:
// a row is one query head of one token. Keys go by chunks at fixed positions. Where there are few blocks, chunks are
// computed apart and combined by a second kernel; else a block does its rows' chunks one after another. Both combine
// with the same expressions in the same order, so the bits are the same.
#include "backends/cuda/attention.cuh"

namespace backplane::cuda {
namespace {

constexpr int kWarps = 4;
constexpr unsigned kThreads = kWarps * 32;
constexpr int kKeys = 32;  // at a time: one for each lane

// Keys or values [begin, begin + kKeys) of one head to shared memory, as floats, a line for each; zero where no row of
// the block looks.
template <bp_type kType>
__device__ __forceinline__ void load_keys(const AttentionCall& call, const CacheSide& side, const std::int32_t* table,
                                          std::int64_t begin, std::int64_t first, std::int64_t last, float* to,
                                          int line) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const CacheView& cache = call.cache;
#pragma unroll 1
  for (int key = warp; key < kKeys; key += kWarps) {
    const std::int64_t position = begin + key;
    std::int64_t place = -1;
    if (position >= first && position <= last) {
      const std::int64_t page = cu::ld_global(table + position / cache.page_size);
      if (page < 0 || page >= cache.pages) {
        if (lane == 0) report(call.fault, kPageFault);
      } else {
        place = place_of(cache, page, blockIdx.y, position % cache.page_size);
      }
    }
    const int d = 8 * lane;
    if (d >= side.dim) continue;
    float values[8] = {};
    if (place >= 0) Cached<kType>::expand(Cached<kType>::fetch(side, place, d, d + 4), values);
    for (int i = 0; i < 8; ++i) {
      if (d + i < side.dim) cu::st_shared(to + key * line + d + i, values[i]);
    }
  }
}

template <int kParts>
constexpr int kRowsPerWarp = kParts <= 4 ? 4 : 2;
template <int kParts>
constexpr int kRowsPerBlock = kRowsPerWarp<kParts>* kWarps;

// What a block has in shared memory.
struct Room {
  float* q;        // [rows][dim]
  float* keys;     // [kKeys][line]: keys, then values
  float* weights;  // [rows][kKeys]
  int line;
};

__device__ __forceinline__ float score(const AttentionCall& call, const float* q, const float* key) {
  float dot = 0.0f;
#pragma unroll 4
  for (int d = 0; d < call.cache.k.dim; ++d) dot = fmaf(cu::ld_shared(q + d), cu::ld_shared(key + d), dot);
  dot *= call.scale;
  return call.softcap > 0.0f ? call.softcap * tanhf(dot / call.softcap) : dot;
}

// Scores of the loaded keys for one row, a key for each lane; their weights go to shared memory.
template <int kParts>
__device__ __forceinline__ void weigh(const AttentionCall& call, const Room& room, int slot, const Row& row,
                                      std::int64_t begin, Softmax<kParts>& part) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const bool seen = begin + lane >= row.first && begin + lane <= row.last;
  float weight = 0.0f;
  if (__any_sync(0xffffffffu, seen)) {
    const float own = seen ? score(call, room.q + slot * call.cache.k.dim, room.keys + lane * room.line) : -INFINITY;
    const float largest = fmaxf(part.largest, warp_max(own));
    weight = seen ? expf(own - largest) : 0.0f;
    const float before = expf(part.largest - largest);
    part.largest = largest;
    part.sum = fmaf(part.sum, before, warp_sum(weight));
#pragma unroll
    for (int i = 0; i < kParts; ++i) part.out[i] *= before;
  }
  cu::st_shared(room.weights + slot * kKeys + lane, weight);
}

// Adds the loaded values of one row. A weight of 0 is no value at all: what it belongs to may not be a number.
template <int kParts>
__device__ __forceinline__ void add_values(const AttentionCall& call, const Room& room, int slot,
                                           Softmax<kParts>& part) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 2
  for (int key = 0; key < kKeys; ++key) {
    const float weight = cu::ld_shared(room.weights + slot * kKeys + key);
    if (weight == 0.0f) continue;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int d = lane + 32 * i;
      if (d < call.cache.v.dim) {
        part.out[i] = fmaf(weight, cu::ld_shared(room.keys + key * room.line + d), part.out[i]);
      }
    }
  }
}

// The tokens of one sequence in this step, as rows: the query heads of this KV head, token after token.
struct Block {
  std::int64_t start, tokens;         // of the sequence
  std::int64_t first_row;             // of this block
  std::int64_t first = 0, last = -1;  // keys that any of its rows sees; none: no row
  const std::int32_t* table;          // pages
};

template <int kRows>
__device__ Block find_block(const AttentionCall& call) {
  const std::int64_t tiles = gridDim.x / (call.last_sequence - call.first_sequence);
  const std::int64_t b = call.first_sequence + blockIdx.x / tiles;
  Block block;
  block.start = cu::ld_global(call.q_start + b);
  block.tokens = cu::ld_global(call.q_start + b + 1) - block.start;
  block.first_row = blockIdx.x % tiles * kRows;
  block.table = call.page_table + b * call.max_pages;
  for (int i = 0; i < kRows; ++i) {
    const Row row = find_row(call, block.start, block.tokens, block.first_row + i);
    if (row.token < 0) continue;
    block.first = block.last < 0 || row.first < block.first ? row.first : block.first;
    block.last = row.last > block.last ? row.last : block.last;
  }
  return block;
}

// One chunk of the keys for this warp's rows.
template <bp_type kType, int kParts>
__device__ __forceinline__ void do_chunk(const AttentionCall& call, const Room& room, const Block& block,
                                         std::int64_t chunk, const Row* rows, Softmax<kParts>* parts) {
  constexpr int kOwn = kRowsPerWarp<kParts>;
  const int slot = static_cast<int>(threadIdx.x / 32) * kOwn;
  const std::int64_t end = chunk * kChunk + kChunk - 1 < block.last ? chunk * kChunk + kChunk - 1 : block.last;
  std::int64_t begin = chunk * kChunk;
  if (block.first > begin) begin = block.first / kKeys * kKeys;
  for (; begin <= end; begin += kKeys) {
    __syncthreads();
    load_keys<kType>(call, call.cache.k, block.table, begin, block.first, block.last, room.keys, room.line);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) weigh(call, room, slot + i, rows[i], begin, parts[i]);
    __syncthreads();
    load_keys<kType>(call, call.cache.v, block.table, begin, block.first, block.last, room.keys, room.line);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) add_values(call, room, slot + i, parts[i]);
  }
}

template <class A, bp_type kType, int kParts>
__global__ void __launch_bounds__(kThreads) attention_kernel(const AttentionCall call) {
  constexpr int kOwn = kRowsPerWarp<kParts>, kRows = kRowsPerBlock<kParts>;
  CU_DYN_SHARED(float, shared);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const CacheView& cache = call.cache;
  const Block block = find_block<kRows>(call);
  if (block.last < 0) return;
  std::int64_t from = block.first / kChunk, to = block.last / kChunk;
  if (call.partial != nullptr) {
    if (blockIdx.z < from || blockIdx.z > to) return;
    from = to = blockIdx.z;
  }

  Room room;
  room.line = static_cast<int>(cache.k.dim > cache.v.dim ? cache.k.dim : cache.v.dim) + 1;
  room.q = shared;
  room.keys = room.q + kRows * cache.k.dim;
  room.weights = room.keys + kKeys * room.line;
  Row rows[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    rows[i] = find_row(call, block.start, block.tokens, block.first_row + warp * kOwn + i);
    const A* q = rows[i].token >= 0 ? row_of<A>(call.q, rows[i].token * call.heads + rows[i].head) : nullptr;
    for (int d = lane; d < cache.k.dim; d += 32) {
      cu::st_shared(room.q + (warp * kOwn + i) * cache.k.dim + d, q != nullptr ? to_float(cu::ld_global(q + d)) : 0.0f);
    }
  }

  Softmax<kParts> all[kOwn];
  for (std::int64_t chunk = from; chunk <= to; ++chunk) {
    Softmax<kParts> parts[kOwn];
    do_chunk<kType>(call, room, block, chunk, rows, parts);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!sees(rows[i], chunk)) continue;
      if (call.partial != nullptr) {
        store_partial(call, parts[i], rows[i], chunk);
      } else {
        all[i].combine(parts[i]);
      }
    }
  }
  if (call.partial != nullptr) return;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (rows[i].token >= 0) finish<A>(call, all[i], rows[i].token, rows[i].head, lane);
  }
}

// Combines the chunks of a row, a warp each.
template <class A, int kParts>
__global__ void __launch_bounds__(kThreads) combine_kernel(const AttentionCall call) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t number = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const std::int64_t token = cu::ld_global(call.q_start + call.first_sequence) + number / call.heads;
  const std::int64_t head = number % call.heads;
  if (token >= cu::ld_global(call.q_start + call.last_sequence)) return;
  const Keys keys = keys_of(call, token);
  if (keys.last < 0) return;
  Softmax<kParts> all;
  for (std::int64_t chunk = keys.first / kChunk; chunk <= keys.last / kChunk; ++chunk) {
    const float* from = partial_of(call, token, head, chunk);
    Softmax<kParts> part;
    part.largest = cu::ld_global(from);
    part.sum = cu::ld_global(from + 1);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (lane + 32 * i < call.cache.v.dim) part.out[i] = cu::ld_global(from + 2 + lane + 32 * i);
    }
    all.combine(part);
  }
  finish<A>(call, all, token, head, lane);
}

template <class A, bp_type kType, int kParts>
cudaError_t launch_attention(cudaStream_t stream, const AttentionCall& call) {
  const CacheView& cache = call.cache;
  const std::int64_t sequences = call.last_sequence - call.first_sequence, group = call.heads / cache.heads;
  constexpr int kRows = kRowsPerBlock<kParts>;
  const std::int64_t line = (cache.k.dim > cache.v.dim ? cache.k.dim : cache.v.dim) + 1;
  const auto bytes = static_cast<std::size_t>(kRows * cache.k.dim + kKeys * line + kRows * kKeys) * sizeof(float);
  const dim3 grid(static_cast<unsigned>(sequences) * blocks_for(call.max_q * group, kRows),
                  static_cast<unsigned>(cache.heads), call.partial != nullptr ? static_cast<unsigned>(call.chunks) : 1);
  const cudaError_t error = launch(stream, attention_kernel<A, kType, kParts>, grid, kThreads, bytes, call);
  if (error != cudaSuccess || call.partial == nullptr) return error;
  const unsigned blocks = blocks_for(sequences * call.max_q * call.heads, kWarps);
  return launch(stream, combine_kernel<A, kParts>, dim3(blocks), kThreads, 0, call);
}

template <class A, int kParts>
cudaError_t launch_typed(cudaStream_t stream, const AttentionCall& call) {
  return visit_cache(call.cache.type,
                     [&]<bp_type kType>() { return launch_attention<A, kType, kParts>(stream, call); });
}

}  // namespace

const char* kernel_name(const AttentionCall& call) {
  return call.partial != nullptr ? "paged, chunks apart" : "paged, chunks in turn";
}

cudaError_t enqueue(cudaStream_t stream, const AttentionCall& call) {
  if (call.first_sequence == call.last_sequence || call.max_q == 0 || call.heads == 0) return cudaSuccess;
  const bool small = call.cache.k.dim <= 128 && call.cache.v.dim <= 128;
  return visit_activation(call.activation, [&]<class A>() {
    return small ? launch_typed<A, 4>(stream, call) : launch_typed<A, 8>(stream, call);
  });
}

}  // namespace backplane::cuda

// Attention over pages where reading the cache is all the work: each key and value is read once, for all the query
// heads that share it, straight into registers.
//
// A block has one KV head of one sequence, up to kRows of the rows that share it, and one chunk of 256 keys after
// another. Its warps take tiles of 32 / kRows keys in turn. In a tile, kLanes lanes share a key, eight elements each,
// so that a warp reads whole lines; all reads of a tile are on their way before the first is used. With 12 warps on a
// multiprocessor and 4 KB a warp (D = 128, 16 bit) that is 48 KB at best: an H200 needs about 22 KB in flight on each
// to keep its memory busy. Then, for its lanes' parts of 32 scores (keys by rows), a warp sums by exchanging halves, 31
// shuffles instead of 5 for each score, and is left with one score in each lane.
//
// Chunks begin at fixed positions and are combined in their order, with the same expressions whether one block does all
// of them or several leave theirs in the workspace, so that a token's bits don't depend on what else is in the step.
// The last of several blocks to end combines; it knows by a counter that it leaves at zero for the next launch.
#include "backends/cuda/attention_tile.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kThreads = kWarps * 32;

// Blocks on a multiprocessor, which says how many registers a thread may have: as many as don't spill.
template <class S>
constexpr int kResident = S::kLanes == 32 || S::kRows == 8 ? 2 : 3;

// The query of a row to shared memory, by a warp; zeros where there is none, or beyond its end.
template <class A>
__device__ __forceinline__ void load_query(const AttentionCall& call, const Row& row, float* to, int elements) {
  const A* x = row_of<A>(call.q, static_cast<std::int64_t>(row.token) * call.heads + row.head);
  for (int d = static_cast<int>(threadIdx.x % 32); d < elements; d += 32) {
    cu::st_shared(to + d, row.token >= 0 && d < call.cache.k.dim ? to_float(cu::ld_global(x + d)) : 0.0f);
  }
}

// What the warps have found about a chunk; four floats are stored at once.
template <class S>
struct alignas(16) Results {
  float out[kWarps][S::kRows][8 * S::kLanes];
  float largest[kWarps][S::kRows], sum[kWarps][S::kRows];
};

template <bp_type kType, class S>
__device__ __forceinline__ void store_results(State<S>& state, Results<S>& results) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const Elements<kType, S::kLanes> at;
  const bool swap = at.swaps();
#pragma unroll
  for (int r = 0; r < S::kRows; ++r) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int step = S::kLanes; step < 32; step *= 2) {
        state.out[r][i] += __shfl_xor_sync(0xffffffffu, state.out[r][i], step);
      }
    }
    if (lane >= S::kLanes) continue;
    const float4 low{state.out[r][0], state.out[r][1], state.out[r][2], state.out[r][3]};
    const float4 high{state.out[r][4], state.out[r][5], state.out[r][6], state.out[r][7]};
    float* to = results.out[warp][r];
    cu::st_shared(reinterpret_cast<float4*>(to + (swap ? at.second : at.first)), swap ? high : low);
    cu::st_shared(reinterpret_cast<float4*>(to + (swap ? at.first : at.second)), swap ? low : high);
  }
#pragma unroll
  for (int step = S::kRows; step < 32; step *= 2) state.sum += __shfl_xor_sync(0xffffffffu, state.sum, step);
  if (lane < S::kRows) {
    cu::st_shared(&results.largest[warp][lane], state.largest);
    cu::st_shared(&results.sum[warp][lane], state.sum);
  }
}

// The warps' results of a row, in their order.
template <class S>
__device__ __forceinline__ Softmax<S::kParts> load_results(const Results<S>& results, int row) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  Softmax<S::kParts> all;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    Softmax<S::kParts> part;
    part.largest = cu::ld_shared(&results.largest[warp][row]);
    part.sum = cu::ld_shared(&results.sum[warp][row]);
#pragma unroll
    for (int i = 0; i < S::kParts; ++i) part.out[i] = cu::ld_shared(&results.out[warp][row][lane + 32 * i]);
    all.combine(part);
  }
  return all;
}

// The chunks so far of a row, which a warp keeps to itself: registers are for the tiles.
template <int kParts>
__device__ __forceinline__ void keep(float (*room)[32], const Softmax<kParts>& value) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  cu::st_shared(&room[0][lane], value.largest);
  cu::st_shared(&room[1][lane], value.sum);
#pragma unroll
  for (int i = 0; i < kParts; ++i) cu::st_shared(&room[2 + i][lane], value.out[i]);
}

template <int kParts>
__device__ __forceinline__ Softmax<kParts> kept(const float (*room)[32]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  Softmax<kParts> value;
  value.largest = cu::ld_shared(&room[0][lane]);
  value.sum = cu::ld_shared(&room[1][lane]);
#pragma unroll
  for (int i = 0; i < kParts; ++i) value.out[i] = cu::ld_shared(&room[2 + i][lane]);
  return value;
}

// What a block does: rows of one sequence, and chunks [from, to].
struct Work {
  std::int64_t start, tokens, first_row;  // of the sequence, and of the block among its rows
  Keys keys;                              // that any of the rows sees; none: no row
  const std::int32_t* table;              // pages
  std::int32_t from, to;
  unsigned blocks;  // that share the rows
};

template <class S>
__device__ __forceinline__ Work find_work(const AttentionCall& call, State<S>& state) {
  const std::int64_t tiles = gridDim.x / (call.last_sequence - call.first_sequence);
  const std::int64_t b = call.first_sequence + blockIdx.x / tiles;
  Work work;
  const Tokens own = tokens_of(call, b);
  work.start = own.start;
  work.tokens = own.count;
  work.first_row = blockIdx.x % tiles * S::kRows;
  work.table = call.page_table + b * call.max_pages;
  // A lane looks at one row; every group of kRows lanes sees all of them.
  const Row row = find_row(call, work.start, work.tokens, work.first_row + threadIdx.x % S::kRows);
  state.keys = row.keys;
  std::int32_t first = row.token >= 0 ? row.keys.first : INT32_MAX, last = row.keys.last;
  std::int32_t latest = first, earliest = row.token >= 0 ? last : INT32_MAX;
  if (row.token < 0) latest = 0;
#pragma unroll
  for (int step = 1; step < S::kRows; step *= 2) {
    first = min(first, __shfl_xor_sync(0xffffffffu, first, step));
    last = max(last, __shfl_xor_sync(0xffffffffu, last, step));
    latest = max(latest, __shfl_xor_sync(0xffffffffu, latest, step));
    earliest = min(earliest, __shfl_xor_sync(0xffffffffu, earliest, step));
  }
  const unsigned there = __ballot_sync(0xffffffffu, row.token >= 0) & ((1u << S::kRows) - 1);
  state.rows = 32 - __clz(static_cast<int>(there));
  state.mixed = first != latest || last != earliest;
  work.keys = {first, last};
  work.from = static_cast<std::int32_t>(first / kChunk);
  work.to = static_cast<std::int32_t>(last / kChunk);
  if (last < 0) return work;
  const int chunks = work.to - work.from + 1, parts = static_cast<int>(gridDim.z), each = (chunks + parts - 1) / parts;
  work.blocks = static_cast<unsigned>((chunks + each - 1) / each);
  work.from += static_cast<int>(blockIdx.z) * each;
  work.to = min(work.to, work.from + each - 1);
  return work;
}

// This warp's tiles of the chunk that begins at a key.
template <bp_type kType, class S>
__device__ __forceinline__ void do_chunk(const AttentionCall& call, const Work& work, const std::int32_t* places,
                                         std::int32_t begin, State<S>& state) {
  constexpr std::int32_t kStep = kWarps * S::kTile;
  const std::int32_t end = min(static_cast<std::int32_t>(kChunk), work.keys.last - begin + 1);
  std::int32_t key = static_cast<std::int32_t>(threadIdx.x / 32) * S::kTile;
  if (work.keys.first > begin + key) key += (work.keys.first - begin - key) / kStep * kStep;
  places += threadIdx.x % 32 / S::kLanes;
  Tile<kType, S> tile;
  if (Tile<kType, S>::kAhead && key < end) tile.fetch(call.cache, places + key);
#pragma unroll 1
  for (; key < end; key += kStep) {
    if constexpr (Tile<kType, S>::kAhead) {
      Tile<kType, S> next = tile;
      if (key + kStep < end) next.fetch(call.cache, places + key + kStep);
      do_tile<kType, S>(call, places + key, begin + key, tile, state);
      tile = next;
    } else {
      tile.fetch(call.cache, places + key);
      do_tile<kType, S>(call, places + key, begin + key, tile, state);
    }
  }
}

// Whether this is the last of the blocks that share the rows, which then may read what the others have left.
__device__ __forceinline__ bool is_last(const AttentionCall& call, unsigned blocks, int* room) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned* counter = call.counters + blockIdx.x * gridDim.y + blockIdx.y;
    const bool last = atomicAdd(counter, 1u) == blocks - 1;
    if (last) atomicExch(counter, 0u);
    cu::st_shared(room, last ? 1 : 0);
  }
  __syncthreads();
  if (cu::ld_shared(room) == 0) return false;
  __threadfence();
  return true;
}

// A row of the block, in shared memory meanwhile.
__device__ __forceinline__ Row row_at(const int4* rows, int number) {
  const int4 row = cu::ld_shared(rows + number);
  return {row.x, row.y, {row.z, row.w}};
}

// Rows, their queries and empty results. The queries pass through the room of the warps' results.
template <bp_type kType, class S>
__device__ __forceinline__ void prepare(const AttentionCall& call, const Work& work, int4* rows, Results<S>& results,
                                        float (*all)[S::kParts + 2][32], State<S>& state) {
#pragma unroll
  for (int i = 0; i < S::kOwn; ++i) {
    const int r = static_cast<int>(threadIdx.x / 32) + kWarps * i;
    const Row row = find_row(call, work.start, work.tokens, work.first_row + r);
    if (threadIdx.x % 32 == 0) cu::st_shared(rows + r, int4{row.token, row.head, row.keys.first, row.keys.last});
    if (call.activation == BP_TYPE_BF16) {
      load_query<__nv_bfloat16>(call, row, results.out[0][r], 8 * S::kLanes);
    } else {
      load_query<float>(call, row, results.out[0][r], 8 * S::kLanes);
    }
    keep(all[r], Softmax<S::kParts>{});
  }
  __syncthreads();
  const Elements<kType, S::kLanes> at;
#pragma unroll
  for (int r = 0; r < S::kRows; ++r) at.load(results.out[0][r], state.q[r]);
}

template <bp_type kType, class S>
__global__ void __launch_bounds__(kThreads, kResident<S>) attention_kernel(const AttentionCall call) {
  CU_SHARED(std::int32_t, places, [kChunk]);
  CU_SHARED(Results<S>, results);
  CU_SHARED(float, all, [S::kRows][S::kParts + 2][32]);
  CU_SHARED(int4, rows, [S::kRows]);
  CU_SHARED(int, room);
  const int warp = static_cast<int>(threadIdx.x / 32);
  State<S> state;
  const Work work = find_work(call, state);
  if (work.keys.last < 0 || work.from > work.to) return;
  prepare<kType, S>(call, work, rows, results, all, state);
  for (std::int32_t chunk = work.from; chunk <= work.to; ++chunk) {
    const auto begin = static_cast<std::int32_t>(chunk * kChunk);
    for (auto key = static_cast<std::int32_t>(threadIdx.x); key < kChunk; key += kThreads) {
      const bool seen = begin + key >= work.keys.first && begin + key <= work.keys.last;
      cu::st_shared(places + key, seen ? place_of_key(call, work.table, begin + key) : -1);
    }
    __syncthreads();
    state.clear();
    do_chunk<kType, S>(call, work, places, begin, state);
    store_results<kType, S>(state, results);
    if (!CU_FAULT("attention.barrier")) __syncthreads();
#pragma unroll
    for (int i = 0; i < S::kOwn; ++i) {
      const Row own = row_at(rows, warp + kWarps * i);
      if (!sees(own, chunk)) continue;
      const Softmax<S::kParts> part = load_results<S>(results, warp + kWarps * i);
      if (work.blocks > 1) {
        store_partial(call, part, own, chunk);
      } else {
        Softmax<S::kParts> sum = kept<S::kParts>(all[warp + kWarps * i]);
        sum.combine(part);
        keep(all[warp + kWarps * i], sum);
      }
    }
  }
  if (work.blocks > 1 && !is_last(call, work.blocks, &room)) return;
#pragma unroll
  for (int i = 0; i < S::kOwn; ++i) {
    const Row own = row_at(rows, warp + kWarps * i);
    if (own.token < 0) continue;
    Softmax<S::kParts> sum = kept<S::kParts>(all[warp + kWarps * i]);
    if (work.blocks > 1) {
      // There may be hundreds, one after another: eight at a time are on their way.
#pragma unroll 8
      for (std::int64_t chunk = own.keys.first / kChunk; chunk <= own.keys.last / kChunk; ++chunk) {
        sum.combine(load_partial<S::kParts>(call, own, chunk));
      }
    }
    finish(call, sum, own);
  }
}

template <bp_type kType, int kLanes, int kRows>
cudaError_t launch_shaped(cudaStream_t stream, const AttentionCall& call) {
  const std::int64_t sequences = call.last_sequence - call.first_sequence, group = call.heads / call.cache.heads;
  const dim3 grid(static_cast<unsigned>(sequences) * blocks_for(call.max_q * group, kRows),
                  static_cast<unsigned>(call.cache.heads), static_cast<unsigned>(call.parts));
  return launch(stream, attention_kernel<kType, Shape<kLanes, kRows>>, grid, kThreads, 0, call);
}

template <bp_type kType, int kLanes>
cudaError_t launch_typed(cudaStream_t stream, const AttentionCall& call) {
  // By the model alone, and not by how many tokens a sequence has: the shape decides about the order of sums.
  return call.heads / call.cache.heads <= 4 ? launch_shaped<kType, kLanes, 4>(stream, call)
                                            : launch_shaped<kType, kLanes, 8>(stream, call);
}

}  // namespace

std::int64_t attention_tiles(std::int64_t tokens, std::int64_t group) {
  return static_cast<std::int64_t>(blocks_for(tokens * group, group <= 4 ? 4 : 8));
}

const char* kernel_name(const AttentionCall& call) {
  return call.parts > 1 ? "paged, chunks apart" : "paged, chunks in turn";
}

cudaError_t enqueue(cudaStream_t stream, const AttentionCall& call) {
  if (call.first_sequence == call.last_sequence || call.max_q == 0 || call.heads == 0) return cudaSuccess;
  const std::int64_t dim = call.cache.k.dim > call.cache.v.dim ? call.cache.k.dim : call.cache.v.dim;
  return visit_cache(call.cache.type, [&]<bp_type kType>() {
    if (dim <= 64) return launch_typed<kType, 8>(stream, call);
    return dim <= 128 ? launch_typed<kType, 16>(stream, call) : launch_typed<kType, 32>(stream, call);
  });
}

}  // namespace backplane::cuda

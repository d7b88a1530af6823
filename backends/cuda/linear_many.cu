// Products for many tokens, on tensor cores. A block has 128 rows and 128 tokens and goes through the columns 128 bytes
// at a time, which lie in shared memory twice: while one half is multiplied, activations are copied to the other and
// weights are decoded for it, once for all tokens of the block.
//
// 128 x 128 by eight warps of 64 x 32: a warp reads (4 + 2) x 512 bytes of shared memory for 16 products, so that the
// 128 bytes a clock of an SM feed its tensor cores at the rate that mma.sync reaches on compute capability 9.0. Two
// such blocks fit an SM.
#include "backends/cuda/linear_mma.cuh"

namespace backplane::cuda {
namespace {

constexpr int kTile = 128;  // rows, and tokens
constexpr int kWarps = 8;
constexpr unsigned kThreads = kWarps * 32;
constexpr int kPieces = 8;           // of 16 bytes in a row of a tile
constexpr int kPitch = kPieces + 1;  // so that eight rows lie in different banks
constexpr int kSumPitch = kTile + 4;

using Piece = uint4;
struct Stage {
  Piece rows[kTile][kPitch], tokens[kTile][kPitch];
};
constexpr std::size_t kBytes = 2 * sizeof(Stage);
static_assert(kBytes >= sizeof(float) * kTile * kSumPitch);

template <class A, bp_type kType>
struct Loader {
  static constexpr int kWords = ProductOf<A, kType>::kWords;
  static constexpr int kPiecesPerOct = kWords / 4, kOcts = kPieces / kPiecesPerOct;
  static constexpr int kOwn = kTile * kOcts / static_cast<int>(kThreads);  // octs of a thread
  static constexpr bool kSameBytes = kWords == 2 * sizeof(A);              // of an activation here and in memory

  const LinearCall& call;
  std::int64_t first_row, first_token;
  std::uint32_t weights[kOwn][kWords];

  __device__ __forceinline__ static int row_of_own(int i) {
    return (static_cast<int>(threadIdx.x) + i * static_cast<int>(kThreads)) / kOcts;
  }
  __device__ __forceinline__ static int oct_of_own() { return static_cast<int>(threadIdx.x) % kOcts; }

  // Begins to fetch tile `number` of the columns: weights to registers, activations to shared memory.
  __device__ __forceinline__ void fetch(std::int64_t number, Stage& to) {
    const std::int64_t oct = number * kOcts + oct_of_own();
    const std::int64_t columns = call.weight.columns;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const std::int64_t token = first_token + row_of_own(i);
      const A* from = token < call.tokens ? token_of<A>(call.x, token) : nullptr;
      Piece* at = &to.tokens[row_of_own(i)][oct_of_own() * kPiecesPerOct];
      const A* first = from + oct * 8;
      if (kSameBytes && from != nullptr && oct * 8 + 8 <= columns &&
          reinterpret_cast<std::uintptr_t>(first) % 16 == 0) {
#pragma unroll
        for (int p = 0; p < kPiecesPerOct; ++p) {
          __pipeline_memcpy_async(at + p, reinterpret_cast<const Piece*>(first) + p, sizeof(Piece));
        }
      } else {
        std::uint32_t words[kWords];
        load_activations<kWords>(from, columns, oct, words);
        put(at, words);
      }
    }
    __pipeline_commit();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) load_weights<A, kType>(call.weight, first_row + row_of_own(i), oct, weights[i]);
  }

  // The weights to shared memory, and waits for the activations.
  __device__ __forceinline__ void finish(Stage& to) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) put(&to.rows[row_of_own(i)][oct_of_own() * kPiecesPerOct], weights[i]);
    if (!CU_FAULT("wide.missing_wait")) __pipeline_wait_prior(0);
  }

  __device__ __forceinline__ static void put(Piece* at, const std::uint32_t* words) {
#pragma unroll
    for (int p = 0; p < kPiecesPerOct; ++p) {
      cu::st_shared(at + p, make_uint4(words[4 * p], words[4 * p + 1], words[4 * p + 2], words[4 * p + 3]));
    }
  }
};

// A warp's 64 rows and 32 tokens of one stage. `row_groups` of 16 and `token_groups` of 8 are there.
template <class Type>
__device__ __forceinline__ void multiply_stage(const Stage& stage, int warp_row, int warp_token, int row_groups,
                                               int groups, float (&sums)[4][4][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int step = 0; step < kPieces / 2; ++step) {
    std::uint32_t words[4][2];
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {  // two groups of tokens at a time, with both halves of the depth
      std::uint32_t loaded[4];
      load_matrices(loaded, &stage.tokens[warp_token + pair * 16 + lane / 16 * 8 + lane % 8][step * 2 + lane / 8 % 2]);
      words[2 * pair][0] = loaded[0];
      words[2 * pair][1] = loaded[1];
      words[2 * pair + 1][0] = loaded[2];
      words[2 * pair + 1][1] = loaded[3];
    }
    const Right<Type::kTermsOfRight, 4> right(words);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= row_groups) break;
      std::uint32_t left[4];
      load_matrices(left, &stage.rows[warp_row + i * 16 + lane % 16][step * 2 + lane / 16]);
      Type::add(sums[i], left, right, groups);
    }
  }
}

// The sums of a block over shared memory, so that neighbors in memory are stored by neighbors.
template <class A>
__device__ __forceinline__ void store_sums(const LinearCall& call, float* room, std::int64_t first_row,
                                           std::int64_t first_token, int warp_row, int warp_token,
                                           const float (&sums)[4][4][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = warp_row + i * 16 + lane / 4 + e / 2 * 8, token = warp_token + j * 8 + lane % 4 * 2 + e % 2;
        cu::st_shared(room + token * kSumPitch + row, sums[i][j][e]);
      }
    }
  }
  __syncthreads();
  for (int token = warp; token < kTile && first_token + token < call.tokens; token += kWarps) {
    for (int row = lane; row < kTile && first_row + row < call.weight.rows; row += 32) {
      store<A>(call, first_token + token, first_row + row, cu::ld_shared(room + token * kSumPitch + row));
    }
  }
}

// How many blocks an SM shall have room for: decoding takes turns with multiplying only between blocks.
template <class A, bp_type kType>
constexpr int kBlocks = ProductOf<A, kType>::kBf16&& ProductOf<A, kType>::kQuantized ? 2 : 1;

template <class A, bp_type kType>
__global__ void __launch_bounds__(kThreads, (kBlocks<A, kType>)) wide_kernel(const LinearCall call) {
  using Type = typename ProductOf<A, kType>::Type;
  CU_DYN_SHARED(Stage, stages);
  const unsigned tiles = blocks_for(call.tokens, kTile);  // of tokens: neighbors have the same weights
  const std::int64_t first_row = std::int64_t{blockIdx.x / tiles} * kTile;
  const std::int64_t first_token = std::int64_t{blockIdx.x % tiles} * kTile;
  const int warp = static_cast<int>(threadIdx.x / 32), warp_row = warp % 2 * 64, warp_token = warp / 2 * 32;
  const int groups = token_groups<4>(call, first_token + warp_token);
  const std::int64_t rows_left = call.weight.rows - first_row - warp_row;
  const int row_groups = groups == 0 || rows_left <= 0 ? 0
                         : rows_left >= 64             ? 4
                                                       : static_cast<int>(rows_left + 15) / 16;

  Loader<A, kType> loader{call, first_row, first_token, {}};
  const std::int64_t count = (call.weight.columns + Loader<A, kType>::kOcts * 8 - 1) / (Loader<A, kType>::kOcts * 8);
  float sums[4][4][4] = {};
  loader.fetch(0, stages[0]);
  loader.finish(stages[0]);
  __syncthreads();
  for (std::int64_t number = 0; number < count; ++number) {
    Stage &now = stages[number % 2], &next = stages[(number + 1) % 2];
    if (number + 1 < count) loader.fetch(number + 1, next);
    multiply_stage<Type>(now, warp_row, warp_token, row_groups, groups, sums);
    if (number + 1 < count) loader.finish(next);
    if (!CU_FAULT("wide.missing_barrier")) __syncthreads();
  }
  store_sums<A>(call, reinterpret_cast<float*>(stages), first_row, first_token, warp_row, warp_token, sums);
}

template <class A, bp_type kType>
cudaError_t launch_wide(cudaStream_t stream, const LinearCall& call) {
  const cudaError_t error =
      cudaFuncSetAttribute(wide_kernel<A, kType>, cudaFuncAttributeMaxDynamicSharedMemorySize, int{kBytes});
  if (error != cudaSuccess) return error;
  const dim3 grid(blocks_for(call.weight.rows, kTile) * blocks_for(call.tokens, kTile));
  return launch(stream, wide_kernel<A, kType>, grid, kThreads, kBytes, call);
}

}  // namespace

cudaError_t enqueue_wide(cudaStream_t stream, const LinearCall& call) {
  return visit_activation(call.activation, [&]<class A>() {
    return visit_format(call.weight.type, [&]<bp_type kType>() { return launch_wide<A, kType>(stream, call); });
  });
}

}  // namespace backplane::cuda

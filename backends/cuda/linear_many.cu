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
  using Weights = RawWeights<kType>;
  static constexpr int kWords = ProductOf<A, kType>::kWords;
  static constexpr int kPiecesPerOct = kWords / 4, kOcts = kPieces / kPiecesPerOct;
  static constexpr int kOwn = kTile * kOcts / static_cast<int>(kThreads);  // octs of a thread, of rows or of tokens
  static constexpr int kNumbers = kOcts / Weights::kOcts;                  // RawWeights in a row of a tile
  static constexpr int kOwnWeights = kOwn / Weights::kOcts;
  static constexpr bool kSameBytes = kWords == 2 * sizeof(A);  // of an activation here and in memory

  const LinearCall& call;
  const std::int64_t first_row, first_token;
  const bool vectors = reads_vectors(call);
  Weights weights[kOwnWeights] = {};
  RawOct<A> activations[kSameBytes ? 1 : kOwn] = {};

  __device__ __forceinline__ Loader(const LinearCall& of, std::int64_t row, std::int64_t token)
      : call(of), first_row(row), first_token(token) {}

  __device__ __forceinline__ static int token_of_own(int i) {
    return (static_cast<int>(threadIdx.x) + i * static_cast<int>(kThreads)) / kOcts;
  }
  __device__ __forceinline__ static int oct_of_own() { return static_cast<int>(threadIdx.x) % kOcts; }
  // Rows in such an order that eight lanes that store a piece each meet all banks.
  __device__ __forceinline__ static int row_of_own(int i) {
    const int row = (static_cast<int>(threadIdx.x) + i * static_cast<int>(kThreads)) / kNumbers;
    if constexpr (Weights::kOcts == 1) return row;
    constexpr int kTurned = kNumbers == 2 ? 8 : 4;  // their lowest bit becomes the highest of that many
    return row / kTurned * kTurned + row % kTurned / 2 + row % 2 * (kTurned / 2);
  }
  __device__ __forceinline__ static int number_of_own() { return static_cast<int>(threadIdx.x) % kNumbers; }

  // Begins to fetch tile `number` of the columns: weights to registers, activations to shared memory, or to registers
  // if they have to become something else.
  __device__ __forceinline__ void fetch(int number, Stage& to) {
    if (!vectors) return gather(number, to);
    const std::int64_t octs = call.weight.columns / 8, oct = std::int64_t{number} * kOcts + oct_of_own();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const std::byte* from = token_or_last(call, first_token + token_of_own(i)) + oct * 8 * sizeof(A);
      if constexpr (kSameBytes) {
        Piece* at = &to.tokens[token_of_own(i)][oct_of_own() * kPiecesPerOct];
#pragma unroll
        for (int p = 0; p < kPiecesPerOct; ++p) {
          if (oct < octs) {
            __pipeline_memcpy_async(at + p, reinterpret_cast<const Piece*>(from) + p, sizeof(Piece));
          } else {
            cu::st_shared(at + p, Piece{});
          }
        }
      } else {
        activations[i].fetch(from, oct < octs);
      }
    }
    __pipeline_commit();
    const int own = number * kNumbers + number_of_own();
#pragma unroll
    for (int i = 0; i < kOwnWeights; ++i) {
      const std::byte* row = row_or_last(call.weight, first_row + row_of_own(i));
      weights[i].fetch(call.weight, row, own, Weights::oct_of(own, 0) < octs);
    }
  }

  // The same where something doesn't lie as vectors: straight to shared memory.
  __device__ __forceinline__ void gather(int number, Stage& to) {
    const std::int64_t columns = call.weight.columns, first = (std::int64_t{number} * kOcts + oct_of_own()) * 8;
#pragma unroll 1
    for (int i = 0; i < kOwn; ++i) {
      RawOct<A> oct;
      oct.gather(token_or_last(call, first_token + token_of_own(i)) + first * sizeof(A), sizeof(A), columns - first);
      put(&to.tokens[token_of_own(i)][oct_of_own() * kPiecesPerOct], oct);
    }
    const int own = number * kNumbers + number_of_own();
#pragma unroll 1
    for (int i = 0; i < kOwnWeights; ++i) {
      Weights some;
      const std::byte* row = row_or_last(call.weight, first_row + row_of_own(i));
      some.gather(call.weight, row, own, Weights::oct_of(own, 0) * 8 < columns);
      put_weights(to, row_of_own(i), number, some);
    }
  }

  // What is in registers to shared memory, and waits for the rest.
  __device__ __forceinline__ void finish(int number, Stage& to) {
    if (vectors) {
#pragma unroll
      for (int i = 0; i < kOwnWeights; ++i) put_weights(to, row_of_own(i), number, weights[i]);
#pragma unroll
      for (int i = 0; i < (kSameBytes ? 0 : kOwn); ++i) {
        put(&to.tokens[token_of_own(i)][oct_of_own() * kPiecesPerOct], activations[i]);
      }
    }
    if (!CU_FAULT("wide.missing_wait")) __pipeline_wait_prior(0);
  }

  __device__ __forceinline__ static void put_weights(Stage& to, int row, int number, const Weights& some) {
    const int own = number * kNumbers + number_of_own();
    const typename Weights::Factors factors = some.factors(own);
#pragma unroll
    for (int which = 0; which < Weights::kOcts; ++which) {
      std::uint32_t words[kWords];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        some.template to_words<kWords>(own, which, half, factors, words + half * kWords / 2);
      }
      put(&to.rows[row][Weights::oct_of(number_of_own(), which) * kPiecesPerOct], words);
    }
  }
  __device__ __forceinline__ static void put(Piece* at, const RawOct<A>& oct) {
    std::uint32_t words[kWords];
#pragma unroll
    for (int half = 0; half < 2; ++half) oct.template to_words<kWords>(half, words + half * kWords / 2);
    put(at, words);
  }
  __device__ __forceinline__ static void put(Piece* at, const std::uint32_t (&words)[kWords]) {
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

// How many blocks an SM has room for, where registers allow it without spills: while one decodes, the other multiplies.
template <class A, bp_type kType>
constexpr int kBlocks = kType == BP_TYPE_F32 || (ProductOf<A, kType>::kFloats && ProductOf<A, kType>::kQuantized) ? 1
                                                                                                                  : 2;

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

  using Tiles = Loader<A, kType>;
  Tiles loader(call, first_row, first_token);
  const auto count = static_cast<int>((call.weight.columns + Tiles::kOcts * 8 - 1) / (Tiles::kOcts * 8));
  float sums[4][4][4] = {};
  loader.fetch(0, stages[0]);
  loader.finish(0, stages[0]);
  __syncthreads();
  for (int number = 0; number < count; ++number) {
    Stage &now = stages[number % 2], &next = stages[(number + 1) % 2];
    if (number + 1 < count) loader.fetch(number + 1, next);
    multiply_stage<Type>(now, warp_row, warp_token, row_groups, groups, sums);
    if (number + 1 < count) loader.finish(number + 1, next);
    if (!CU_FAULT("wide.missing_barrier")) __syncthreads();
  }
  store_sums<A>(call, reinterpret_cast<float*>(stages), first_row, first_token, warp_row, warp_token, sums);
}

template <class A, bp_type kType>
cudaError_t launch_wide(cudaStream_t stream, const LinearCall& call) {
  const dim3 grid(blocks_for(call.weight.rows, kTile) * blocks_for(call.tokens, kTile));
  return launch_shared(stream, wide_kernel<A, kType>, grid, kThreads, kBytes, 0, call.shared_bytes, call);
}

}  // namespace

cudaError_t enqueue_wide(cudaStream_t stream, const LinearCall& call) {
  return visit_activation(call.activation, [&]<class A>() {
    return visit_format(call.weight.type, [&]<bp_type kType>() { return launch_wide<A, kType>(stream, call); });
  });
}

}  // namespace backplane::cuda

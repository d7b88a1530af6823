// Products for some tokens, up to a few dozen, where reading the weights still is most of the work: decoding batches.
// A block has 32 rows and 32 tokens; its warps go through the columns side by side, 32 at a time, and add up their sums
// at the end, in one order. A weight is decoded by the lane that multiplies it, straight to registers, and an
// activation is read once a block: nothing goes through shared memory and no warp waits for another before the end.
#include "backends/cuda/linear_mma.cuh"

namespace backplane::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kThreads = kWarps * 32;
constexpr int kRows = 32, kTokens = 32;
constexpr int kLine = kRows + 4;  // lanes that store sums don't meet in a bank

// A lane's share of 32 columns: with g = lane / 4 and t = lane % 4, eight columns from 8 t on of rows g + 8 i and
// tokens g + 8 i. That products take columns in another order than they have in memory is all the same to a sum, so
// that no lane needs what another one has read.
template <class A, bp_type kType>
struct Share {
  static constexpr int kWords = ProductOf<A, kType>::kWords;
  std::uint32_t rows[4][kWords], tokens[4][kWords];

  __device__ __forceinline__ void load(const LinearCall& call, std::int64_t first_row, std::int64_t first_token,
                                       int groups, std::int64_t oct) {
    const int g = static_cast<int>(threadIdx.x % 32) / 4;
    std::int64_t columns = call.weight.columns;
    if (CU_FAULT("narrow.lost_tail")) columns = columns / 32 * 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      load_weights<A, kType>(call.weight, first_row + g + 8 * i, oct, rows[i]);
      const std::int64_t token = first_token + g + 8 * i;
      const bool inside = i < groups && token < call.tokens && oct * 8 < columns;
      load_activations<kWords>(inside ? token_of<A>(call.x, token) : nullptr, columns, oct, tokens[i]);
    }
  }

  __device__ __forceinline__ void multiply_into(float (&sums)[2][4][4], int groups) const {
    using Type = typename ProductOf<A, kType>::Type;
#pragma unroll
    for (int step = 0; step < kWords / 2; ++step) {
      std::uint32_t words[4][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i][0] = tokens[i][2 * step];
        words[i][1] = tokens[i][2 * step + 1];
      }
      const Right<Type::kTermsOfRight, 4> right(words);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int upper = CU_FAULT("narrow.swapped_rows") ? 2 * i + 1 : 2 * i, lower = 4 * i + 1 - upper;
        const std::uint32_t left[4] = {rows[upper][2 * step], rows[lower][2 * step], rows[upper][2 * step + 1],
                                       rows[lower][2 * step + 1]};
        Type::add(sums[i], left, right, groups);
      }
    }
  }
};

template <class A, bp_type kType>
__global__ void __launch_bounds__(kThreads, 1) narrow_kernel(const LinearCall call) {
  CU_SHARED(float, of_warps, [kWarps][kTokens][kLine]);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const unsigned tiles = blocks_for(call.tokens, kTokens);  // of tokens: neighbors have the same weights
  const std::int64_t first_row = std::int64_t{blockIdx.x / tiles} * kRows;
  const std::int64_t first_token = std::int64_t{blockIdx.x % tiles} * kTokens;
  const std::int64_t parts = (call.weight.columns + 31) / 32;
  const int groups = token_groups<4>(call, first_token);
  float sums[2][4][4] = {};
  Share<A, kType> next;
  next.load(call, first_row, first_token, groups, std::int64_t{warp} * 4 + lane % 4);
  for (std::int64_t part = warp; part < parts; part += kWarps) {
    const Share<A, kType> now = next;  // the next one is on its way while this one is multiplied
    next.load(call, first_row, first_token, groups, (part + kWarps) * 4 + lane % 4);
    now.multiply_into(sums, groups);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = i * 16 + lane / 4 + e / 2 * 8, token = j * 8 + lane % 4 * 2 + e % 2;
        cu::st_shared(&of_warps[warp][token][row], sums[i][j][e]);
      }
    }
  }
  __syncthreads();
  for (int token = warp; token < kTokens && first_token + token < call.tokens; token += kWarps) {
    if (first_row + lane >= call.weight.rows) break;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += cu::ld_shared(&of_warps[w][token][lane]);
    store<A>(call, first_token + token, first_row + lane, sum);
  }
}

}  // namespace

cudaError_t enqueue_narrow(cudaStream_t stream, const LinearCall& call) {
  const dim3 grid(blocks_for(call.weight.rows, kRows) * blocks_for(call.tokens, kTokens));
  return visit_activation(call.activation, [&]<class A>() {
    return visit_format(call.weight.type, [&]<bp_type kType>() {
      return launch(stream, narrow_kernel<A, kType>, grid, kThreads, 0, call);
    });
  });
}

}  // namespace backplane::cuda

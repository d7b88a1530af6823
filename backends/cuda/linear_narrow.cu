// Products for some tokens, up to a few dozen, where reading the weights still is most of the work: decoding batches.
// A block has 32 rows and 32 tokens; its warps go through the columns side by side and add up their sums at the end, in
// one order. A weight is decoded by the lane that multiplies it, straight to registers, and an activation is read once
// a block: nothing goes through shared memory and no warp waits for another before the end.
//
// What a warp multiplies next is on its way meanwhile, as bytes: of weights of four bits 1 KB and their scales, of
// others 2 KB and more. With 16 warps on a multiprocessor that is 16 KB or 32 KB at a time, where an H200 needs about
// 22 to keep its memory busy. The registers for it are what sums and the rest leave of 128; F32 activations or weights
// want up to 250, with which 8 warps are all there are.
#include "backends/cuda/linear_mma.cuh"

namespace backplane::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kThreads = kWarps * 32;
constexpr int kRows = 32, kTokens = 32;
constexpr int kLine = kRows + 4;  // lanes that store sums don't meet in a bank

template <class T>
struct Four {
  T of[4];
};

// Four columns of a token, as they lie in memory.
template <class A>
struct RawPart {
  using Bits = std::conditional_t<sizeof(A) == 4, uint4, uint2>;
  Bits bits;

  __device__ __forceinline__ void fetch(const std::byte* at, bool inside) {
    bits = {};
    if (inside) bits = load_at<Bits>(at, 0);
  }
  template <int kWords>
  __device__ __forceinline__ void to_words(std::uint32_t* words) const {
    constexpr int kOwn = static_cast<int>(sizeof(Bits)) / 4;
    std::uint32_t own[kOwn];
    memcpy(own, &bits, sizeof(bits));
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      words[w] = kWords == kOwn ? own[w] : w % 2 == 0 ? own[w / 2] << 16 : own[w / 2] & 0xffff0000u;
    }
  }
};

// What a lane reads: with g = lane / 4 and t = lane % 4, of rows g + 8 i and tokens g + 8 i what lies side by side with
// what its neighbors read. That products take columns in another order than they have in memory is all the same to a
// sum, so that no lane needs what another one has read. `number` is that of RawWeights.
template <class A, bp_type kType>
struct Source {
  using Weights = RawWeights<kType, true>;
  const LinearCall& call;
  const std::byte *first_row, *first_token;  // the block's
  int groups;                                // of tokens
  int octs;                                  // of columns
  std::uint32_t rows[4], tokens[4];          // bytes from the block's first one

  __device__ __forceinline__ Source(const LinearCall& of, std::int64_t row, std::int64_t token)
      : call(of),
        first_row(cu::keep(row_at(of.weight, row))),
        first_token(cu::keep(token_of<const std::byte>(of.x, token))),
        groups(token_groups<4>(of, token)),
        octs(static_cast<int>(of.weight.columns / 8)) {
    const int g = static_cast<int>(threadIdx.x % 32) / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rows[i] = static_cast<std::uint32_t>(row_or_last(call.weight, row + g + 8 * i) - first_row);
      tokens[i] = static_cast<std::uint32_t>(token_or_last(call, token + g + 8 * i) - first_token);
    }
  }

  __device__ __forceinline__ void fetch(Four<Weights>& to, int number) const {
    const bool inside = Weights::oct_of(number, 0) < octs;
#pragma unroll
    for (int i = 0; i < 4; ++i) to.of[i].fetch(call.weight, first_row + rows[i], number, inside);
  }
  __device__ __forceinline__ void fetch(Four<RawPart<A>>& to, int number, int which, int half) const {
    const int oct = Weights::oct_of(number, which);
    const bool inside = oct < (CU_FAULT("narrow.lost_tail") ? octs / 4 * 4 : octs);
    const auto bytes = static_cast<std::uint32_t>(oct * 8 * static_cast<int>(sizeof(A)));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to.of[i].fetch(first_token + (tokens[i] + bytes) + half * 4 * sizeof(A), inside && i < groups);
    }
  }
};

// Adds the products of four of a lane's columns.
template <class A, bp_type kType>
__device__ __forceinline__ void multiply_part(float (&sums)[2][4][4],
                                              const std::uint32_t (&rows)[4][ProductOf<A, kType>::kWords / 2],
                                              const std::uint32_t (&tokens)[4][ProductOf<A, kType>::kWords / 2],
                                              int groups) {
  using Type = typename ProductOf<A, kType>::Type;
#pragma unroll
  for (int step = 0; step < ProductOf<A, kType>::kWords / 4; ++step) {
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

// How many blocks an SM has room for: as many as registers allow without spills.
template <class A, bp_type kType>
constexpr int kBlocks = std::is_same_v<A, float> || kType == BP_TYPE_F32 ? 1 : 2;

// Adds up what the warps have, in their order, and stores it.
template <class A>
__device__ __forceinline__ void store_sums(const LinearCall& call, std::int64_t first_row, std::int64_t first_token,
                                           const float (&sums)[2][4][4]) {
  CU_SHARED(float, of_warps, [kWarps][kTokens][kLine]);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
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

template <class A, bp_type kType>
__global__ void __launch_bounds__(kThreads, (kBlocks<A, kType>)) narrow_kernel(const LinearCall call) {
  using Weights = RawWeights<kType, true>;
  using Product = ProductOf<A, kType>;
  constexpr int kWords = Product::kWords;
  // Unrolled, loads of later steps move up and want registers that there are only where weights are taken as they are.
  [[maybe_unused]] constexpr int kUnrolled = Product::kBf16 && !Product::kQuantized ? 2 : 1;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const unsigned tiles = blocks_for(call.tokens, kTokens);  // of tokens: neighbors have the same weights
  const std::int64_t first_row = std::int64_t{blockIdx.x / tiles} * kRows;
  const std::int64_t first_token = std::int64_t{blockIdx.x % tiles} * kTokens;
  const Source<A, kType> source(call, first_row, first_token);
  const auto parts = static_cast<int>((source.octs + 4 * Weights::kOcts - 1) / (4 * Weights::kOcts));
  float sums[2][4][4] = {};
  // Weights are on their way while those before are multiplied, activations while the four columns before are.
  Four<Weights> next;
  Four<RawPart<A>> ahead;
  source.fetch(next, warp * 4 + lane % 4);
  source.fetch(ahead, warp * 4 + lane % 4, 0, 0);
#pragma unroll 1
  for (int part = warp; part < parts; part += kWarps) {
    const int number = part * 4 + lane % 4, following = number + kWarps * 4;
    const Four<Weights> now = next;
    Four<typename Weights::Factors> factors;
#pragma unroll
    for (int i = 0; i < 4; ++i) factors.of[i] = now.of[i].factors(number);
    source.fetch(next, following);
#pragma unroll 1
    for (int which = 0; which < Weights::kOcts; ++which) {
#pragma unroll(kUnrolled)
      for (int half = 0; half < 2; ++half) {
        const Four<RawPart<A>> activations = ahead;
        const int then = which + half;
        source.fetch(ahead, then == Weights::kOcts ? following : number, then == Weights::kOcts ? 0 : then, 1 - half);
        std::uint32_t rows[4][kWords / 2], tokens[4][kWords / 2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          now.of[i].template to_words<kWords>(number, which, half, factors.of[i], rows[i]);
          activations.of[i].template to_words<kWords / 2>(tokens[i]);
        }
        multiply_part<A, kType>(sums, rows, tokens, source.groups);
      }
    }
  }
  store_sums<A>(call, first_row, first_token, sums);
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

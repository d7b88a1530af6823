// Products for few tokens, where reading the weights is all the work: a warp for some rows. And EMBED, which reads
// weights likewise.
#include "backends/cuda/linear.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kFewThreads = 128;
constexpr int kRowsPerWarp = 2;
constexpr int kRowsPerBlock = kFewThreads / 32 * kRowsPerWarp;
constexpr int kFewTokens = 8;

// Columns of activations in shared memory at a time: a multiple of what a warp covers at once.
template <int kTokens>
constexpr int kFewColumns = kTokens == 1 ? 2048 : 1024;

// A lane has eight columns of every 256. They are multiplied in order, and the lanes' sums are added in one order, so
// that a token's result is the same among one token or eight.
template <class A, bp_type kType, int kTokens>
__global__ void __launch_bounds__(kFewThreads) few_kernel(const LinearCall call) {
  constexpr int kColumns = kFewColumns<kTokens>;
  CU_SHARED(float4, x, [kTokens][kColumns / 4]);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t columns = call.weight.columns;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kRowsPerBlock + warp * kRowsPerWarp;
  const std::int64_t first_token = std::int64_t{blockIdx.y} * kTokens;
  float sums[kRowsPerWarp][kTokens] = {};
  for (std::int64_t begin = 0; begin < columns; begin += kColumns) {
    __syncthreads();  // everybody is done with the columns before
    for (int t = 0; t < kTokens; ++t) {
      const A* from = first_token + t < call.tokens ? row_of<A>(call.x, first_token + t) : nullptr;
      for (int i = static_cast<int>(threadIdx.x); i < kColumns; i += kFewThreads) {
        const bool inside = from != nullptr && begin + i < columns;
        cu::st_shared(reinterpret_cast<float*>(x[t]) + i, inside ? to_float(cu::ld_global(from + begin + i)) : 0.0f);
      }
    }
    __syncthreads();
    for (int at = lane * 8; at < kColumns && begin + at < columns; at += 256) {
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) {
        if (first_row + r >= call.weight.rows) continue;
        float w[8];
        Format<kType>::decode(call.weight, first_row + r, (begin + at) / 8, w);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          const float4 low = cu::ld_shared(&x[t][at / 4]);
          const float4 high = cu::ld_shared(&x[t][at / 4 + 1]);
          float sum = sums[r][t];
          sum = fmaf(low.x, w[0], sum);
          sum = fmaf(low.y, w[1], sum);
          sum = fmaf(low.z, w[2], sum);
          sum = fmaf(low.w, w[3], sum);
          sum = fmaf(high.x, w[4], sum);
          sum = fmaf(high.y, w[5], sum);
          sum = fmaf(high.z, w[6], sum);
          sums[r][t] = fmaf(high.w, w[7], sum);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float sum = warp_sum(sums[r][t]);
      const bool inside = first_row + r < call.weight.rows && first_token + t < call.tokens;
      if (lane == 0 && inside) store<A>(call, first_token + t, first_row + r, sum);
    }
  }
}

template <class A, bp_type kType, int kTokens>
cudaError_t launch_few(cudaStream_t stream, const LinearCall& call) {
  const dim3 grid(blocks_for(call.weight.rows, kRowsPerBlock), blocks_for(call.tokens, kTokens));
  return launch(stream, few_kernel<A, kType, kTokens>, grid, kFewThreads, 0, call);
}

// ---- EMBED

constexpr unsigned kEmbedThreads = 128;

template <class A, bp_type kType>
__global__ void __launch_bounds__(kEmbedThreads) embed_kernel(const EmbedCall call) {
  const std::int64_t token = blockIdx.x;
  const std::int32_t id = cu::ld_global(call.ids + token);
  if (id < 0 || id >= call.table.rows) {
    if (threadIdx.x == 0) report(call.fault, kIdFault);
    return;
  }
  A* out = row_of<A>(call.out, token);
  const std::int64_t columns = call.table.columns;
  for (std::int64_t oct = threadIdx.x; oct * 8 < columns; oct += kEmbedThreads) {
    float w[8];
    Format<kType>::decode(call.table, id, oct, w);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (oct * 8 + i < columns) cu::st_global(out + oct * 8 + i, from_float<A>(w[i]));
    }
  }
}

}  // namespace

const char* kernel_name(const LinearCall& call) {
  if (path_of(call) == LinearPath::kNarrow) return "mma, 32 x 32";
  if (path_of(call) == LinearPath::kWide) return "mma, 128 x 128";
  return call.tokens == 1 ? "few, 1 token" : "few, 8 tokens";
}

cudaError_t enqueue(cudaStream_t stream, const LinearCall& call) {
  if (call.tokens == 0 || call.weight.rows == 0) return cudaSuccess;
  const LinearPath path = path_of(call);
  if (path == LinearPath::kNarrow) return enqueue_narrow(stream, call);
  if (path == LinearPath::kWide) return enqueue_wide(stream, call);
  return visit_activation(call.activation, [&]<class A>() {
    return visit_format(call.weight.type, [&]<bp_type kType>() {
      if (call.tokens == 1) return launch_few<A, kType, 1>(stream, call);
      return launch_few<A, kType, kFewTokens>(stream, call);
    });
  });
}

cudaError_t enqueue(cudaStream_t stream, const EmbedCall& call) {
  if (call.tokens == 0) return cudaSuccess;
  return visit_activation(call.activation, [&]<class A>() {
    return visit_format(call.table.type, [&]<bp_type kType>() {
      return launch(stream, embed_kernel<A, kType>, dim3(static_cast<unsigned>(call.tokens)), kEmbedThreads, 0, call);
    });
  });
}

}  // namespace backplane::cuda

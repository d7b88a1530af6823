// EMBED: rows of a matrix by number.
#include "backends/cuda/formats.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kThreads = 128;
constexpr std::int64_t kColumns = 8 * kThreads;  // of a block

// Four columns of a row. Of eight that a quantized format decodes, a thread's neighbor has the others: so that what a
// warp stores follows.
template <bp_type kType>
__device__ __forceinline__ float4 four_of(const Matrix& table, std::int64_t row, std::int64_t column) {
  if constexpr (block_shape(kType).columns == 0) {
    return Format<kType>::four(table, row, column);
  } else {
    float w[8];
    Format<kType>::decode(table, row, column / 8, w);
    const bool upper = column % 8 != 0;
    return {upper ? w[4] : w[0], upper ? w[5] : w[1], upper ? w[6] : w[2], upper ? w[7] : w[3]};
  }
}

template <class A, bp_type kType>
__global__ void __launch_bounds__(kThreads) embed_kernel(const EmbedCall call) {
  const std::int64_t token = blockIdx.x;
  const std::int32_t id = cu::ld_global(call.ids + token);
  if (id < 0 || id >= call.table.rows) {
    if (threadIdx.x == 0 && blockIdx.y == 0) report(call.fault, kIdFault);
    return;
  }
  A* out = row_of<A>(call.out, token);
  const std::int64_t columns = call.table.columns, first = std::int64_t{blockIdx.y} * kColumns;
  for (std::int64_t i = first + threadIdx.x * 4; i < columns && i < first + kColumns; i += kThreads * 4) {
    store_four(out, i, columns, four_of<kType>(call.table, id, i));
  }
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const EmbedCall& call) {
  if (call.tokens == 0 || call.table.columns == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(call.tokens), blocks_for(call.table.columns, kColumns));
  return visit_activation(call.activation, [&]<class A>() {
    return visit_format(call.table.type, [&]<bp_type kType>() {
      return launch(stream, embed_kernel<A, kType>, grid, kThreads, 0, call);
    });
  });
}

}  // namespace backplane::cuda

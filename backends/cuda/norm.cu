#include "backends/cuda/common.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kThreads = 256;

// One block a row. Each thread sums its columns in order; the block's sum has one order.
template <class A>
__global__ void __launch_bounds__(kThreads) norm_kernel(const NormCall call) {
  CU_SHARED(float, room, [32]);
  const std::int64_t row = blockIdx.x;
  const A* x = row_of<A>(call.x, row);
  float sum = 0.0f;
  if (call.a.data != nullptr) {
    const A* a = row_of<A>(call.a, row);
    const A* b = row_of<A>(call.b, row);
    A* stored = row_of<A>(call.sum, row);
    for (std::int64_t i = threadIdx.x; i < call.columns; i += blockDim.x) {
      const A rounded = from_float<A>(to_float(cu::ld_global(a + i)) + call.alpha * to_float(cu::ld_global(b + i)));
      const float value = to_float(rounded);
      cu::st_global(stored + i, rounded);
      sum += call.layer ? value : value * value;
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < call.columns; i += blockDim.x) {
      const float value = to_float(cu::ld_global(x + i));
      sum += call.layer ? value : value * value;
    }
  }
  const float n = static_cast<float>(call.columns);
  float mean = 0.0f, square = block_sum(sum, room) / n;
  if (call.layer) {
    mean = square;
    sum = 0.0f;
    for (std::int64_t i = threadIdx.x; i < call.columns; i += blockDim.x) {
      const float off = to_float(cu::ld_global(x + i)) - mean;
      sum += off * off;
    }
    square = block_sum(sum, room) / n;
  }
  const float factor = 1.0f / sqrtf(square + call.eps);
  A* out = row_of<A>(call.out, row);
  for (std::int64_t i = threadIdx.x; i < call.columns; i += blockDim.x) {
    const float weight = call.weight != nullptr ? call.unit_offset + cu::ld_global(call.weight + i) : 1.0f;
    const float bias = call.bias != nullptr ? cu::ld_global(call.bias + i) : 0.0f;
    cu::st_global(out + i, from_float<A>((to_float(cu::ld_global(x + i)) - mean) * factor * weight + bias));
  }
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const NormCall& call) {
  if (call.rows == 0 || call.columns == 0) return cudaSuccess;
  const unsigned threads = call.columns <= 128 ? 32 : kThreads;
  return visit_activation(call.activation, [&]<class A>() {
    return launch(stream, norm_kernel<A>, dim3(static_cast<unsigned>(call.rows)), threads, 0, call);
  });
}

}  // namespace backplane::cuda

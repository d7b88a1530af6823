#include "backends/cuda/activate.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kThreads = 256;

// `b` is null for ops with one operand.
template <class A>
__device__ float apply(const ElementwiseCall& call, float a, const A* b, std::int64_t i) {
  switch (call.op) {
    case Elementwise::kAdd:
      return a + call.value * to_float(cu::ld_global(b + i));
    case Elementwise::kMul:
      return call.value * a * to_float(cu::ld_global(b + i));
    case Elementwise::kScale:
      return call.value * a;
    case Elementwise::kSoftcap:
      return call.value * tanhf(a / call.value);
    case Elementwise::kActivate:
      return activate(call.kind, a);
    default:
      return activate(call.kind, a) * to_float(cu::ld_global(b + i));
  }
}

template <class A>
__global__ void __launch_bounds__(kThreads) elementwise_kernel(const ElementwiseCall call) {
  const std::int64_t i = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= call.columns) return;
  const A* a = row_of<A>(call.a, blockIdx.x);
  const A* b = call.b.data != nullptr ? row_of<A>(call.b, blockIdx.x) : nullptr;
  cu::st_global(row_of<A>(call.out, blockIdx.x) + i, from_float<A>(apply(call, to_float(cu::ld_global(a + i)), b, i)));
}

}  // namespace

cudaError_t probe_kernels() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, elementwise_kernel<float>);
}

cudaError_t enqueue(cudaStream_t stream, const ElementwiseCall& call) {
  if (call.rows == 0 || call.columns == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(call.rows), blocks_for(call.columns, kThreads));
  return visit_activation(call.activation,
                          [&]<class A>() { return launch(stream, elementwise_kernel<A>, grid, kThreads, 0, call); });
}

}  // namespace backplane::cuda

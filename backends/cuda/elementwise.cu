#include "backends/cuda/activate.cuh"
#include "backends/cuda/four.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kThreads = 256;

// `b` is of no account for ops with one operand.
__device__ __forceinline__ float apply(const ElementwiseCall& call, float a, float b) {
  switch (call.op) {
    case Elementwise::kAdd:
      return a + call.value * b;
    case Elementwise::kMul:
      return call.value * a * b;
    case Elementwise::kScale:
      return call.value * a;
    case Elementwise::kSoftcap:
      return call.value * tanhf(a / call.value);
    case Elementwise::kActivate:
      return activate(call.kind, a);
    default:
      return activate(call.kind, a) * b;
  }
}

// A thread has four columns at a time.
template <class A>
__global__ void __launch_bounds__(kThreads) elementwise_kernel(const ElementwiseCall call) {
  const A* a = row_of<A>(call.a, blockIdx.x);
  const A* b = call.b.data != nullptr ? row_of<A>(call.b, blockIdx.x) : nullptr;
  A* out = row_of<A>(call.out, blockIdx.x);
  const std::int64_t step = std::int64_t{gridDim.y} * kThreads * 4;
  for (std::int64_t i = (std::int64_t{blockIdx.y} * kThreads + threadIdx.x) * 4; i < call.columns; i += step) {
    const float4 left = load_four(a, i, call.columns);
    const float4 right = b != nullptr ? load_four(b, i, call.columns) : float4{};
    store_four(out, i, call.columns, each([&](float x, float y) { return apply(call, x, y); }, left, right));
  }
}

}  // namespace

cudaError_t probe_kernels() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, elementwise_kernel<float>);
}

cudaError_t enqueue(cudaStream_t stream, const ElementwiseCall& call) {
  if (call.rows == 0 || call.columns == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(call.rows), grid_y(call.columns, kThreads * 4));
  return visit_activation(call.activation,
                          [&]<class A>() { return launch(stream, elementwise_kernel<A>, grid, kThreads, 0, call); });
}

}  // namespace backplane::cuda

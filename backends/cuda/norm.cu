#include "backends/cuda/four.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kMostThreads = 1024;

// One block a row, with a thread for each four columns where that goes: then a thread has its columns in the nearest
// cache whenever it comes back to them. Each thread sums its columns in order; the block's sum has one order.
template <class A>
__global__ void __launch_bounds__(kMostThreads, 1) norm_kernel(const NormCall call) {
  CU_SHARED(float, room, [32]);
  const std::int64_t row = blockIdx.x, columns = call.columns;
  const std::int64_t first = std::int64_t{threadIdx.x} * 4, step = std::int64_t{blockDim.x} * 4;
  const A* x = row_of<A>(call.x, row);
  const auto is_inside = [&](std::int64_t i) { return i < columns ? 1.0f : 0.0f; };
  float sum = 0.0f;
  if (call.a.data != nullptr) {
    const A* a = row_of<A>(call.a, row);
    const A* b = row_of<A>(call.b, row);
    A* stored = row_of<A>(call.sum, row);
    for (std::int64_t i = first; i < columns; i += step) {
      const auto add = [&](float l, float r) { return to_float(from_float<A>(l + call.alpha * r)); };
      const float4 value = each(add, load_four(a, i, columns), load_four(b, i, columns));
      store_four(stored, i, columns, value);
      sum += sum_of(each([&](float v) { return call.layer ? v : v * v; }, value));
    }
  } else {
    for (std::int64_t i = first; i < columns; i += step) {
      sum += sum_of(each([&](float v) { return call.layer ? v : v * v; }, load_four(x, i, columns)));
    }
  }
  const float n = static_cast<float>(CU_FAULT("norm.whole_vectors") ? (columns + 3) / 4 * 4 : columns);
  float mean = 0.0f, square = block_sum(sum, room) / n;
  if (call.layer) {
    mean = square;
    sum = 0.0f;
    for (std::int64_t i = first; i < columns; i += step) {
      const float4 inside{is_inside(i), is_inside(i + 1), is_inside(i + 2), is_inside(i + 3)};
      const auto off = [&](float v, float in) { return in == 0.0f ? 0.0f : (v - mean) * (v - mean); };
      sum += sum_of(each(off, load_four(x, i, columns), inside));
    }
    square = block_sum(sum, room) / n;
  }
  const float factor = 1.0f / sqrtf(square + call.eps);
  A* out = row_of<A>(call.out, row);
  for (std::int64_t i = first; i < columns; i += step) {
    float4 weight{1.0f, 1.0f, 1.0f, 1.0f}, bias{0.0f, 0.0f, 0.0f, 0.0f};
    if (call.weight != nullptr) {
      weight = each([&](float w) { return call.unit_offset + w; }, load_four(call.weight, i, columns));
    }
    if (call.bias != nullptr) bias = load_four(call.bias, i, columns);
    const auto normalize = [&](float v, float w, float b) { return (v - mean) * factor * w + b; };
    store_four(out, i, columns, each(normalize, load_four(x, i, columns), weight, bias));
  }
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const NormCall& call) {
  if (call.rows == 0 || call.columns == 0) return cudaSuccess;
  const std::int64_t wanted = std::int64_t{blocks_for(call.columns, 128)} * 32;
  const unsigned threads = wanted < kMostThreads ? static_cast<unsigned>(wanted) : kMostThreads;
  return visit_activation(call.activation, [&]<class A>() {
    return launch(stream, norm_kernel<A>, dim3(static_cast<unsigned>(call.rows)), threads, 0, call);
  });
}

}  // namespace backplane::cuda

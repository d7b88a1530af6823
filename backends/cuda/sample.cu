// SAMPLE: a token for each row, as the ABI defines it. Candidates are ordered by the bits of a key, so that nothing is
// sorted: which of them a cumulated sum reaches is found bit by bit, each time summing the probabilities of all whose
// key is no smaller. Sums are double and have one order.
#include "backends/cuda/common.cuh"

namespace backplane::cuda {
namespace {

using Key = unsigned long long;

// Larger logits first, of equal ones the lowest index; NaN after everything else. Both zeros are equal.
__device__ __forceinline__ Key key_of(float value, std::int64_t index) {
  const std::uint32_t bits = __float_as_uint(value == 0.0f ? 0.0f : value);
  const std::uint32_t upper = value != value ? 0u : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<Key>(upper) << 32 | (0xffffffffu - static_cast<std::uint32_t>(index));
}
__device__ __forceinline__ std::int32_t index_of(Key key) {
  return static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(key));
}

__device__ __forceinline__ double block_sum_double(double value, double* room) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  __syncthreads();  // who was here before has read its sum
  if (lane == 0) cu::st_shared(room + warp, value);
  __syncthreads();
  value = lane < blockDim.x / 32 ? cu::ld_shared(room + lane) : 0.0;
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

__device__ __forceinline__ Key block_max_key(Key key, Key* room) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int step = 16; step > 0; step /= 2) key = max(key, __shfl_xor_sync(0xffffffffu, key, step));
  __syncthreads();
  if (lane == 0) cu::st_shared(room + warp, key);
  __syncthreads();
  key = lane < blockDim.x / 32 ? cu::ld_shared(room + lane) : Key{0};
  for (int step = 16; step > 0; step /= 2) key = max(key, __shfl_xor_sync(0xffffffffu, key, step));
  return key;
}

// Philox4x32-10 of Salmon, Moraes, Dror and Shaw (SC 2011): a number in [0, 1) of 53 random bits.
__device__ double uniform(std::uint64_t seed, std::uint64_t counter) {
  std::uint32_t c[4] = {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0};
  std::uint32_t key[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53} * c[0], odd = std::uint64_t{0xCD9E8D57} * c[2];
    c[0] = static_cast<std::uint32_t>(odd >> 32) ^ c[1] ^ key[0];
    c[1] = static_cast<std::uint32_t>(odd);
    c[2] = static_cast<std::uint32_t>(even >> 32) ^ c[3] ^ key[1];
    c[3] = static_cast<std::uint32_t>(even);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return static_cast<double>((std::uint64_t{c[1]} << 32 | c[0]) >> 11) * 0x1p-53;
}

// A row while its token is chosen. Candidates with a key below `least` are out.
template <class A>
struct Draw {
  const A* logits;
  std::int64_t columns;
  double best, temperature;
  Key least;
  double smallest;  // probabilities below that are out, but the best one's
  double total;     // what probabilities are divided by
  double* room;

  // 0 for NaN and minus infinity. The first test is for infinities, whose difference is NaN.
  __device__ double weight(double logit) const {
    if (logit == best) return 1.0;
    const double e = exp((logit - best) / temperature);
    return e == e ? e : 0.0;
  }

  // The sum over all candidates with keys from `from` on: of their probabilities, or how many they are.
  template <bool kCount>
  __device__ double sum(Key from) const {
    double own = 0.0;
    for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
      const float logit = to_float(cu::ld_global(logits + i));
      const Key key = key_of(logit, i);
      if (key < from || key < least) continue;
      if constexpr (kCount) {
        own += 1.0;
      } else {
        const double p = weight(static_cast<double>(logit)) / total;
        if (p >= smallest) own += p;
      }
    }
    return block_sum_double(own, room);
  }

  // The key of the first candidate, in their order, at which the sum reaches `target`, or exceeds it; 0 if none does.
  template <bool kCount>
  __device__ Key reach(double target, bool exceed) const {
    Key key = 0;
    for (int bit = 63; bit >= 0; --bit) {
      const Key tried = key | Key{1} << bit;
      const double reached = sum<kCount>(tried);
      if (exceed ? reached > target : reached >= target) key = tried;
    }
    return key;
  }
};

template <class A>
__global__ void __launch_bounds__(1024) sample_kernel(const SampleCall call) {
  CU_SHARED(double, room, [32]);
  CU_SHARED(Key, keys, [32]);
  const std::int64_t row = blockIdx.x;
  const double temperature = cu::ld_global(call.temperature + row), top_p = cu::ld_global(call.top_p + row);
  const double min_p = cu::ld_global(call.min_p + row);
  const std::int32_t top_k = cu::ld_global(call.top_k + row);
  if (!(temperature >= 0.0 && temperature < INFINITY && top_p >= 0.0 && top_p <= 1.0 && min_p >= 0.0 && min_p <= 1.0 &&
        top_k >= 0)) {
    if (threadIdx.x == 0) report(call.fault, kSampleFault);
    return;
  }
  Draw<A> draw{row_of<A>(call.logits, row), call.columns, 0.0, temperature, 0, 0.0, 1.0, room};
  Key best = 0;
  for (std::int64_t i = threadIdx.x; i < call.columns; i += blockDim.x) {
    best = max(best, key_of(to_float(cu::ld_global(draw.logits + i)), i));
  }
  best = block_max_key(best, keys);
  std::int32_t chosen = index_of(best);
  if (temperature > 0.0 && top_k != 1 && call.columns > 1) {
    draw.best = static_cast<double>(to_float(cu::ld_global(draw.logits + chosen)));
    if (top_k > 0 && top_k < call.columns) draw.least = draw.template reach<true>(top_k, false);
    draw.total = draw.template sum<false>(0);
    if (draw.total > 0.0) {
      if (top_p < 1.0) draw.least = max(draw.least, draw.template reach<false>(top_p, false));
      draw.smallest = min_p * (1.0 / draw.total);
      const double left = draw.template sum<false>(0);
      const double u = uniform(cu::ld_global(call.seed + row), cu::ld_global(call.counter + row));
      const Key key = draw.template reach<false>(CU_FAULT("sample.number") ? 0.5 * u * left : u * left, true);
      if (key != 0) chosen = index_of(key);
    }
  }
  if (threadIdx.x == 0) cu::st_global(call.ids + row, chosen);
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const SampleCall& call) {
  if (call.rows == 0 || call.columns == 0) return cudaSuccess;
  const unsigned threads = call.columns <= 512 ? 32 : 1024;
  return visit_activation(call.activation, [&]<class A>() {
    return launch(stream, sample_kernel<A>, dim3(static_cast<unsigned>(call.rows)), threads, 0, call);
  });
}

}  // namespace backplane::cuda

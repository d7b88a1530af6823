// CAST, COPY and FILL: what moves elements of any type, or changes their type.
#include "backends/cuda/common.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kThreads = 256;

// A thread has one word of a row's blocks.
template <class Word>
__global__ void __launch_bounds__(kThreads) copy_kernel(const CopyCall call) {
  const std::int64_t words = call.block_bytes / static_cast<std::int64_t>(sizeof(Word));
  const std::int64_t step = std::int64_t{gridDim.y} * kThreads;
  const std::byte* x = call.x.data != nullptr ? row_of<std::byte>(call.x, blockIdx.x) : nullptr;
  std::byte* out = row_of<std::byte>(call.out, blockIdx.x);
  for (std::int64_t i = std::int64_t{blockIdx.y} * kThreads + threadIdx.x; i < call.blocks * words; i += step) {
    const std::int64_t block = call.blocks == 1 ? 0 : i / words;
    const std::int64_t offset = (i - block * words) * static_cast<std::int64_t>(sizeof(Word));
    Word word;
    if (x != nullptr) {
      word = cu::ld_global(reinterpret_cast<const Word*>(x + block * call.x_step + offset));
    } else {
      memcpy(static_cast<void*>(&word), &call.value, sizeof(Word) < 8 ? sizeof(Word) : 8);
    }
    cu::st_global(reinterpret_cast<Word*>(out + block * call.out_step + offset), word);
  }
}

// Through double, which holds all floats exactly: one rounding, at the end.
__device__ double load_any(bp_type type, const std::byte* from) {
  switch (type) {
    case BP_TYPE_F64:
      return cu::ld_global(reinterpret_cast<const double*>(from));
    case BP_TYPE_F32:
      return cu::ld_global(reinterpret_cast<const float*>(from));
    case BP_TYPE_F16:
      return to_float(cu::ld_global(reinterpret_cast<const __half*>(from)));
    default:
      return to_float(cu::ld_global(reinterpret_cast<const __nv_bfloat16*>(from)));
  }
}

__device__ void store_any(bp_type type, std::byte* to, double value) {
  switch (type) {
    case BP_TYPE_F64:
      return cu::st_global(reinterpret_cast<double*>(to), value);
    case BP_TYPE_F32:
      return cu::st_global(reinterpret_cast<float*>(to), static_cast<float>(value));
    case BP_TYPE_F16:
      return cu::st_global(reinterpret_cast<__half*>(to), __double2half(value));
    default:
      return cu::st_global(reinterpret_cast<__nv_bfloat16*>(to), __double2bfloat16(value));
  }
}

__device__ __forceinline__ int bytes_of(bp_type type) { return type == BP_TYPE_F64 ? 8 : type == BP_TYPE_F32 ? 4 : 2; }

__global__ void __launch_bounds__(kThreads) cast_kernel(const CastCall call) {
  const std::byte* from = row_of<std::byte>(call.x, blockIdx.x);
  std::byte* to = row_of<std::byte>(call.out, blockIdx.x);
  const std::int64_t step = std::int64_t{gridDim.y} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.y} * kThreads + threadIdx.x; i < call.columns; i += step) {
    store_any(call.to, to + i * bytes_of(call.to), load_any(call.from, from + i * bytes_of(call.from)));
  }
}

bool is_aligned(const CopyCall& call, std::int64_t word) {
  std::int64_t all = call.block_bytes | call.out_step | call.out.inner_stride | call.out.middle_stride |
                     call.out.outer_stride | static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(call.out.data));
  if (call.x.data != nullptr) {
    all |= call.x_step | call.x.inner_stride | call.x.middle_stride | call.x.outer_stride |
           static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(call.x.data));
  }
  return all % word == 0;
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const CopyCall& given) {
  CopyCall call = given;
  if (call.rows == 0 || call.blocks == 0) return cudaSuccess;
  // A row without gaps is one block.
  if (call.x.data != nullptr && call.x_step == call.block_bytes && call.out_step == call.block_bytes) {
    call.block_bytes *= call.blocks;
    call.blocks = 1;
    call.x_step = call.out_step = 0;
  }
  const auto start = [&]<class Word>(Word) {
    const std::int64_t words = call.block_bytes / static_cast<std::int64_t>(sizeof(Word));
    const dim3 grid(static_cast<unsigned>(call.rows), grid_y(call.blocks * words, kThreads));
    return launch(stream, copy_kernel<Word>, grid, kThreads, 0, call);
  };
  if (call.x.data != nullptr && is_aligned(call, 16)) return start(uint4{});
  if (is_aligned(call, 8)) return start(std::uint64_t{});
  if (is_aligned(call, 4)) return start(std::uint32_t{});
  return is_aligned(call, 2) ? start(std::uint16_t{}) : start(std::uint8_t{});
}

cudaError_t enqueue(cudaStream_t stream, const CastCall& call) {
  if (call.rows == 0 || call.columns == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(call.rows), grid_y(call.columns, kThreads));
  return launch(stream, cast_kernel, grid, kThreads, 0, call);
}

}  // namespace backplane::cuda

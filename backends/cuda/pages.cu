// Pages of the cache as wholes: to canonical bytes and back, and from place to place.
#include "backends/cuda/common.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kThreads = 256;

// A thread has one word of the canonical bytes [count,S,Hk,row].
template <class Word>
__global__ void __launch_bounds__(kThreads) page_move_kernel(const PageMoveCall call) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t words = call.row_bytes / static_cast<std::int64_t>(sizeof(Word));
  if (i >= words * call.heads * call.page_size * call.count) return;
  const std::int64_t word = i % words, head = i / words % call.heads;
  const std::int64_t offset = i / words / call.heads % call.page_size, number = i / words / call.heads / call.page_size;
  std::int64_t row = (call.pages[number] * call.heads + head) * call.page_size + offset;
  if (CU_FAULT("pages.stride")) row = (call.pages[number] * call.page_size + offset) * call.heads + head;
  std::byte* own = call.side.data + row * call.pitch_bytes + word * static_cast<std::int64_t>(sizeof(Word));
  if (call.side.scales != nullptr) {  // blocks of a scale and 32 quants, in words of two bytes
    const std::int64_t block = word / 17, part = word % 17;
    own = part == 0 ? call.side.scales + (row * (call.side.dim / 32) + block) * 2
                    : call.side.data + row * call.pitch_bytes + block * 32 + (part - 1) * 2;
  }
  auto* here = reinterpret_cast<Word*>(own);
  auto* there = reinterpret_cast<Word*>(call.canonical) + i;
  if (call.out) {
    cu::st_global(there, cu::ld_global(here));
  } else {
    cu::st_global(here, cu::ld_global(there));
  }
}

// A block has a part of one page of one plane.
template <class Word>
__global__ void __launch_bounds__(kThreads) page_copy_kernel(const PageCopyCall call) {
  const PagePlane& plane = call.planes[blockIdx.y];
  const auto* from = reinterpret_cast<const Word*>(plane.from + call.from[blockIdx.x] * plane.from_step);
  auto* to = reinterpret_cast<Word*>(plane.to + call.to[blockIdx.x] * plane.to_step);
  const std::int64_t words = plane.bytes / static_cast<std::int64_t>(sizeof(Word));
  const std::int64_t step = std::int64_t{gridDim.z} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.z} * kThreads + threadIdx.x; i < words; i += step) {
    cu::st_global(to + i, cu::ld_global(from + i));
  }
}

bool is_multiple(std::int64_t bytes, std::int64_t word) { return bytes % word == 0; }

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const PageMoveCall& call) {
  const auto start = [&]<class Word>(Word) {
    const std::int64_t words = call.row_bytes / static_cast<std::int64_t>(sizeof(Word));
    const unsigned blocks = blocks_for(words * call.heads * call.page_size * call.count, kThreads);
    return blocks == 0 ? cudaSuccess : launch(stream, page_move_kernel<Word>, dim3(blocks), kThreads, 0, call);
  };
  if (call.side.scales != nullptr) return start(std::uint16_t{});
  if (is_multiple(call.row_bytes, 16)) return start(uint4{});
  if (is_multiple(call.row_bytes, 4)) return start(std::uint32_t{});
  return is_multiple(call.row_bytes, 2) ? start(std::uint16_t{}) : start(std::uint8_t{});
}

cudaError_t enqueue(cudaStream_t stream, const PageCopyCall& call) {
  if (call.count == 0 || call.plane_count == 0) return cudaSuccess;
  bool wide = true;
  std::int64_t most = 0;
  for (int i = 0; i < call.plane_count; ++i) {
    const PagePlane& p = call.planes[i];
    wide = wide && is_multiple(p.from_step, 16) && is_multiple(p.to_step, 16) && is_multiple(p.bytes, 16) &&
           reinterpret_cast<std::uintptr_t>(p.to) % 16 == 0;
    most = p.bytes > most ? p.bytes : most;
  }
  // Four words a thread: pages are large, and there may be few of them.
  const unsigned parts = blocks_for(most, std::int64_t{kThreads} * 64);
  const dim3 grid(static_cast<unsigned>(call.count), static_cast<unsigned>(call.plane_count), parts < 64 ? parts : 64);
  return wide ? launch(stream, page_copy_kernel<uint4>, grid, kThreads, 0, call)
              : launch(stream, page_copy_kernel<std::uint16_t>, grid, kThreads, 0, call);
}

}  // namespace backplane::cuda

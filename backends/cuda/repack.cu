// Rows of quantized blocks between the file's bytes and the planes of layout.h.
#include "backends/cuda/formats.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kThreads = 128;

// Where a block of the file has the four bits, and those beyond, of a column.
template <bp_type kType>
__device__ __forceinline__ Place file_quant(int column) {
  constexpr BlockShape kShape = block_shape(kType);
  if constexpr (kShape.columns == 32) {
    return {kShape.quants + column % 16, column / 16 * 4};
  } else if constexpr (kType == BP_TYPE_Q6_K) {
    return {kShape.quants + column / 128 * 64 + column % 64, column % 128 / 64 * 4};
  } else {
    return {kShape.quants + column / 64 * 32 + column % 32, column / 32 % 2 * 4};
  }
}

template <bp_type kType>
__device__ __forceinline__ Place file_high(int column) {
  constexpr BlockShape kShape = block_shape(kType);
  if constexpr (kShape.columns == 32) {
    return {kShape.high + column / 8, column % 8};
  } else if constexpr (kType == BP_TYPE_Q6_K) {
    return {kShape.high + column / 128 * 32 + column % 32, column % 128 / 32 * 2};
  } else {
    return {kShape.high + column % 32, column / 32};
  }
}

__device__ __forceinline__ void move_bits(const std::uint8_t* from, Place source, std::uint8_t* to, Place target,
                                          unsigned mask) {
  const unsigned bits = cu::ld_global(from + source.byte) >> source.shift & mask;
  std::uint8_t* byte = to + target.byte;
  cu::st_global(byte, static_cast<std::uint8_t>(cu::ld_global(byte) | bits << target.shift));
}

template <bool kPack>
__device__ __forceinline__ void move_bytes(std::uint8_t* file, std::uint8_t* plane, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    if constexpr (kPack) {
      cu::st_global(plane + i, cu::ld_global(file + i));
    } else {
      cu::st_global(file + i, cu::ld_global(plane + i));
    }
  }
}

// One of the file's blocks by one thread, bit for bit, to bytes that are zero before. Far from what the memory could
// do, and a fraction of the time that the bytes take to come from the file.
template <bp_type kType, bool kPack>
__global__ void __launch_bounds__(kThreads) repack_kernel(const RepackCall call) {
  constexpr BlockShape kShape = block_shape(kType);
  constexpr int kUnits = kShape.columns / static_cast<int>(kUnit);
  const std::int64_t blocks = call.columns / kShape.columns;
  const std::int64_t number = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (number >= blocks * call.rows - (CU_FAULT("repack.lost_block") ? 1 : 0)) return;
  const std::int64_t block = number % blocks;
  const RowLayout layout = row_layout(kType, call.columns);
  auto* file = reinterpret_cast<std::uint8_t*>(call.file) + number * kShape.bytes;
  auto* row = reinterpret_cast<std::uint8_t*>(call.planes) + number / blocks * layout.pitch;
  move_bytes<kPack>(file + kShape.scales, row + layout.scales + block * kShape.scale_bytes, kShape.scale_bytes);
  move_bytes<kPack>(file + kShape.last, row + layout.last + block * kShape.last_bytes, kShape.last_bytes);
  for (int unit = 0; unit < kUnits; ++unit) {
    const std::int64_t place = block * kUnits + unit;
    std::uint8_t* quants = row + place * 16;
    if constexpr (kShape.quant_bits == 8) {
      move_bytes<kPack>(file + kShape.quants, quants, 16);
      move_bytes<kPack>(file + kShape.quants + 16, row + layout.second + place * 16, 16);
    } else {
      for (int i = 0; i < static_cast<int>(kUnit); ++i) {
        const int column = unit * static_cast<int>(kUnit) + i;
        const Place in_file = file_quant<kType>(column), in_plane{i % 16, i / 16 * 4};
        kPack ? move_bits(file, in_file, quants, in_plane, 15) : move_bits(quants, in_plane, file, in_file, 15);
        if constexpr (kShape.high_bits > 0) {
          std::uint8_t* words = row + layout.second + place * 4 * kShape.high_bits;
          const Place high = file_high<kType>(column), bit = high_bit(kShape.high_bits, i);
          constexpr unsigned kMask = (1u << kShape.high_bits) - 1;
          kPack ? move_bits(file, high, words, bit, kMask) : move_bits(words, bit, file, high, kMask);
        }
      }
    }
  }
}

template <bool kPack>
cudaError_t enqueue_repack(cudaStream_t stream, const RepackCall& call) {
  const BlockShape shape = block_shape(call.type);
  const std::int64_t blocks = call.columns / shape.columns * call.rows;
  const auto bytes =
      static_cast<std::size_t>(kPack ? call.rows * row_layout(call.type, call.columns).pitch : blocks * shape.bytes);
  const cudaError_t error = cudaMemsetAsync(kPack ? call.planes : call.file, 0, bytes, stream);
  if (error != cudaSuccess) return error;
  return visit_format(call.type, [&]<bp_type kType>() {
    if constexpr (block_shape(kType).columns == 0) {
      return cudaErrorInvalidValue;
    } else {
      return launch(stream, repack_kernel<kType, kPack>, dim3(blocks_for(blocks, kThreads)), kThreads, 0, call);
    }
  });
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const RepackCall& call) {
  if (call.rows == 0 || call.columns == 0) return cudaSuccess;
  return call.pack ? enqueue_repack<true>(stream, call) : enqueue_repack<false>(stream, call);
}

}  // namespace backplane::cuda

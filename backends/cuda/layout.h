// How an imported weight lies on the device. Rows of floats are the file's. A row of quantized blocks is split into
// planes, so that the lanes of a warp, each with 32 columns (a unit), read memory that follows:
//
//   quants   16 bytes a unit: byte i has column i in its low and column 16 + i in its high four bits; of Q8_0 the
//            first 16 columns
//   second   the bits beyond four, a word a unit for each bit (high_bit says where), or the second 16 columns of Q8_0
//   scales   the file's own bytes of each block, block after block; of Q6_K the small scales of all blocks, then the
//            large ones
//
// Each plane of each row begins at a sector of the GPU's memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "plugins/abi/backplane_plugin.h"

namespace backplane::cuda {

constexpr std::int64_t kSector = 32;  // bytes
constexpr std::int64_t kUnit = 32;    // columns

// A file's block: where in it things begin, and how much of them there is.
struct BlockShape {
  int columns = 0, bytes = 0;
  int quants = 0, quant_bits = 0;
  int high = 0, high_bits = 0;  // the bits beyond four
  int scales = 0, scale_bytes = 0;
  int last = 0, last_bytes = 0;  // the large scale of Q6_K
};

constexpr __host__ __device__ BlockShape block_shape(bp_type type) {
  switch (type) {
    case BP_TYPE_Q4_0:
      return {32, 18, 2, 4, 0, 0, 0, 2};
    case BP_TYPE_Q4_1:
      return {32, 20, 4, 4, 0, 0, 0, 4};
    case BP_TYPE_Q5_0:
      return {32, 22, 6, 4, 2, 1, 0, 2};
    case BP_TYPE_Q5_1:
      return {32, 24, 8, 4, 4, 1, 0, 4};
    case BP_TYPE_Q8_0:
      return {32, 34, 2, 8, 0, 0, 0, 2};
    case BP_TYPE_Q4_K:
      return {256, 144, 16, 4, 0, 0, 0, 16};
    case BP_TYPE_Q5_K:
      return {256, 176, 48, 4, 16, 1, 0, 16};
    case BP_TYPE_Q6_K:
      return {256, 210, 0, 4, 128, 2, 192, 16, 208, 2};
    default:
      return {};
  }
}

// Bytes from a row's start to its planes, and to the next row.
struct RowLayout {
  std::int64_t second = 0, scales = 0, last = 0, pitch = 0;
};

constexpr __host__ __device__ std::int64_t whole_sectors(std::int64_t bytes) {
  return (bytes + kSector - 1) / kSector * kSector;
}

// Of whole blocks; exact up to 2^58 columns.
constexpr __host__ __device__ RowLayout row_layout(bp_type type, std::int64_t columns) {
  const BlockShape shape = block_shape(type);
  const std::int64_t units = columns / kUnit, blocks = columns / shape.columns;
  RowLayout row;
  row.second = whole_sectors(units * 16);
  row.scales = row.second + whole_sectors(units * (shape.quant_bits == 8 ? 16 : 4 * shape.high_bits));
  row.last = row.scales + blocks * shape.scale_bytes;
  row.pitch = row.scales + whole_sectors(blocks * (shape.scale_bytes + shape.last_bytes));
  return row;
}

// A bit of a plane or of a file's block: in which byte, and how far up.
struct Place {
  int byte, shift;
};

// Where the bits beyond four of a unit's column lie in its words: in the byte of theirs that the four bits have in the
// plane of quants. The kernels take four columns at a time out of a word of each, moved as a whole.
constexpr __host__ __device__ Place high_bit(int high_bits, int column) {
  const int word = column % 16 / 4, nibble = 2 * (column % 4) + column / 16;
  const int bit = 4 * nibble + (high_bits == 1 ? word : 2 * (word % 2) + 32 * (word / 2));
  return {bit / 8, bit % 8};
}

}  // namespace backplane::cuda

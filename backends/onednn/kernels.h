// What is compiled once for each kind of processor: plain functions over plain pointers. Everything around them
// (checks, threads, tensors) is compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plugins/abi/backplane_plugin.h"

namespace backplane::onednn {

constexpr std::int64_t kLanes = 8;   // rows of a panel of weights, keys of a vector of scores
constexpr std::int64_t kBlock = 32;  // columns that share a scale

// How the integer sum over a block becomes the sum over the weights, which are d * q, d * (q - center) or d * q + m.
enum class Offset {
  kNone,    // d * q
  kCenter,  // a constant is taken off all q: as an integer, exactly
  kMinimum  // the block has a minimum of its own
};

// A quantized format as it lies in a panel of eight rows: a record is `blocks` blocks after `super_bytes` that they
// share. plugin memory only; how a file's blocks get there is packed.cc's.
struct Format {
  bp_type type;
  std::int32_t bits;         // of a weight
  std::int32_t blocks;       // of 32 columns, in a record
  std::int32_t super_bytes;  // of eight rows
  std::int32_t block_bytes;  // of eight rows
  std::int32_t scales;       // in a block of a row: 1, or 2 of 16 columns each
  Offset offset;
  std::int32_t center;
};

// The format of a quantized type, or nullptr where there is none.
const Format* format_of(bp_type type);

// Rows of activations in bytes: x = d * q in blocks of 32. Rows go by groups: the blocks of a group lie one after
// another, each with those of all its rows side by side, so that a kernel walks through them with one pointer.
constexpr std::int64_t kGroup = 8;
struct QuantizedRows {
  std::int8_t* q;       // blocks of 32, in -127..127
  float* d;             // one a block
  float* sum;           // one a block: d times the sum of q, for Offset::kMinimum
  std::int32_t* start;  // Format::scales a block: -center times the sum of q, otherwise
  std::int64_t columns;
  std::int64_t group;  // rows of a group: kGroup, or all where they are fewer

  static constexpr std::int64_t group_of(std::int64_t rows) { return rows < kGroup ? (rows > 0 ? rows : 1) : kGroup; }
  // Rows that there must be room for: whole groups.
  static constexpr std::int64_t room(std::int64_t rows) {
    return (rows + group_of(rows) - 1) / group_of(rows) * group_of(rows);
  }
  // Where block `block` of a row is, counted in blocks.
  std::int64_t index(std::int64_t row, std::int64_t block) const {
    return (row / group * (columns / kBlock) + block) * group + row % group;
  }
};

// `count` panels of eight rows, `stride` bytes apart.
struct Panels {
  const std::uint8_t* data;
  std::int64_t stride;
  std::int64_t count;
};

struct LinearKernels {
  // One row of QuantizedRows from float32, for weights of that format. A block with NaN or infinity has d = NaN.
  void (*quantize)(const Format& format, const float* x, const QuantizedRows& to, std::int64_t row);
  // tile[panel][token][8] = the products of all tokens with the panels' rows. `scratch` is expanded_bytes(columns).
  void (*multiply)(const Format& format, const Panels& panels, const QuantizedRows& x, std::int64_t tokens,
                   std::uint8_t* scratch, float* tile);
};

// Columns whose products are added one after another; such sums are then added in their order.
constexpr std::int64_t kDepth = 256;

struct FloatKernels {
  // The same for weights in F32, F16 or BF16, [C][8] in a panel; x is [T,C] with rows `x_stride` floats apart.
  void (*multiply)(bp_type type, const Panels& panels, const float* x, std::int64_t x_stride, std::int64_t columns,
                   std::int64_t tokens, std::uint8_t* scratch, float* tile);
  // out[count][8 * panels] = columns [first, first + count) of such panels, as F32.
  void (*expand)(bp_type type, const Panels& panels, std::int64_t first, std::int64_t count, float* out);
};

// Bytes of scratch that both `multiply` need for weights of that many columns.
constexpr std::int64_t expanded_bytes(std::int64_t columns) { return (columns + kBlock) * 2 * kLanes * 4; }

// A row in bytes with F16 scales for each 32 of them, each `step` apart (scales: `scale_step` scales).
struct QuantizedRow {
  std::byte* q;
  std::int64_t step;
  std::byte* scales;
  std::int64_t scale_step;
};

struct RowKernels {
  // out = (x - mean) / root * (unit_offset + weight) + bias; weight and bias may be null.
  void (*norm)(const float* x, const float* weight, const float* bias, std::int64_t n, bool layer, float eps,
               float unit_offset, float* out);
  // sum = a + alpha * b
  void (*add)(const float* a, const float* b, float alpha, std::int64_t n, float* sum);
  // out = f(x), and out = f(gate) * up; kind is BP_ACT_*.
  void (*activate)(std::uint32_t kind, const float* x, std::int64_t n, float* out);
  void (*glu)(std::uint32_t kind, const float* gate, const float* up, std::int64_t n, float* out);
  // `n` floats rounded to nearest even, every `step`-th element of `out`.
  void (*store)(bp_type type, const float* x, std::int64_t n, std::byte* out, std::int64_t step);
  // `n` floats, whole blocks, as GGUF's reference makes Q8_0 of them. NaN and infinity make a block NaN.
  void (*quantize)(const float* x, std::int64_t n, const QuantizedRow& out);
};

// Up to kMostRows queries that look at keys of one chunk. A page holds `page_size` keys, a multiple of eight:
// K[D][page_size], V[page_size][Dv]; in Q8_0 F16 scales [D/32][page_size] and [page_size][Dv/32] follow.
constexpr int kMostRows = 8;
struct AttentionChunk {
  bp_type type;                     // of K and V: F32, F16, BF16 or Q8_0
  const std::byte* const* k_pages;  // of the keys from `begin` on
  const std::byte* const* v_pages;
  const std::byte* const* next_k_pages;  // what will be read after this chunk, to be fetched meanwhile
  std::int64_t next_pages;
  std::int64_t begin;  // the chunk's first key, a multiple of page_size
  std::int64_t page_size, dim, value_dim;
  float scale, softcap;  // softcap 0: none
  int rows;
  const float* q[kMostRows];                       // [D]
  std::int64_t first[kMostRows], last[kMostRows];  // keys to look at, at least one
  float* scores;                                   // scratch, [rows][kChunk]
  float* v_scales;                                 // scratch, [kChunk][Dv/32]
  float* maximum[kMostRows];                       // out: the largest score,
  float* total[kMostRows];                         // the sum of exp(score - maximum),
  float* out[kMostRows];                           // and [Dv]: the values times these
};
constexpr std::int64_t kChunk = 256;  // keys; softmax is combined chunk by chunk

struct AttentionKernels {
  void (*chunk)(const AttentionChunk& chunk);
  // Combines a second partial softmax into a first one: `maximum`, `total` and out[n].
  void (*merge)(float* maximum, float* total, float* out, float maximum2, float total2, const float* out2,
                std::int64_t n);
  // A page of keys or values as floats.
  void (*expand)(bp_type type, bool keys, const std::byte* page, std::int64_t page_size, std::int64_t dim, float* out);
};

struct Kernels {
  std::int64_t target = 0;  // Highway's bit
  std::string name;         // "AVX3_DL"
  LinearKernels linear{};
  FloatKernels floats{};
  RowKernels rows{};
  AttentionKernels attention{};
};

// Those for the best of what this processor has; of those with names, by name ("AVX2", any case). nullptr: no such one,
// or not on this processor.
const Kernels* best_kernels();
const Kernels* kernels_by_name(const std::string& name);
std::string kernel_names();  // all that this processor can run, separated by spaces

// Each file of kernels adds its part for each target when the plugin is loaded.
Kernels& kernels_for(std::int64_t target);

}  // namespace backplane::onednn

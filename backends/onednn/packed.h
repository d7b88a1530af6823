// Weights as the kernels want them: panels of eight rows, whose bytes lie side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/onednn/kernels.h"
#include "backends/onednn/memory.h"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::onednn {

// A matrix [N,C] in panels of eight rows, the last one filled up with zeros. Quantized types keep every bit of the
// file's blocks in about as many bytes; a quantized panel is the records of `Format`, a float one is [C][8].
class PackedWeight {
 public:
  // Throws BP_UNSUPPORTED for what isn't packed: types without a Format, quantized ones that are stored transposed.
  PackedWeight(const bp_weight_part& part, SharedMemory& memory);

  // What an object for `part` would take. Throws as the constructor does.
  static std::uint64_t bytes_for(const bp_weight_part& part);

  // Stored rows [row, row + count): `bytes` bytes. On several threads.
  void import_rows(std::uint64_t row, std::uint64_t count, const std::byte* data, std::uint64_t bytes);
  void export_rows(std::uint64_t row, std::uint64_t count, std::byte* data, std::uint64_t bytes) const;
  void finish() { finished_ = true; }
  bool finished() const { return finished_; }

  bp_type type() const { return type_; }
  const Format* format() const { return format_; }  // null for float types
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t panel_count() const { return (rows_ + kLanes - 1) / kLanes; }
  Panels panels(std::int64_t first, std::int64_t count) const;

  // Row `row` as floats, as GGUF defines them.
  void read_row(std::int64_t row, float* out) const;

 private:
  std::uint64_t stored_row_bytes() const;
  void check_range(std::uint64_t row, std::uint64_t count, std::uint64_t bytes) const;
  template <class Copy>
  void move_rows(std::uint64_t row, std::uint64_t count, Copy&& copy) const;
  template <class Copy>
  void move_panels(std::uint64_t row, std::uint64_t count, Copy&& copy) const;

  bp_type type_;
  const Format* format_;
  std::int64_t rows_, columns_;
  bool transposed_;
  std::int64_t stride_;  // bytes of a panel
  AlignedBytes data_;
  bool finished_ = false;
};

// ---- One row of one record, in blocks.cc. `lane` is the row's place in the panel, 0 to 7.

// Puts the file's bytes of one record (Format::blocks blocks of 32) where the kernels look for them, and back.
void pack_record(const Format& format, const std::byte* file, std::byte* record, std::int64_t lane);
void unpack_record(const Format& format, const std::byte* record, std::int64_t lane, std::byte* file);
// The record's weights of that row as floats.
void read_record(const Format& format, const std::byte* record, std::int64_t lane, float* out);

}  // namespace backplane::onednn

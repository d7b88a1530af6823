// The rope tables of a loaded model: a row for each class of request lengths in use.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device/ops.h"
#include "models/rope_tables.h"

namespace backplane::models {

class DecoderRope {
 public:
  // Room for `max_requests` different lengths at once.
  DecoderRope(device::Executor& executor, const DecoderSpec& spec, std::uint32_t max_requests);

  // Throws Error{kCapacity} when more lengths are in use than there was room for.
  std::int32_t acquire(std::uint64_t planned_length);
  void release(std::int32_t row) noexcept;
  std::uint64_t identity(std::uint64_t planned_length) const {
    return rope_identity(spec_->ropes, rope_context_, planned_length);
  }

  const device::Rope& table(std::size_t index) const { return tables_[index]; }

 private:
  struct Row {
    std::vector<std::uint64_t> classes;  // of each rope spec; empty: never used
    std::uint32_t users = 0;
  };
  void fill(std::size_t row, std::uint64_t planned_length);

  const DecoderSpec* spec_;
  std::uint64_t rope_context_;
  std::vector<Row> rows_;
  std::vector<device::Rope> tables_;
  std::vector<std::vector<double>> inv_freq_, scale_;  // by table: the host's copies, [rows, n_dims/2] and [rows]
};

}  // namespace backplane::models

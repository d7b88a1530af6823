#include "models/decoder_rope.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace backplane::models {
namespace {

std::vector<std::byte> bytes_of(const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(double));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

DecoderRope::DecoderRope(device::Executor& executor, const DecoderSpec& spec, std::uint32_t max_requests)
    : spec_(&spec), rope_context_(spec.rope_context ? spec.rope_context : spec.max_context), rows_(max_requests) {
  const auto rows = static_cast<std::int64_t>(rows_.size());
  for (const RopeSpec& rope : spec.ropes) {
    const std::int64_t pairs = rope.n_dims / 2;
    device::Rope table;
    table.inv_freq = executor.host_table("rope frequencies", DType::kF64, {rows, pairs});
    table.scale = executor.host_table("rope scales", DType::kF64, {rows});
    table.n_dims = rope.n_dims;
    table.interleaved = rope.interleaved;
    tables_.push_back(std::move(table));
    inv_freq_.emplace_back(rows * pairs);
    scale_.emplace_back(rows);
  }
  fill(0, 1);
}

void DecoderRope::fill(std::size_t row, std::uint64_t planned_length) {
  rows_[row].classes.clear();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const RopeSpec& rope = spec_->ropes[t];
    const RopeTable values = rope_table(rope, rope_context_, planned_length);
    rows_[row].classes.push_back(rope_length_class(rope, rope_context_, planned_length));
    std::copy(values.inv_freq.begin(), values.inv_freq.end(),
              inv_freq_[t].begin() + static_cast<std::ptrdiff_t>(row * values.inv_freq.size()));
    scale_[t][row] = values.scale;
    tables_[t].inv_freq.storage->set_host(bytes_of(inv_freq_[t]));
    tables_[t].scale.storage->set_host(bytes_of(scale_[t]));
  }
}

std::int32_t DecoderRope::acquire(std::uint64_t planned_length) {
  std::vector<std::uint64_t> classes;
  for (const RopeSpec& rope : spec_->ropes) {
    classes.push_back(rope_length_class(rope, rope_context_, planned_length));
  }
  const auto same = [&](const Row& row) { return row.classes == classes; };
  auto it = std::find_if(rows_.begin(), rows_.end(), same);
  if (it == rows_.end()) {
    it = std::find_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.users == 0; });
    if (it == rows_.end()) {
      throw Error(ErrorCode::kCapacity, "too many requests of different lengths for this model's rope scaling", "",
                  "wait for one to finish");
    }
    fill(static_cast<std::size_t>(it - rows_.begin()), planned_length);
  }
  ++it->users;
  return static_cast<std::int32_t>(it - rows_.begin());
}

void DecoderRope::release(std::int32_t row) noexcept {
  if (row >= 0 && static_cast<std::size_t>(row) < rows_.size() && rows_[static_cast<std::size_t>(row)].users > 0) {
    --rows_[static_cast<std::size_t>(row)].users;
  }
}

}  // namespace backplane::models

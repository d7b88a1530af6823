// The step descriptor of a case on a device.
#include <algorithm>
#include <cstring>

#include "tests/conformance/side.h"

namespace backplane::conformance {

// One buffer for all arrays, each at the device's alignment, poison between them.
const bp_step* Side::step(const bp_step& from) {
  auto step = std::make_unique<bp_step>(from);
  step->size = sizeof(bp_step);
  auto slab = std::make_unique<Slab>();
  std::uint64_t end = 0;
  const auto place_array = [&](std::uint64_t bytes, std::uint64_t& offset) {
    const std::uint64_t alignment = std::max<std::uint64_t>(device_->caps().alignment, 8);
    offset = (end + alignment - 1) / alignment * alignment;
    end = offset + bytes;
  };
  const std::uint64_t t = from.tokens, b = from.sequences, g = from.groups;
  place_array(4 * t, step->token_offset);
  place_array(4 * t, step->pos_offset);
  place_array(4 * (b + 1), step->q_start_offset);
  place_array(4 * b, step->kv_len_offset);
  place_array(4 * g * b * from.max_pages, step->page_table_offset);
  place_array(8 * g * t, step->slot_offset);
  place_array(4 * t, step->rope_row_offset);
  place_array(4 * from.rows, step->out_row_offset);
  slab->image.assign(end + kGuard, kPoison);
  fill_step(slab->image, *step, from);
  upload(*slab);
  step->buffer = slab->buffer.handle();
  slabs_.push_back(std::move(slab));
  steps_.push_back(std::move(step));
  return steps_.back().get();
}

void Side::fill_step(std::vector<std::byte>& image, const bp_step& offsets, const bp_step& from) {
  const auto fill = [&](const void* data, std::uint64_t bytes, std::uint64_t offset) {
    if (data) std::memcpy(image.data() + offset, data, bytes);
  };
  const std::uint64_t t = from.tokens, b = from.sequences, g = from.groups;
  fill(from.token, 4 * t, offsets.token_offset);
  fill(from.pos, 4 * t, offsets.pos_offset);
  fill(from.q_start, 4 * (b + 1), offsets.q_start_offset);
  fill(from.kv_len, 4 * b, offsets.kv_len_offset);
  fill(from.page_table, 4 * g * b * from.max_pages, offsets.page_table_offset);
  fill(from.slot, 8 * g * t, offsets.slot_offset);
  fill(from.rope_row, 4 * t, offsets.rope_row_offset);
  fill(from.out_row, 4 * from.rows, offsets.out_row_offset);
}

bp_tensor Side::step_array(const bp_step& step, std::uint64_t offset, std::int64_t count) const {
  bp_tensor t{};
  t.buffer = step.buffer;
  t.offset = offset;
  t.type = BP_TYPE_I32;
  t.rank = 1;
  t.shape[0] = count;
  t.shape[1] = t.shape[2] = t.shape[3] = 1;
  t.stride[0] = 4;
  return t;
}

void Side::rewrite(const bp_step& step, const bp_step& arrays) {
  Slab& slab = slab_of(step.buffer);
  fill_step(slab.image, step, arrays);
  upload(slab);
}

}  // namespace backplane::conformance

#include "core/device/step_buffer.h"

#include <algorithm>
#include <bit>

#include "core/base/error.h"

namespace backplane::device {
namespace {

constexpr std::size_t kElement = 4;  // bytes: what every array is made of

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& v) {
  return std::as_bytes(std::span<const T>(v));
}

}  // namespace

StepBuffer::StepBuffer(const Devices& devices, const StepLimits& limits)
    : devices_(&devices),
      limits_(limits),
      buffers_(devices.size()),
      steps_(devices.size()),
      uploaded_(devices.size()),
      resident_(devices.size()) {
  std::uint64_t alignment = 64;
  for (const auto& device : devices) alignment = std::max<std::uint64_t>(alignment, device->caps().alignment);
  const auto place = [&](std::uint64_t bytes) {
    const std::uint64_t offset = bytes_;
    bytes_ += (bytes + alignment - 1) / alignment * alignment;
    return offset;
  };
  const std::uint64_t t = limits.tokens, b = limits.sequences, g = limits.groups;
  template_.token_offset = place(4 * t);
  template_.pos_offset = place(4 * t);
  template_.q_start_offset = place(4 * (b + 1));
  template_.kv_len_offset = place(4 * b);
  template_.page_table_offset = place(4 * g * b * limits.max_pages);
  template_.slot_offset = place(8 * g * t);
  template_.rope_row_offset = place(4 * t);
  template_.out_row_offset = place(4 * std::max<std::uint64_t>(1, limits.rows));
  for (Slot slot = 0; slot < devices.size(); ++slot) {
    buffers_[slot] = devices[slot]->alloc(bytes_, "the step descriptor");
  }
}

bp_step StepBuffer::counts(const StepLimits& limits, std::uint32_t n_decode) {
  bp_step step{};
  step.size = sizeof(step);
  step.tokens = limits.tokens;
  step.sequences = limits.sequences;
  step.rows = limits.rows;
  step.n_decode = n_decode;
  step.groups = limits.groups;
  step.page_size = limits.page_size;
  step.max_pages = limits.max_pages;
  step.max_q = limits.tokens;
  step.max_kv = limits.max_pages * limits.page_size;
  return step;
}

void StepBuffer::check(const sched::Step& step) const {
  const std::uint64_t t = step.tokens(), b = step.sequences(), g = step.groups;
  const bool fits = t <= limits_.tokens && b <= limits_.sequences && step.rows() <= limits_.rows &&
                    g == limits_.groups && step.max_pages <= limits_.max_pages && step.page_size == limits_.page_size;
  const bool sound = step.pos.size() == t && step.q_start.size() == b + 1 &&
                     step.page_table.size() == g * b * step.max_pages && step.slot.size() == g * t &&
                     step.rope_row.size() == t && step.n_decode <= b;
  if (!fits || !sound) throw Error(ErrorCode::kInternal, fits ? "an inconsistent step" : "a step larger than planned");
  bool ragged = step.q_start.front() == 0 && static_cast<std::uint64_t>(step.q_start.back()) == t;
  for (std::uint64_t i = 0; i < b; ++i) {
    const std::int64_t tokens = std::int64_t{step.q_start[i + 1]} - step.q_start[i], length = step.kv_len[i];
    ragged = ragged && tokens >= 0 && tokens <= step.max_q && length >= tokens && length <= step.max_kv;
  }
  const auto in = [](const auto& values, std::int64_t least, std::int64_t end) {
    return std::all_of(values.begin(), values.end(), [&](std::int64_t v) { return v >= least && v < end; });
  };
  const auto tokens = static_cast<std::int64_t>(t);
  if (!ragged || step.max_kv > std::uint64_t{step.max_pages} * step.page_size || !in(step.out_row, 0, tokens)) {
    throw Error(ErrorCode::kInternal, "an inconsistent step");
  }
}

std::uint32_t StepBuffer::bucket(std::uint32_t max_pages) const {
  return std::min(std::bit_ceil(max_pages), limits_.max_pages);
}

void StepBuffer::widen(std::uint32_t max_pages) {
  const std::size_t rows = std::size_t{step_->groups} * step_->sequences();
  widened_.swap(widened_before_);
  widened_.assign(rows * max_pages, -1);
  for (std::size_t row = 0; row < rows; ++row) {
    std::copy_n(step_->page_table.data() + row * step_->max_pages, step_->max_pages, widened_.data() + row * max_pages);
  }
  for (bp_step& s : steps_) {
    s.max_pages = max_pages;
    s.page_table = widened_.data();
  }
}

void StepBuffer::set(const sched::Step& step, std::uint32_t max_pages) {
  check(step);
  step_ = &step;
  std::fill(uploaded_.begin(), uploaded_.end(), 0);
  for (Slot slot = 0; slot < steps_.size(); ++slot) {
    bp_step& s = steps_[slot];
    s = template_;
    s.size = sizeof(s);
    s.tokens = step.tokens();
    s.sequences = step.sequences();
    s.rows = step.rows();
    s.n_decode = step.n_decode;
    s.groups = step.groups;
    s.page_size = step.page_size;
    s.max_pages = step.max_pages;
    s.max_q = step.max_q;
    s.max_kv = step.max_kv;
    s.token = step.token.data();
    s.pos = step.pos.data();
    s.q_start = step.q_start.data();
    s.kv_len = step.kv_len.data();
    s.page_table = step.page_table.data();
    s.slot = step.slot.data();
    s.rope_row = step.rope_row.data();
    s.out_row = step.out_row.data();
  }
  if (max_pages == 0) return;
  // What is recorded now is launched for longer sequences too, up to what the width holds.
  for (bp_step& s : steps_) s.max_kv = std::max(max_pages, step.max_pages) * s.page_size;
  if (max_pages > step.max_pages) widen(max_pages);
}

void StepBuffer::forget() {
  for (auto& arrays : resident_) arrays = {};
  std::fill(uploaded_.begin(), uploaded_.end(), 0);
}

// From a step of decoding sequences to the next, most arrays stay, and of the page table all but a few entries.
void StepBuffer::upload(Slot slot, std::size_t array, std::uint64_t offset, std::span<const std::byte> contents) {
  std::vector<std::byte>& known = resident_[slot][array];
  const std::size_t common = std::min(known.size(), contents.size());
  const auto unlike =
      std::mismatch(contents.begin(), contents.begin() + static_cast<std::ptrdiff_t>(common), known.begin());
  std::size_t first = static_cast<std::size_t>(unlike.first - contents.begin()) / kElement * kElement;
  std::size_t last = contents.size();
  if (last <= known.size()) {
    while (last > first && contents[last - 1] == known[last - 1]) --last;
    last = std::min(contents.size(), (last + kElement - 1) / kElement * kElement);
  }
  if (first >= last) return;
  (*devices_)[slot]->upload_async(buffers_[slot], offset + first, contents.subspan(first, last - first));
  known.resize(std::max(known.size(), contents.size()));
  std::copy(contents.begin() + static_cast<std::ptrdiff_t>(first), contents.begin() + static_cast<std::ptrdiff_t>(last),
            known.begin() + static_cast<std::ptrdiff_t>(first));
}

void StepBuffer::upload(Slot slot) {
  const bp_step& s = steps_[slot];
  const bool widened = s.max_pages != step_->max_pages;
  upload(slot, 0, s.token_offset, bytes_of(step_->token));
  upload(slot, 1, s.pos_offset, bytes_of(step_->pos));
  upload(slot, 2, s.q_start_offset, bytes_of(step_->q_start));
  upload(slot, 3, s.kv_len_offset, bytes_of(step_->kv_len));
  upload(slot, 4, s.page_table_offset, bytes_of(widened ? widened_ : step_->page_table));
  upload(slot, 5, s.slot_offset, bytes_of(step_->slot));
  upload(slot, 6, s.rope_row_offset, bytes_of(step_->rope_row));
  upload(slot, 7, s.out_row_offset, bytes_of(step_->out_row));
  uploaded_[slot] = 1;
}

const bp_step* StepBuffer::on(Slot slot) {
  if (!uploaded_[slot]) upload(slot);
  steps_[slot].buffer = buffers_[slot].handle();
  return &steps_[slot];
}

bp_tensor StepBuffer::array(Slot slot, std::uint64_t offset, std::uint32_t count) {
  return make_tensor(nullptr, DType::kI32, {static_cast<std::int64_t>(count)}, offset).abi(buffers_[slot].handle());
}

bp_tensor StepBuffer::out_row(Slot slot, std::uint32_t begin, std::uint32_t count) {
  return array(slot, on(slot)->out_row_offset + 4ull * begin, count);
}

}  // namespace backplane::device

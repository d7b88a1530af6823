#include "core/device/weight.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/abi_call.h"
#include "core/base/error.h"

namespace backplane::device {
namespace {

constexpr std::uint64_t kChunkBytes = 16u << 20;  // of import and conversion: bounds the host memory they need

bool owns_weights(const bp_weights_table& table) {
  return table.packed_bytes && table.create && table.import_rows && table.finish && table.destroy && table.export_rows;
}

}  // namespace

Weight::Weight(const Devices& devices, WeightSource source)
    : devices_(&devices),
      source_(std::move(source)),
      rows_(static_cast<std::int64_t>(source_.transposed ? source_.stored.columns : source_.stored.rows)),
      columns_(static_cast<std::int64_t>(source_.transposed ? source_.stored.rows : source_.stored.columns)),
      held_(devices.size()) {}

Weight::~Weight() {
  for (Slot slot = 0; slot < held_.size(); ++slot) {
    if (!held_[slot].imported) continue;
    Device& device = *(*devices_)[slot];
    device.tables().weights->destroy(device.handle(), held_[slot].imported);
  }
}

bp_weight_desc Weight::description(bp_weight_part& part) const {
  part = {};
  part.size = sizeof(part);
  part.type = static_cast<bp_type>(source_.stored.type);
  part.flags = source_.transposed ? BP_WEIGHT_TRANSPOSED : 0;
  part.rows = static_cast<std::uint64_t>(rows_);
  part.columns = static_cast<std::uint64_t>(columns_);
  bp_weight_desc desc{};
  desc.size = sizeof(desc);
  desc.uses = uses_;
  desc.parts = &part;
  desc.part_count = 1;
  desc.part_stride = sizeof(part);
  desc.name = source_.name.c_str();
  return desc;
}

std::vector<WeightForm> Weight::forms(Slot slot) const {
  if (held_[slot].form) return {*held_[slot].form};
  using Kind = WeightForm::Kind;
  Device& device = *(*devices_)[slot];
  const DType stored = source_.stored.type;
  std::vector<WeightForm> out;
  if (owns_weights(*device.tables().weights)) {
    bp_weight_part part;
    const bp_weight_desc desc = description(part);
    std::uint64_t bytes = 0;
    AbiCall call;
    if (device.tables().weights->packed_bytes(device.handle(), call.context(), &desc, &bytes) == BP_OK) {
      out.push_back({Kind::kImported, stored, false});
    }
  }
  if (device.takes_weight_type(stored)) {
    out.push_back({Kind::kCanonical, stored, source_.transposed});
    if (source_.transposed) out.push_back({Kind::kConverted, stored, false});
  }
  // What it could be converted to: exactly, where possible.
  for (DType type : {DType::kF32, device.activation_type(), DType::kF64, DType::kBF16, DType::kF16}) {
    const auto same = [&](const WeightForm& f) { return f.kind == Kind::kConverted && f.type == type; };
    if (type == stored || !device.takes_weight_type(type) || std::any_of(out.begin(), out.end(), same)) continue;
    out.push_back({Kind::kConverted, type, false});
  }
  return out;
}

bp_matrix Weight::describe(const WeightForm& form) const {
  Tensor view = make_tensor(nullptr, form.type, {rows_, columns_});
  if (form.transposed) {
    view.stride[0] = dtype_info(form.type).block_bytes;
    view.stride[1] = rows_ * dtype_info(form.type).block_bytes;
  }
  bp_matrix matrix{};
  matrix.tensor = view.abi(nullptr);
  return matrix;
}

std::uint64_t Weight::realize(Slot slot) {
  Held& held = held_[slot];
  if (held.ready) return 0;
  std::uint64_t bytes = 0;
  switch (held.form->kind) {
    case WeightForm::Kind::kImported:
      bytes = realize_imported(slot);
      break;
    case WeightForm::Kind::kCanonical:
      bytes = realize_canonical(slot);
      break;
    case WeightForm::Kind::kConverted:
      bytes = realize_converted(slot);
      break;
  }
  held.ready = true;
  if (bytes != 0 && source_.release) source_.release(source_.stored.data);
  return bytes;
}

std::uint64_t Weight::realize_imported(Slot slot) {
  Device& device = *(*devices_)[slot];
  const bp_weights_table& table = *device.tables().weights;
  const std::string where = device.name() + ": import of " + source_.name;
  bp_weight_part part;
  const bp_weight_desc desc = description(part);
  std::uint64_t bytes = 0;
  AbiCall sizing;
  sizing.check(table.packed_bytes(device.handle(), sizing.context(), &desc, &bytes), where);
  AbiCall creating;
  creating.check(table.create(device.handle(), creating.context(), &desc, &held_[slot].imported), where);
  const StoredMatrix& m = source_.stored;
  const std::uint64_t row = *row_bytes(m.type, m.columns);
  const std::uint64_t step = std::max<std::uint64_t>(1, kChunkBytes / std::max<std::uint64_t>(1, row));
  for (std::uint64_t begin = 0; begin < m.rows; begin += step) {
    const std::uint64_t count = std::min(step, m.rows - begin);
    AbiCall call;
    call.check(table.import_rows(device.handle(), device.stream(), call.context(), held_[slot].imported, 0, begin,
                                 count, m.data.data() + begin * row, count * row),
               where);
  }
  AbiCall finishing;
  finishing.check(table.finish(device.handle(), device.stream(), finishing.context(), held_[slot].imported), where);
  device.sync();
  return std::max<std::uint64_t>(bytes, 1);
}

std::uint64_t Weight::realize_canonical(Slot slot) {
  Device& device = *(*devices_)[slot];
  const std::span<const std::byte> data = source_.stored.data;
  const std::uint32_t natural = is_quantized(source_.stored.type) ? 2 : dtype_info(source_.stored.type).block_bytes;
  if (reinterpret_cast<std::uintptr_t>(data.data()) % natural == 0) {
    auto* address = const_cast<std::byte*>(data.data());  // imported as not writable
    if (auto buffer = device.import_host({address, data.size()}, false)) {
      held_[slot].buffer = std::move(*buffer);
      return 0;
    }
  }
  held_[slot].buffer = device.alloc(data.size(), source_.name);
  device.upload(held_[slot].buffer, 0, data);
  return data.size();
}

std::uint64_t Weight::realize_converted(Slot slot) {
  Device& device = *(*devices_)[slot];
  Device& reference = *devices_->back();
  StoredMatrix rows = source_.stored;
  std::vector<std::byte> straight;
  if (source_.transposed) {
    straight = transpose(reference, rows);
    rows = {straight, rows.type, rows.columns, rows.rows};
  }
  const DType type = held_[slot].form->type;
  const std::uint64_t to_row = rows.columns * dtype_info(type).block_bytes;
  const std::uint64_t from_row = *row_bytes(rows.type, rows.columns);
  held_[slot].buffer = device.alloc(rows.rows * to_row, source_.name);
  const std::uint64_t step = std::max<std::uint64_t>(1, kChunkBytes / std::max<std::uint64_t>(1, to_row));
  for (std::uint64_t begin = 0; begin < rows.rows; begin += step) {
    const std::uint64_t count = std::min(step, rows.rows - begin);
    const StoredMatrix part{rows.data.subspan(begin * from_row, count * from_row), rows.type, count, rows.columns};
    device.upload(held_[slot].buffer, begin * to_row, convert(reference, part, type));
  }
  return rows.rows * to_row;
}

bp_matrix Weight::matrix(Slot slot) const {
  const Held& held = held_[slot];
  bp_matrix matrix = describe(*held.form);
  matrix.weight = held.imported;
  matrix.tensor.buffer = held.buffer.handle();
  return matrix;
}

}  // namespace backplane::device

#include "core/device/weight.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

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
      uses_(devices.size()),
      held_(devices.size()) {
  if (source_.transposed && is_quantized(source_.stored.type)) {
    throw Error(ErrorCode::kBadFile, "a transposed matrix in quantized blocks", source_.name);
  }
}

Weight::~Weight() {
  for (Slot slot = 0; slot < held_.size(); ++slot) {
    const Device& device = *(*devices_)[slot];
    for (const Held& held : held_[slot]) {
      if (held.imported) device.tables().weights->destroy(device.handle(), held.imported);
    }
  }
}

void Weight::add_use(std::uint64_t use) {
  for (auto& counts : uses_) ++counts[static_cast<std::size_t>(std::countr_zero(use))];
}

void Weight::drop_use(Slot slot, std::uint64_t use) {
  std::uint32_t& count = uses_[slot][static_cast<std::size_t>(std::countr_zero(use))];
  if (count > 0) --count;
}

std::uint64_t Weight::uses_on(Slot slot) const {
  std::uint64_t uses = 0;
  for (std::size_t bit = 0; bit < 64; ++bit) uses |= std::uint64_t{uses_[slot][bit] != 0} << bit;
  return uses;
}

bp_weight_desc Weight::description(bp_weight_part& part, std::uint64_t uses) const {
  part = {};
  part.size = sizeof(part);
  part.type = static_cast<bp_type>(source_.stored.type);
  part.flags = source_.transposed ? BP_WEIGHT_TRANSPOSED : 0;
  part.rows = static_cast<std::uint64_t>(rows_);
  part.columns = static_cast<std::uint64_t>(columns_);
  bp_weight_desc desc{};
  desc.size = sizeof(desc);
  desc.uses = uses;
  desc.parts = &part;
  desc.part_count = 1;
  desc.part_stride = sizeof(part);
  desc.name = source_.name.c_str();
  return desc;
}

bool Weight::imports(Device& device, std::uint64_t uses) const {
  if (!owns_weights(*device.tables().weights)) return false;
  bp_weight_part part;
  const bp_weight_desc desc = description(part, uses);
  return device.accepts("weights", [&](bp_context context) {
    std::uint64_t bytes = 0;
    return device.tables().weights->packed_bytes(device.handle(), context, &desc, &bytes);
  });
}

std::vector<WeightForm> Weight::forms(Slot slot, std::uint64_t use) const {
  using Kind = WeightForm::Kind;
  Device& device = *(*devices_)[slot];
  const DType stored = source_.stored.type;
  std::vector<WeightForm> out;
  const auto add = [&](const WeightForm& form) {
    if (std::find(out.begin(), out.end(), form) == out.end()) out.push_back(form);
  };
  for (const Held& held : held_[slot]) {
    if (held.form.kind != Kind::kImported || (held.form.uses & use) != 0) add(held.form);
  }
  const bool imported = std::any_of(out.begin(), out.end(), [](const auto& f) { return f.kind == Kind::kImported; });
  const std::uint64_t all = uses_on(slot) | use;
  if (!imported && imports(device, all)) {
    add({Kind::kImported, stored, false, all});
  } else if (!imported && all != use && imports(device, use)) {
    add({Kind::kImported, stored, false, use});
  }
  if (device.takes_weight_type(stored)) {
    add({Kind::kCanonical, stored, source_.transposed, 0});
    if (source_.transposed) add({Kind::kConverted, stored, false, 0});
  }
  // What it could be converted to: exactly, where possible.
  for (DType type : {DType::kF32, device.activation_type(), DType::kF64, DType::kBF16, DType::kF16}) {
    if (type != stored && device.takes_weight_type(type)) add({Kind::kConverted, type, false, 0});
  }
  return out;
}

std::size_t Weight::choose(Slot slot, const WeightForm& form) {
  std::vector<Held>& all = held_[slot];
  const auto it = std::find_if(all.begin(), all.end(), [&](const Held& held) { return held.form == form; });
  if (it != all.end()) return static_cast<std::size_t>(it - all.begin());
  all.emplace_back().form = form;
  return all.size() - 1;
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

std::uint64_t Weight::realize(Slot slot, std::size_t form) {
  Device& device = *(*devices_)[slot];
  Held& held = held_[slot][form];
  if (held.ready) return 0;
  std::uint64_t bytes = 0;
  switch (held.form.kind) {
    case WeightForm::Kind::kImported:
      bytes = realize_imported(device, held);
      break;
    case WeightForm::Kind::kCanonical:
      bytes = realize_canonical(device, held);
      break;
    case WeightForm::Kind::kConverted:
      bytes = realize_converted(device, held);
      break;
  }
  held.ready = true;
  held.matrix = describe(held.form);
  held.matrix.weight = held.imported;
  held.matrix.tensor.buffer = held.buffer.handle();
  if (bytes != 0 && source_.release && !in_place_anywhere()) source_.release(source_.stored.data);
  return bytes;
}

bool Weight::in_place_anywhere() const {
  for (const auto& slot : held_) {
    for (const Held& held : slot) {
      if (held.form.kind == WeightForm::Kind::kCanonical && held.buffer.host() == source_.stored.data.data()) {
        return true;
      }
    }
  }
  return false;
}

std::uint64_t Weight::realize_imported(Device& device, Held& held) {
  const bp_weights_table& table = *device.tables().weights;
  const std::string what = "import of " + source_.name;
  bp_weight_part part;
  const bp_weight_desc desc = description(part, held.form.uses);
  std::uint64_t bytes = 0;
  device.call(what, [&](bp_context c) { return table.packed_bytes(device.handle(), c, &desc, &bytes); });
  held.imported = device.create<bp_weight>(
      what, [&](bp_context c, bp_weight* made) { return table.create(device.handle(), c, &desc, made); });
  const StoredMatrix& m = source_.stored;
  const std::uint64_t row = *row_bytes(m.type, m.columns);
  const std::uint64_t step = std::max<std::uint64_t>(1, kChunkBytes / std::max<std::uint64_t>(1, row));
  for (std::uint64_t begin = 0; begin < m.rows; begin += step) {
    const std::uint64_t count = std::min(step, m.rows - begin);
    device.call(what, [&](bp_context c) {
      return table.import_rows(device.handle(), device.stream(), c, held.imported, 0, begin, count,
                               m.data.data() + begin * row, count * row);
    });
  }
  device.call(what, [&](bp_context c) { return table.finish(device.handle(), device.stream(), c, held.imported); });
  device.sync();
  return std::max<std::uint64_t>(bytes, 1);
}

std::uint64_t Weight::realize_canonical(Device& device, Held& held) {
  const std::span<const std::byte> data = source_.stored.data;
  const std::uint32_t natural = is_quantized(source_.stored.type) ? 2 : dtype_info(source_.stored.type).block_bytes;
  if (reinterpret_cast<std::uintptr_t>(data.data()) % natural == 0) {
    auto* address = const_cast<std::byte*>(data.data());  // imported as not writable
    if (auto buffer = device.import_host({address, data.size()}, false)) {
      held.buffer = std::move(*buffer);
      return 0;
    }
  }
  held.buffer = device.alloc(data.size(), source_.name);
  device.upload(held.buffer, 0, data);
  return data.size();
}

std::uint64_t Weight::realize_converted(Device& device, Held& held) {
  Device& reference = *devices_->back();
  StoredMatrix rows = source_.stored;
  std::vector<std::byte> straight;
  if (source_.transposed) {
    straight = transpose(reference, rows);
    rows = {straight, rows.type, rows.columns, rows.rows};
  }
  const DType type = held.form.type;
  const std::uint64_t to_row = rows.columns * dtype_info(type).block_bytes;
  const std::uint64_t from_row = *row_bytes(rows.type, rows.columns);
  held.buffer = device.alloc(rows.rows * to_row, source_.name);
  const std::uint64_t step = std::max<std::uint64_t>(1, kChunkBytes / std::max<std::uint64_t>(1, to_row));
  for (std::uint64_t begin = 0; begin < rows.rows; begin += step) {
    const std::uint64_t count = std::min(step, rows.rows - begin);
    const StoredMatrix part{rows.data.subspan(begin * from_row, count * from_row), rows.type, count, rows.columns};
    device.upload(held.buffer, begin * to_row, convert(reference, part, type));
  }
  return rows.rows * to_row;
}

bp_matrix Weight::matrix(Slot slot, std::size_t form) const { return held_[slot][form].matrix; }

}  // namespace backplane::device

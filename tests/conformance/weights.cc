#include "tests/conformance/weights.h"

#include <algorithm>
#include <cstring>

#include "core/base/abi_call.h"

namespace backplane::conformance {

Weight random_weight(Trial& trial, DType type, std::int64_t rows, std::int64_t columns) {
  Weight w{type, rows, columns, random_weight(trial.random, type, rows, columns), {}};
  if (!is_quantized(type)) {
    w.numbers = decode(type, {rows, columns}, w.bytes);
    return w;
  }
  bp_unary_args cast{};
  cast.x = trial.oracle.raw(type, {rows, columns}, w.bytes);
  cast.out = trial.oracle.output({rows, columns});
  trial.oracle.run(BP_OP_CAST, cast);
  w.numbers = trial.oracle.read(cast.out);
  return w;
}

std::string_view form_name(Form form) {
  switch (form) {
    case Form::kCanonical:
      return "canonical";
    case Form::kTransposed:
      return "transposed";
    case Form::kImported:
      return "imported";
    default:
      return "imported_transposed";
  }
}

std::vector<std::byte> transposed_bytes(const Weight& weight) {
  const std::size_t size = dtype_info(weight.type).block_bytes;
  const auto rows = static_cast<std::size_t>(weight.rows), columns = static_cast<std::size_t>(weight.columns);
  std::vector<std::byte> out(weight.bytes.size());
  for (std::size_t n = 0; n < rows; ++n) {
    for (std::size_t c = 0; c < columns; ++c) {
      std::memcpy(out.data() + (c * rows + n) * size, weight.bytes.data() + (n * columns + c) * size, size);
    }
  }
  return out;
}

namespace {

bp_tensor shape_only(const Weight& weight) {
  const DTypeInfo& info = dtype_info(weight.type);
  bp_tensor t{};
  t.type = static_cast<bp_type>(weight.type);
  t.rank = 2;
  t.shape[0] = weight.rows;
  t.shape[1] = weight.columns;
  t.shape[2] = t.shape[3] = 1;
  t.stride[0] = weight.columns / info.block_elements * info.block_bytes;
  t.stride[1] = info.block_bytes;
  return t;
}

}  // namespace

bp_matrix matrix_on(Side& side, const Weight& weight, Form form, std::uint64_t uses) {
  bp_matrix matrix{};
  if (side.is_oracle() || form == Form::kCanonical) {
    matrix.tensor = side.raw(weight.type, {weight.rows, weight.columns}, weight.bytes);
  } else if (form == Form::kTransposed) {
    matrix.tensor = side.raw(weight.type, {weight.columns, weight.rows}, transposed_bytes(weight));
    std::swap(matrix.tensor.shape[0], matrix.tensor.shape[1]);
    std::swap(matrix.tensor.stride[0], matrix.tensor.stride[1]);
  } else {
    auto imported = std::make_shared<ImportedWeight>(side, std::vector<const Weight*>{&weight}, uses,
                                                     form == Form::kImportedTransposed);
    matrix.weight = imported->handle();
    matrix.tensor = shape_only(weight);
    side.keep(std::move(imported));
  }
  return matrix;
}

ImportedWeight::ImportedWeight(Side& side, const std::vector<const Weight*>& parts, std::uint64_t uses, bool transposed)
    : side_(side), parts_(parts), transposed_(transposed) {
  device::Device& device = side.device();
  if (!has_weights(device)) throw Skipped{"the plugin has no weights table"};
  const bp_weights_table& table = *device.tables().weights;
  std::vector<bp_weight_part> descriptions;
  for (const Weight* w : parts) {
    bp_weight_part part{};
    part.size = sizeof(part);
    part.type = static_cast<bp_type>(w->type);
    part.flags = transposed ? std::uint32_t{BP_WEIGHT_TRANSPOSED} : 0;
    part.rows = static_cast<std::uint64_t>(w->rows);
    part.columns = static_cast<std::uint64_t>(w->columns);
    descriptions.push_back(part);
  }
  bp_weight_desc desc{};
  desc.size = sizeof(desc);
  desc.uses = uses;
  desc.parts = descriptions.data();
  desc.part_count = descriptions.size();
  desc.part_stride = sizeof(bp_weight_part);
  desc.name = "conform";
  std::uint64_t bytes = 0;
  AbiCall sizing;
  const bp_status status = table.packed_bytes(device.handle(), sizing.context(), &desc, &bytes);
  if (status == BP_UNSUPPORTED) {
    require(!sizing.text().empty(), "a weight was refused without a reason");
    throw Skipped{sizing.text()};
  }
  sizing.check(status, "packed_bytes");
  AbiCall creating;
  creating.check(table.create(device.handle(), creating.context(), &desc, &handle_), "weights.create");
  require(handle_ != nullptr, "weights.create: success without a weight");
  for (std::uint64_t part = 0; part < parts_.size(); ++part) import_part(part);
  AbiCall finishing;
  finishing.check(table.finish(device.handle(), device.stream(), finishing.context(), handle_), "weights.finish");
  device.sync();
}

// In two uneven pieces, the later one first, from memory that is overwritten once the call is back.
void ImportedWeight::import_part(std::uint64_t part) {
  device::Device& device = side_.device();
  const Weight& w = *parts_[part];
  const std::vector<std::byte> stored = transposed_ ? transposed_bytes(w) : w.bytes;
  const auto rows = static_cast<std::uint64_t>(transposed_ ? w.columns : w.rows);
  const std::uint64_t row = rows == 0 ? 0 : stored.size() / rows;
  const std::uint64_t first = (rows + 2) / 3;
  const std::pair<std::uint64_t, std::uint64_t> pieces[] = {{first, rows}, {0, first}};
  for (const auto& [begin, end] : pieces) {
    if (begin == end) continue;
    std::vector<std::byte> data(stored.begin() + static_cast<std::ptrdiff_t>(begin * row),
                                stored.begin() + static_cast<std::ptrdiff_t>(end * row));
    AbiCall call;
    call.check(device.tables().weights->import_rows(device.handle(), device.stream(), call.context(), handle_, part,
                                                    begin, end - begin, data.data(), data.size()),
               "import_rows");
    std::fill(data.begin(), data.end(), std::byte{0xff});
  }
}

std::vector<std::byte> ImportedWeight::export_rows(std::uint64_t part, std::int64_t row, std::int64_t count) {
  device::Device& device = side_.device();
  const Weight& w = *parts_[part];
  const std::int64_t stored_rows = transposed_ ? w.columns : w.rows;
  std::vector<std::byte> data(w.bytes.size() / static_cast<std::size_t>(stored_rows) * static_cast<std::size_t>(count));
  AbiCall call;
  call.check(device.tables().weights->export_rows(device.handle(), device.stream(), call.context(), handle_, part,
                                                  static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(count),
                                                  data.data(), data.size()),
             "export_rows");
  device.sync();
  return data;
}

ImportedWeight::~ImportedWeight() {
  if (handle_) side_.device().tables().weights->destroy(side_.device().handle(), handle_);
}

}  // namespace backplane::conformance

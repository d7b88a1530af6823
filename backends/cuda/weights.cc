// The table of weights: the file's rows on the device, quantized ones in planes (layout.h).
//
// Planes are made and unmade by the GPU, in pieces that pass through some memory of its own: it does so in a fraction
// of the time that the bytes take to come from the file, and the host neither spends time nor holds a copy.
#include <algorithm>
#include <cstring>
#include <memory>

#include "backends/cuda/device.h"
#include "backends/cuda/layout.h"

namespace backplane::cuda {
namespace {

constexpr std::uint64_t kMostColumns = std::uint64_t{1} << 31;
constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;  // that are repacked at once, or one row

Weight shaped(const bp_weight_desc* given) {
  plugin::require(given != nullptr, "a weight without a description");
  const bp_weight_desc desc = plugin::read_struct(given);
  if ((desc.uses & ~std::uint64_t{BP_USE_LINEAR | BP_USE_EMBED}) != 0) plugin::refuse("an unknown use of a weight");
  plugin::require(desc.parts != nullptr && desc.part_count > 0, "a weight without parts");
  if (desc.part_count != 1) plugin::refuse("weights of several parts are imported one by one");
  const bp_weight_part part = plugin::read_struct(desc.parts);
  if ((part.flags & ~std::uint32_t{BP_WEIGHT_TRANSPOSED}) != 0) plugin::refuse("an unknown flag of a weight's part");
  if (!is_weight_type(part.type)) plugin::refuse(std::string("weights in ") + plugin::type_info(part.type).name);
  Weight weight;
  weight.type = part.type;
  weight.transposed = (part.flags & BP_WEIGHT_TRANSPOSED) != 0;
  if (weight.transposed && plugin::is_quantized(part.type)) plugin::refuse("quantized weights stored transposed");
  if (part.columns > kMostColumns) plugin::refuse("rows of more than 2^31 columns");
  weight.rows = part.rows;
  weight.columns = part.columns;
  const plugin::Bytes row = plugin::row_bytes(part.type, part.columns);
  plugin::require(row.has_value(), "rows that are not whole blocks");
  weight.row_bytes = *row;
  weight.row_pitch =
      plugin::is_quantized(part.type)
          ? static_cast<std::uint64_t>(row_layout(part.type, static_cast<std::int64_t>(part.columns)).pitch)
          : static_cast<std::uint64_t>(whole_sectors(static_cast<std::int64_t>(*row)));
  const plugin::Bytes all = plugin::checked_multiply(weight.row_pitch, part.rows);
  plugin::require(all.has_value() && *all <= INT64_MAX, "a weight of impossible size");
  return weight;
}

Matrix view_of(const Weight& weight) {
  Matrix matrix;
  matrix.type = weight.type;
  matrix.data = weight.memory.data();
  matrix.pitch = static_cast<std::int64_t>(weight.row_pitch);
  matrix.step = plugin::type_info(weight.type).block_bytes;
  matrix.rows = static_cast<std::int64_t>(weight.rows);
  matrix.columns = static_cast<std::int64_t>(weight.columns);
  matrix.vectors = true;
  if (!plugin::is_quantized(weight.type)) return matrix;
  const RowLayout layout = row_layout(weight.type, matrix.columns);
  matrix.second = static_cast<std::uint32_t>(layout.second);
  matrix.scales = static_cast<std::uint32_t>(layout.scales);
  matrix.last = static_cast<std::uint32_t>(layout.last);
  return matrix;
}

bp_status packed_bytes(bp_device, bp_context context, const bp_weight_desc* desc, std::uint64_t* bytes) {
  return plugin::guard(context, [&] {
    const Weight weight = shaped(desc);
    *bytes = weight.row_pitch * weight.rows;
  });
}

bp_status create(bp_device handle, bp_context context, const bp_weight_desc* desc, bp_weight* out) {
  return plugin::guard(context, [&] {
    device_of(handle).guarded([&] {
      auto weight = std::make_unique<Weight>(shaped(desc));
      if (weight->transposed) weight->stored.resize(weight->row_bytes * weight->rows);
      weight->memory = DeviceMemory(device_of(handle), weight->row_pitch * weight->rows);
      weight->matrix = view_of(*weight);
      *out = reinterpret_cast<bp_weight>(weight.release());
    });
  });
}

// Rows as the file has them.
void check_rows(const Weight& weight, std::uint64_t part, std::uint64_t row, std::uint64_t count, std::uint64_t bytes) {
  const std::uint64_t rows = weight.transposed ? weight.columns : weight.rows;
  plugin::require(part == 0 && row <= rows && count <= rows - row, "rows that the weight hasn't");
  const std::uint64_t all = weight.row_bytes * weight.rows;
  plugin::require(bytes == (rows == 0 ? 0 : all / rows * count), "another number of bytes than the rows have");
}

// Quantized rows between the host and planes, a piece at a time. Ordered on the stream.
void repack(Stream& on, const Weight& weight, std::uint64_t row, std::uint64_t count, std::byte* host, bool pack) {
  const std::uint64_t most = std::min(weight.rows, std::max<std::uint64_t>(1, kPieceBytes / weight.row_bytes));
  std::byte* piece = on.scratch(most * weight.row_bytes);
  for (std::uint64_t done = 0; done < count; done += most) {
    RepackCall call;
    call.type = weight.type;
    call.pack = pack;
    call.file = piece;
    call.planes = weight.memory.data() + (row + done) * weight.row_pitch;
    call.rows = static_cast<std::int64_t>(std::min(most, count - done));
    call.columns = static_cast<std::int64_t>(weight.columns);
    const std::uint64_t bytes = static_cast<std::uint64_t>(call.rows) * weight.row_bytes;
    std::byte* there = host + done * weight.row_bytes;
    if (pack) check(cudaMemcpyAsync(call.file, there, bytes, cudaMemcpyHostToDevice, on.handle), "cudaMemcpyAsync");
    check(enqueue(on.handle, call), "a kernel's launch");
    if (!pack) check(cudaMemcpyAsync(there, call.file, bytes, cudaMemcpyDeviceToHost, on.handle), "cudaMemcpyAsync");
  }
}

// Rows of floats; what is between them becomes zeros, so that kernels can read them in whole vectors.
void copy_rows(Stream& on, const Weight& weight, std::uint64_t row, std::uint64_t count, const void* data) {
  std::byte* to = weight.memory.data() + row * weight.row_pitch;
  if (weight.row_pitch != weight.row_bytes) {
    check(cudaMemsetAsync(to, 0, weight.row_pitch * count, on.handle), "cudaMemsetAsync");
  }
  check(cudaMemcpy2DAsync(to, weight.row_pitch, data, weight.row_bytes, weight.row_bytes, count, cudaMemcpyHostToDevice,
                          on.handle),
        "cudaMemcpy2DAsync");
}

bp_status import_rows(bp_device, bp_stream stream, bp_context context, bp_weight handle, std::uint64_t part,
                      std::uint64_t row, std::uint64_t count, const void* data, std::uint64_t bytes) {
  return on_stream(stream, context, [&](Stream& on) {
    Weight& weight = weight_of(handle);
    plugin::require(!weight.finished, "rows for a weight that takes no more");
    check_rows(weight, part, row, count, bytes);
    if (bytes == 0) return;
    if (weight.transposed) {
      std::memcpy(weight.stored.data() + bytes / count * row, data, bytes);
      return;
    }
    if (plugin::is_quantized(weight.type)) {
      repack(on, weight, row, count, const_cast<std::byte*>(static_cast<const std::byte*>(data)), true);
    } else {
      copy_rows(on, weight, row, count, data);
    }
    check(cudaStreamSynchronize(on.handle), "cudaStreamSynchronize");  // the data may go away
  });
}

// [from_rows, from_columns] of elements, turned.
std::vector<std::byte> turned(const std::vector<std::byte>& from, std::uint64_t from_rows, std::uint64_t from_columns,
                              std::uint64_t element) {
  std::vector<std::byte> to(from.size());
  for (std::uint64_t c = 0; c < from_columns; ++c) {
    for (std::uint64_t r = 0; r < from_rows; ++r) {
      std::memcpy(&to[(c * from_rows + r) * element], &from[(r * from_columns + c) * element], element);
    }
  }
  return to;
}

bp_status finish(bp_device, bp_stream stream, bp_context context, bp_weight handle) {
  return on_stream(stream, context, [&](Stream& on) {
    Weight& weight = weight_of(handle);
    plugin::require(!weight.finished, "a weight that is finished already");
    if (weight.transposed && !weight.stored.empty()) {
      const auto rows = turned(weight.stored, weight.columns, weight.rows, plugin::type_info(weight.type).block_bytes);
      copy_rows(on, weight, 0, weight.rows, rows.data());
      check(cudaStreamSynchronize(on.handle), "cudaStreamSynchronize");
      weight.stored = {};
    }
    weight.finished = true;
  });
}

bp_status export_rows(bp_device, bp_stream stream, bp_context context, bp_weight handle, std::uint64_t part,
                      std::uint64_t row, std::uint64_t count, void* data, std::uint64_t bytes) {
  return on_stream(stream, context, [&](Stream& on) {
    const Weight& weight = weight_of(handle);
    plugin::require(weight.finished, "rows of a weight that isn't finished");
    check_rows(weight, part, row, count, bytes);
    if (bytes == 0) return;
    if (plugin::is_quantized(weight.type)) {
      repack(on, weight, row, count, static_cast<std::byte*>(data), false);
      check(cudaStreamSynchronize(on.handle), "cudaStreamSynchronize");
      return;
    }
    const std::uint64_t first = weight.transposed ? 0 : row, rows = weight.transposed ? weight.rows : count;
    std::vector<std::byte> all(weight.transposed ? weight.row_bytes * weight.rows : 0);
    check(cudaMemcpy2DAsync(weight.transposed ? all.data() : data, weight.row_bytes,
                            weight.memory.data() + first * weight.row_pitch, weight.row_pitch, weight.row_bytes, rows,
                            cudaMemcpyDeviceToHost, on.handle),
          "cudaMemcpy2DAsync");
    check(cudaStreamSynchronize(on.handle), "cudaStreamSynchronize");
    if (!weight.transposed) return;
    all = turned(all, weight.rows, weight.columns, plugin::type_info(weight.type).block_bytes);
    std::memcpy(data, all.data() + bytes / count * row, bytes);
  });
}

void destroy(bp_device, bp_weight weight) { delete &weight_of(weight); }

}  // namespace

bool is_weight_type(bp_type type) {
  switch (type) {
    case BP_TYPE_F32:
    case BP_TYPE_F16:
    case BP_TYPE_BF16:
    case BP_TYPE_Q4_0:
    case BP_TYPE_Q4_1:
    case BP_TYPE_Q5_0:
    case BP_TYPE_Q5_1:
    case BP_TYPE_Q8_0:
    case BP_TYPE_Q4_K:
    case BP_TYPE_Q5_K:
    case BP_TYPE_Q6_K:
      return true;
    default:
      return false;
  }
}

void fill_weights(bp_weights_table& table) {
  table.packed_bytes = packed_bytes;
  table.create = create;
  table.import_rows = import_rows;
  table.finish = finish;
  table.export_rows = export_rows;
  table.destroy = destroy;
}

}  // namespace backplane::cuda

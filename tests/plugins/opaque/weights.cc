// Weights in the plugin's own layout.
#include "device.h"
#include "numbers.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

// The i-th part: the array's stride is the core's.
bp_weight_part part_at(const bp_weight_desc& desc, std::uint64_t i) {
  return sdk::read_struct(
      reinterpret_cast<const bp_weight_part*>(reinterpret_cast<const char*>(desc.parts) + i * desc.part_stride));
}

std::unique_ptr<Weight> shaped(const Device& device, const bp_weight_desc& desc) {
  if (device.options.no_weights) sdk::refuse("imports no weights");
  if ((desc.uses & ~std::uint64_t{BP_USE_LINEAR | BP_USE_EMBED}) != 0) sdk::refuse("an unknown use");
  if (device.options.no_embed && (desc.uses & BP_USE_EMBED) != 0) sdk::refuse("imports no tables of EMBED");
  auto weight = std::make_unique<Weight>();
  weight->uses = desc.uses;
  for (std::uint64_t i = 0; i < desc.part_count; ++i) {
    const bp_weight_part from = part_at(desc, i);
    Weight::Part part;
    if ((from.flags & ~std::uint32_t{BP_WEIGHT_TRANSPOSED}) != 0) sdk::refuse("an unknown flag of a weight's part");
    part.type = from.type;
    part.transposed = (from.flags & BP_WEIGHT_TRANSPOSED) != 0;
    if (!decodable(part.type)) sdk::refuse("an unknown type of weights");
    const auto& types = device.options.import;
    if (!types.empty() && !types.count(sdk::type_info(part.type).name)) sdk::refuse("imports no weights of that type");
    if (part.transposed && device.options.no_transposed) sdk::refuse("takes no transposed weights");
    part.stored_rows = part.transposed ? from.columns : from.rows;
    part.stored_columns = part.transposed ? from.rows : from.columns;
    const auto row = sdk::row_bytes(part.type, part.stored_columns);
    const auto bytes = row ? sdk::checked_multiply(*row, part.stored_rows) : std::nullopt;
    sdk::require(bytes.has_value(), "a weight of impossible size");
    part.blocks = Scrambled(*bytes);
    weight->parts.push_back(std::move(part));
  }
  return weight;
}

// Where block `column` of a stored row is.
std::uint64_t block_place(const Weight::Part& part, std::uint64_t row, std::uint64_t column) {
  return (column * part.stored_rows + row) * sdk::type_info(part.type).block_bytes;
}

template <class Visit>
void for_blocks(Weight::Part& part, std::uint64_t row, std::uint64_t count, std::uint64_t bytes, Visit&& visit) {
  const auto info = sdk::type_info(part.type);
  const std::uint64_t blocks = part.stored_columns / info.block_elements;
  sdk::require(row <= part.stored_rows && count <= part.stored_rows - row, "rows that the part hasn't");
  sdk::require(bytes == count * blocks * info.block_bytes, "another number of bytes than the rows have");
  for (std::uint64_t r = 0; r < count; ++r) {
    for (std::uint64_t c = 0; c < blocks; ++c) {
      visit(block_place(part, row + r, c), (r * blocks + c) * info.block_bytes, info.block_bytes);
    }
  }
}

Weight& weight_of(bp_weight weight) { return *reinterpret_cast<Weight*>(weight); }

bp_status packed_bytes(bp_device device, bp_context context, const bp_weight_desc* desc, std::uint64_t* bytes) {
  return sdk::guard(context, [&] {
    self(device).gate();
    *bytes = 0;
    const auto weight = shaped(self(device), sdk::read_struct(desc));
    for (const Weight::Part& part : weight->parts) *bytes += part.blocks.size();
  });
}

bp_status create(bp_device device, bp_context context, const bp_weight_desc* desc, bp_weight* weight) {
  return sdk::guard(context, [&] {
    self(device).gate();
    *weight = self(device).give<bp_weight>(shaped(self(device), sdk::read_struct(desc)));
  });
}

bp_status import_rows(bp_device device, bp_stream stream, bp_context context, bp_weight handle, std::uint64_t part,
                      std::uint64_t row, std::uint64_t count, const void* data, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    const auto fault = self(device).gate(true);
    Weight& weight = weight_of(handle);
    sdk::require(part < weight.parts.size() && !weight.finished, "rows for a weight that takes no more");
    Weight::Part& to = weight.parts[part];
    for_blocks(to, row, count, bytes, [&](std::uint64_t place, std::uint64_t at, std::uint64_t size) {
      to.blocks.write(place, static_cast<const std::byte*>(data) + at, size);
    });
    if (fault) self(device).enqueue(stream, fault, {});
  });
}

bp_status finish(bp_device device, bp_stream stream, bp_context context, bp_weight weight) {
  return sdk::guard(context, [&] {
    const auto fault = self(device).gate(true);
    weight_of(weight).finished = true;
    if (fault) self(device).enqueue(stream, fault, {});
  });
}

bp_status export_rows(bp_device device, bp_stream stream, bp_context context, bp_weight handle, std::uint64_t part,
                      std::uint64_t row, std::uint64_t count, void* data, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    const auto fault = self(device).gate(true);
    Weight& weight = weight_of(handle);
    sdk::require(part < weight.parts.size() && weight.finished, "rows of a weight that isn't finished");
    Weight::Part& from = weight.parts[part];
    for_blocks(from, row, count, bytes, [&](std::uint64_t place, std::uint64_t at, std::uint64_t size) {
      from.blocks.read(place, static_cast<std::byte*>(data) + at, size);
    });
    if (fault) self(device).enqueue(stream, fault, {});
  });
}

void destroy(bp_device device, bp_weight weight) { self(device).take(reinterpret_cast<Weight*>(weight)); }

std::uint64_t rows_of(const Weight::Part& part) { return part.transposed ? part.stored_columns : part.stored_rows; }

struct Target {
  double* out;
  std::uint64_t stride;  // from one column to the next
};

// One column of blocks after another: in each, those of neighboring rows are neighbors.
void read_part(const Weight::Part& part, std::uint64_t first, std::uint64_t count, const Target& to) {
  const auto info = sdk::type_info(part.type);
  const std::uint64_t columns = part.transposed ? part.stored_rows : part.stored_columns;
  std::vector<std::byte> blocks(count * info.block_bytes);
  std::vector<double> values(count * info.block_elements);
  for (std::uint64_t c = 0; c < columns; c += info.block_elements) {
    if (part.transposed) {
      for (std::uint64_t r = 0; r < count; ++r) {
        part.blocks.read(block_place(part, c, first + r), &blocks[r * info.block_bytes], info.block_bytes);
      }
    } else {
      part.blocks.read(block_place(part, first, c / info.block_elements), blocks.data(), blocks.size());
    }
    decode_row(part.type, blocks.data(), values.size(), values.data());
    for (std::uint64_t j = 0; j < info.block_elements; ++j) {
      for (std::uint64_t r = 0; r < count; ++r) {
        to.out[(c + j) * to.stride + r] = values[r * info.block_elements + j];
      }
    }
  }
}

}  // namespace

void Weight::read_rows(std::uint64_t first, std::uint64_t count, double* out) const {
  sdk::require(finished, "a weight before its finish");
  const std::uint64_t end = first + count;
  std::uint64_t begin = 0;  // of the part
  for (const Part& part : parts) {
    const std::uint64_t from = std::max(first, begin), to = std::min(end, begin + rows_of(part));
    if (from < to) read_part(part, from - begin, to - from, {out + (from - first), count});
    begin += rows_of(part);
  }
  sdk::require(end <= begin, "a row that the weight hasn't");
}

void fill_weights(bp_weights_table& table) {
  table.packed_bytes = packed_bytes;
  table.create = create;
  table.import_rows = import_rows;
  table.finish = finish;
  table.export_rows = export_rows;
  table.destroy = destroy;
}

}  // namespace opaque

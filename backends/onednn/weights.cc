// The table of weights: imports into panels, and back bit for bit.
#include <memory>

#include "backends/onednn/device.h"

namespace backplane::onednn {
namespace {

bp_weight_part only_part(const bp_weight_desc* given) {
  plugin::require(given != nullptr, "a weight without a description");
  const bp_weight_desc desc = plugin::read_struct(given);
  if ((desc.uses & ~std::uint64_t{BP_USE_LINEAR | BP_USE_EMBED}) != 0) plugin::refuse("an unknown use of a weight");
  plugin::require(desc.parts != nullptr && desc.part_count > 0, "a weight without parts");
  if (desc.part_count != 1) plugin::refuse("weights of several parts are packed one by one");
  return plugin::read_struct(desc.parts);
}

bp_status packed_bytes(bp_device, bp_context context, const bp_weight_desc* desc, std::uint64_t* bytes) {
  return plugin::guard(context, [&] { *bytes = PackedWeight::bytes_for(only_part(desc)); });
}

bp_status create(bp_device device, bp_context context, const bp_weight_desc* desc, bp_weight* weight) {
  return plugin::guard(context, [&] {
    *weight = reinterpret_cast<bp_weight>(
        std::make_unique<PackedWeight>(only_part(desc), device_of(device).memory).release());
  });
}

bp_status import_rows(bp_device, bp_stream, bp_context context, bp_weight weight, std::uint64_t part, std::uint64_t row,
                      std::uint64_t count, const void* data, std::uint64_t bytes) {
  return plugin::guard(context, [&] {
    PackedWeight& packed = weight_of(weight);
    plugin::require(part == 0 && !packed.finished(), "rows for a weight that takes no more, or hasn't the part");
    packed.import_rows(row, count, static_cast<const std::byte*>(data), bytes);
  });
}

bp_status finish(bp_device, bp_stream, bp_context context, bp_weight weight) {
  return plugin::guard(context, [&] { weight_of(weight).finish(); });
}

bp_status export_rows(bp_device, bp_stream, bp_context context, bp_weight weight, std::uint64_t part, std::uint64_t row,
                      std::uint64_t count, void* data, std::uint64_t bytes) {
  return plugin::guard(context, [&] {
    const PackedWeight& packed = weight_of(weight);
    plugin::require(part == 0 && packed.finished(), "rows of a weight that isn't finished, or hasn't the part");
    packed.export_rows(row, count, static_cast<std::byte*>(data), bytes);
  });
}

void destroy(bp_device, bp_weight weight) { delete &weight_of(weight); }

}  // namespace

void fill_weights(bp_weights_table& table) {
  table.packed_bytes = packed_bytes;
  table.create = create;
  table.import_rows = import_rows;
  table.finish = finish;
  table.export_rows = export_rows;
  table.destroy = destroy;
}

}  // namespace backplane::onednn

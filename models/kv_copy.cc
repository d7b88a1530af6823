#include "models/kv_copy.h"

#include <vector>

#include "core/base/error.h"
#include "core/device/reference.h"

namespace backplane::models {
namespace {

std::vector<std::byte> in_type(device::Executor& to, std::vector<std::byte> bytes, DType from, DType wanted) {
  if (from == wanted) return bytes;
  const DTypeInfo& info = dtype_info(from);
  const std::uint64_t count = bytes.size() / info.block_bytes * info.block_elements;
  return device::convert(to.reference(), {bytes, from, 1, count}, wanted);
}

}  // namespace

void copy_kv_pages(device::Executor& from, device::Executor& to, std::uint32_t group,
                   std::span<const std::int32_t> pages) {
  if (pages.empty()) return;
  device::KvPool& source = from.kv();
  device::KvPool& target = to.kv();
  const device::KvSpec &a = source.spec(), &b = target.spec();
  if (a.page_size != b.page_size || a.layers.size() != b.layers.size()) {
    throw Error(ErrorCode::kInternal, "KV pages of unlike caches can't be exchanged");
  }
  for (std::uint32_t layer = 0; layer < a.layers.size(); ++layer) {
    if (a.layers[layer].group != group) continue;
    std::vector<std::byte> k(pages.size() * source.k_page_bytes(layer)), v(pages.size() * source.v_page_bytes(layer));
    source.read_pages(layer, pages, k, v);
    target.write_pages(layer, pages, in_type(to, std::move(k), a.type, b.type),
                       in_type(to, std::move(v), a.type, b.type));
  }
}

}  // namespace backplane::models

#include "core/device/kv_pool.h"

#include <algorithm>

#include "core/base/error.h"

namespace backplane::device {
namespace {

std::uint64_t layer_values(const KvSpec& spec, const KvLayer& layer, std::uint32_t dim) {
  return spec.pages[layer.group] * spec.page_size * layer.kv_heads * dim;
}

std::uint64_t layer_bytes(const KvSpec& spec, const KvLayer& layer) {
  return layer_values(spec, layer, layer.head_dim + layer.value_dim) * dtype_info(spec.type).block_bytes;
}

}  // namespace

std::uint64_t KvSpec::bytes() const {
  std::uint64_t sum = 0;
  for (const KvLayer& layer : layers) sum += layer_bytes(*this, layer);
  return sum;
}

KvPool::KvPool(const Devices& devices, KvSpec spec) : devices_(&devices), spec_(std::move(spec)) {}

KvPool::~KvPool() {
  if (handle_) (*devices_)[0]->tables().kv->destroy((*devices_)[0]->handle(), handle_);
}

bool KvPool::can_own() const {
  const Device& device = *(*devices_)[0];
  const bp_kv_table& t = *device.tables().kv;
  return t.bytes && t.create && t.destroy && t.export_pages && t.import_pages && t.copy_pages &&
         device.takes_kv_type(spec_.type);
}

void KvPool::create_owned() {
  Device& device = *(*devices_)[0];
  std::vector<bp_kv_layer> layers;
  for (const KvLayer& l : spec_.layers) {
    layers.push_back({sizeof(bp_kv_layer), l.kv_heads, l.head_dim, l.value_dim, l.group});
  }
  bp_kv_desc desc{};
  desc.size = sizeof(desc);
  desc.type = static_cast<bp_type>(spec_.type);
  desc.page_size = spec_.page_size;
  desc.groups = static_cast<std::uint32_t>(spec_.pages.size());
  desc.layer_count = static_cast<std::uint32_t>(layers.size());
  desc.pages = spec_.pages.data();
  desc.layers = layers.data();
  desc.layer_stride = sizeof(bp_kv_layer);
  handle_ = device.create<bp_kv>("KV cache", [&](bp_context context, bp_kv* kv) {
    return device.tables().kv->create(device.handle(), context, &desc, kv);
  });
}

void KvPool::create_canonical() {
  if (!storage_.empty()) return;
  for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
    const KvLayer& layer = spec_.layers[i];
    const std::uint64_t v_bytes = layer_values(spec_, layer, layer.value_dim) * dtype_info(spec_.type).block_bytes;
    auto storage =
        std::make_shared<Storage>(*devices_, v_offset(layer) + v_bytes, "the KV cache", Storage::Home::kHost);
    storage->allocate(devices_->size() - 1);
    storage_.push_back(std::move(storage));
  }
}

bool KvPool::reachable(Slot slot) {
  create_canonical();
  for (const auto& storage : storage_) {
    if (!storage->reachable(slot)) return false;
  }
  return true;
}

// After the K pages, where the tensors of every device may begin.
std::uint64_t KvPool::v_offset(const KvLayer& layer) const {
  std::uint64_t alignment = 64;
  for (const auto& device : *devices_) alignment = std::max<std::uint64_t>(alignment, device->caps().alignment);
  const std::uint64_t end = layer_values(spec_, layer, layer.head_dim) * dtype_info(spec_.type).block_bytes;
  return (end + alignment - 1) / alignment * alignment;
}

Tensor KvPool::pages(std::uint32_t layer, bool keys) const {
  const KvLayer& l = spec_.layers[layer];
  const std::uint64_t offset = keys ? 0 : v_offset(l);
  return make_tensor(
      storage_.empty() ? nullptr : storage_[layer], spec_.type,
      {static_cast<std::int64_t>(spec_.pages[l.group]), spec_.page_size, l.kv_heads, keys ? l.head_dim : l.value_dim},
      offset);
}

}  // namespace backplane::device

#include "core/device/kv_pool.h"

#include <algorithm>

#include "core/base/error.h"

namespace backplane::device {
namespace {

// Bytes of the K or V of one layer in one page; the rows of a head are whole blocks.
std::uint64_t page_bytes(const KvSpec& spec, const KvLayer& layer, std::uint32_t dim) {
  const DTypeInfo& info = dtype_info(spec.type);
  return std::uint64_t{spec.page_size} * layer.kv_heads * (dim / info.block_elements * info.block_bytes);
}

// And in all pages.
std::uint64_t side_bytes(const KvSpec& spec, const KvLayer& layer, std::uint32_t dim) {
  return spec.pages[layer.group] * page_bytes(spec, layer, dim);
}

}  // namespace

std::uint64_t KvSpec::bytes() const {
  std::uint64_t sum = 0;
  for (const KvLayer& layer : layers) {
    sum += side_bytes(*this, layer, layer.head_dim) + side_bytes(*this, layer, layer.value_dim);
  }
  return sum;
}

KvPool::KvPool(const Devices& devices, KvSpec spec, std::vector<Slot> homes)
    : devices_(&devices), spec_(std::move(spec)), homes_(std::move(homes)), handles_(devices.size()) {
  homes_.resize(spec_.layers.size());
  std::vector<std::uint32_t> next(devices.size());
  for (const Slot home : homes_) index_.push_back(next[home]++);
  storage_.resize(spec_.layers.size());
}

KvPool::~KvPool() {
  for (Slot slot = 0; slot < handles_.size(); ++slot) {
    if (handles_[slot]) (*devices_)[slot]->tables().kv->destroy((*devices_)[slot]->handle(), handles_[slot]);
  }
}

bool KvPool::implements_own(Slot slot) const {
  const bp_kv_table& t = *(*devices_)[slot]->tables().kv;
  return t.bytes && t.create && t.destroy && t.export_pages && t.import_pages && t.copy_pages;
}

void KvPool::create_owned(Slot slot) {
  Device& device = *(*devices_)[slot];
  std::vector<bp_kv_layer> layers;
  for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
    const KvLayer& l = spec_.layers[i];
    if (homes_[i] == slot) layers.push_back({sizeof(bp_kv_layer), l.kv_heads, l.head_dim, l.value_dim, l.group});
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
  handles_[slot] = device.create<bp_kv>("KV cache", [&](bp_context context, bp_kv* kv) {
    return device.tables().kv->create(device.handle(), context, &desc, kv);
  });
}

void KvPool::create_canonical() {
  for (std::uint32_t i = 0; i < storage_.size(); ++i) {
    if (storage_[i] || owned(i)) continue;
    const KvLayer& layer = spec_.layers[i];
    const std::uint64_t v_bytes = side_bytes(spec_, layer, layer.value_dim);
    storage_[i] = std::make_shared<Storage>(*devices_, v_offset(layer) + v_bytes, "the KV cache", Storage::Home::kHost);
    storage_[i]->allocate(devices_->size() - 1);
  }
}

bool KvPool::reachable(std::uint32_t layer, Slot slot) {
  create_canonical();
  return storage_[layer] && storage_[layer]->reachable(slot);
}

// After the K pages, where the tensors of every device may begin.
std::uint64_t KvPool::v_offset(const KvLayer& layer) const {
  std::uint64_t alignment = 64;
  for (const auto& device : *devices_) alignment = std::max<std::uint64_t>(alignment, device->caps().alignment);
  const std::uint64_t end = side_bytes(spec_, layer, layer.head_dim);
  return (end + alignment - 1) / alignment * alignment;
}

Tensor KvPool::pages(std::uint32_t layer, bool keys) const {
  const KvLayer& l = spec_.layers[layer];
  const std::uint64_t offset = keys ? 0 : v_offset(l);
  return make_tensor(
      storage_[layer], spec_.type,
      {static_cast<std::int64_t>(spec_.pages[l.group]), spec_.page_size, l.kv_heads, keys ? l.head_dim : l.value_dim},
      offset);
}

std::uint64_t KvPool::k_page_bytes(std::uint32_t layer) const {
  return page_bytes(spec_, spec_.layers[layer], spec_.layers[layer].head_dim);
}

std::uint64_t KvPool::v_page_bytes(std::uint32_t layer) const {
  return page_bytes(spec_, spec_.layers[layer], spec_.layers[layer].value_dim);
}

void KvPool::check(std::uint32_t layer, std::span<const std::int32_t> pages, std::uint64_t k, std::uint64_t v) const {
  bool good =
      layer < spec_.layers.size() && k == pages.size() * k_page_bytes(layer) && v == pages.size() * v_page_bytes(layer);
  for (const std::int32_t page : pages) {
    good = good && page >= 0 && static_cast<std::uint64_t>(page) < spec_.pages[spec_.layers[layer].group];
  }
  if (!good) throw Error(ErrorCode::kInternal, "KV pages that aren't there, or buffers of the wrong size");
}

void KvPool::read_pages(std::uint32_t layer, std::span<const std::int32_t> pages, std::span<std::byte> k,
                        std::span<std::byte> v) {
  check(layer, pages, k.size(), v.size());
  if (pages.empty()) return;
  Device& device = *(*devices_)[homes_[layer]];
  if (bp_kv kv = handle(layer)) {
    device.copy("KV export", [&](bp_context context) {
      return device.tables().kv->export_pages(device.handle(), device.stream(), context, kv, index(layer), pages.data(),
                                              pages.size(), k.data(), v.data());
    });
    return;
  }
  const std::uint64_t kb = k_page_bytes(layer), vb = v_page_bytes(layer), v_begin = v_offset(spec_.layers[layer]);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const auto page = static_cast<std::uint64_t>(pages[i]);
    storage_[layer]->get_host(page * kb, k.subspan(i * kb, kb));
    storage_[layer]->get_host(v_begin + page * vb, v.subspan(i * vb, vb));
  }
}

void KvPool::write_pages(std::uint32_t layer, std::span<const std::int32_t> pages, std::span<const std::byte> k,
                         std::span<const std::byte> v) {
  check(layer, pages, k.size(), v.size());
  if (pages.empty()) return;
  Device& device = *(*devices_)[homes_[layer]];
  if (bp_kv kv = handle(layer)) {
    device.copy("KV import", [&](bp_context context) {
      return device.tables().kv->import_pages(device.handle(), device.stream(), context, kv, index(layer), pages.data(),
                                              pages.size(), k.data(), v.data());
    });
    return;
  }
  const std::uint64_t kb = k_page_bytes(layer), vb = v_page_bytes(layer), v_begin = v_offset(spec_.layers[layer]);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const auto page = static_cast<std::uint64_t>(pages[i]);
    storage_[layer]->put_host(page * kb, k.subspan(i * kb, kb));
    storage_[layer]->put_host(v_begin + page * vb, v.subspan(i * vb, vb));
  }
}

void KvPool::copy_pages(std::uint32_t group, std::span<const std::int32_t> from, std::span<const std::int32_t> to) {
  bool good = from.size() == to.size() && group < spec_.pages.size();
  for (const auto& pages : {from, to}) {
    for (const std::int32_t page : pages) {
      good = good && page >= 0 && static_cast<std::uint64_t>(page) < spec_.pages[group];
    }
  }
  if (!good) throw Error(ErrorCode::kInternal, "KV pages that aren't there");
  if (from.empty()) return;
  for (Slot slot = 0; slot < handles_.size(); ++slot) {
    if (!handles_[slot]) continue;
    Device& device = *(*devices_)[slot];
    device.copy("KV copy", [&](bp_context context) {
      return device.tables().kv->copy_pages(device.handle(), device.stream(), context, handles_[slot], group,
                                            from.data(), to.data(), from.size());
    });
  }
  for (std::uint32_t layer = 0; layer < spec_.layers.size(); ++layer) {
    if (spec_.layers[layer].group != group || owned(layer)) continue;
    std::vector<std::byte> k(from.size() * k_page_bytes(layer)), v(from.size() * v_page_bytes(layer));
    read_pages(layer, from, k, v);
    write_pages(layer, to, k, v);
  }
}

}  // namespace backplane::device

// The KV cache of a case on a device.
#include <numeric>

#include "core/base/abi_call.h"
#include "tests/conformance/paged.h"

namespace backplane::conformance {

OwnCache::OwnCache(device::Device& device, const CacheSpec& spec, std::uint64_t pages) : device_(device) {
  if (!has_kv(device)) throw Skipped{"the plugin has no kv table"};
  const bp_kv_table& table = *device.tables().kv;
  const auto layer = [](std::int64_t heads, std::int64_t dim, std::int64_t value_dim, std::uint32_t group) {
    bp_kv_layer l{};
    l.size = sizeof(l);
    l.kv_heads = static_cast<std::uint32_t>(heads);
    l.head_dim = static_cast<std::uint32_t>(dim);
    l.value_dim = static_cast<std::uint32_t>(value_dim);
    l.group = group;
    return l;
  };
  const bp_kv_layer layers[] = {layer(1, 32, 32, 0), layer(spec.kv_heads, spec.dim, spec.value_dim, 1)};
  const std::uint64_t counts[] = {2, pages};
  bp_kv_desc desc{};
  desc.size = sizeof(desc);
  desc.type = static_cast<bp_type>(spec.type);
  desc.page_size = static_cast<std::uint32_t>(spec.page_size);
  desc.groups = 2;
  desc.layer_count = 2;
  desc.pages = counts;
  desc.layers = layers;
  desc.layer_stride = sizeof(bp_kv_layer);
  std::uint64_t bytes = 0;
  AbiCall sizing;
  const bp_status status = table.bytes(device.handle(), sizing.context(), &desc, &bytes);
  if (status == BP_UNSUPPORTED) {
    require(!sizing.text().empty(), "a KV cache was refused without a reason");
    throw Skipped{sizing.text()};
  }
  sizing.check(status, "kv.bytes");
  require(bytes > 0, "kv.bytes: a cache of no bytes");
  AbiCall call;
  call.check(table.create(device.handle(), call.context(), &desc, &kv_), "kv.create");
  require(kv_ != nullptr, "kv.create: success without a cache");
}

OwnCache::~OwnCache() {
  if (kv_) device_.tables().kv->destroy(device_.handle(), kv_);
}

void OwnCache::import_pages(std::uint32_t layer, const std::vector<std::int32_t>& pages,
                            const std::vector<std::byte>& k, const std::vector<std::byte>& v) {
  AbiCall call;
  call.check(device_.tables().kv->import_pages(device_.handle(), device_.stream(), call.context(), kv_, layer,
                                               pages.data(), pages.size(), k.data(), v.data()),
             "import_pages");
  device_.sync();
}

void OwnCache::export_pages(std::uint32_t layer, const std::vector<std::int32_t>& pages, std::vector<std::byte>& k,
                            std::vector<std::byte>& v) {
  AbiCall call;
  call.check(device_.tables().kv->export_pages(device_.handle(), device_.stream(), call.context(), kv_, layer,
                                               pages.data(), pages.size(), k.data(), v.data()),
             "export_pages");
  device_.sync();
}

namespace {

std::vector<std::int32_t> all_pages(std::int64_t count) {
  std::vector<std::int32_t> pages(static_cast<std::size_t>(count));
  std::iota(pages.begin(), pages.end(), 0);
  return pages;
}

}  // namespace

SideCache::SideCache(Side& side, const PagedStep& paged, bool contents) : side_(side), paged_(paged) {
  const DType type = paged.spec.type;
  std::vector<std::byte> k = encode(type, paged.k), v = encode(type, paged.v);
  if (!contents) {
    std::fill(k.begin(), k.end(), std::byte{0xff});
    std::fill(v.begin(), v.end(), std::byte{0xff});
  }
  if (side.is_oracle() || paged.spec.where == Cache::kCanonical) {
    k_pages_ = side.raw(type, paged.k.shape, k);
    v_pages_ = side.raw(type, paged.v.shape, v);
    return;
  }
  own_ = std::make_shared<OwnCache>(side.device(), paged.spec, static_cast<std::uint64_t>(paged.pages));
  own_->import_pages(PagedStep::kLayer, all_pages(paged.pages), k, v);
  side.keep(own_);
}

std::uint64_t SideCache::features() const {
  return (own_ ? 0 : std::uint64_t{BP_FEATURE_KV_CANONICAL}) |
         (paged_.spec.dim != paged_.spec.value_dim ? std::uint64_t{BP_FEATURE_ATTN_VALUE_DIM} : 0);
}

void SideCache::writable() {
  if (own_) return;
  side_.changes(k_pages_);
  side_.changes(v_pages_);
}

std::pair<std::vector<std::byte>, std::vector<std::byte>> SideCache::contents() {
  if (!own_) return {side_.bytes(k_pages_), side_.bytes(v_pages_)};
  const DType type = paged_.spec.type;
  std::vector<std::byte> k(*row_bytes(type, paged_.k.data.size())), v(*row_bytes(type, paged_.v.data.size()));
  own_->export_pages(PagedStep::kLayer, all_pages(paged_.pages), k, v);
  return {std::move(k), std::move(v)};
}

}  // namespace backplane::conformance

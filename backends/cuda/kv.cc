// The KV cache: its memory and its table.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backends/cuda/ops.h"

namespace backplane::cuda {
namespace {

void check_desc(const bp_kv_desc& desc) {
  if (desc.flags != 0) plugin::refuse("unknown flags of a KV cache");
  const plugin::TypeInfo info = plugin::type_info(desc.type);
  if (!is_cache_type(desc.type)) plugin::refuse(std::string("KV caches in ") + info.name);
  plugin::require(desc.page_size != 0, "pages of no tokens");
  plugin::for_each_layer(desc, [&](const bp_kv_layer& layer, std::uint64_t) {
    for (const std::uint32_t dim : {layer.head_dim, layer.value_dim}) {
      if (dim > kMostHeadDim) plugin::refuse("heads of more than " + std::to_string(kMostHeadDim));
      if (dim % info.block_elements == 0) continue;
      plugin::refuse("heads of " + std::to_string(dim) + " in " + info.name + ", which has blocks of " +
                     std::to_string(info.block_elements));
    }
  });
}

// The K or V of one layer.
struct Size {
  std::int64_t pitch;          // elements of a row
  std::uint64_t data, scales;  // bytes
};

Size side_size(const bp_kv_desc& desc, const bp_kv_layer& layer, std::uint32_t dim, std::uint64_t pages) {
  const bool quantized = desc.type == BP_TYPE_Q8_0;
  const std::uint64_t element = quantized ? 1 : plugin::type_info(desc.type).block_bytes;
  const std::uint64_t unit = element == 1 ? 16 : 8;  // elements; what a thread reads lies in whole 16 bytes
  const std::uint64_t pitch = (dim + unit - 1) / unit * unit;
  const plugin::Bytes rows = plugin::checked_multiply(pages, std::uint64_t{desc.page_size} * layer.kv_heads);
  plugin::require(rows.has_value(), "a KV cache of impossible size");
  if (*rows > INT32_MAX) plugin::refuse("a layer of 2^31 keys and more");
  return {static_cast<std::int64_t>(pitch), *rows * pitch * element, quantized ? *rows * (dim / 32) * 2 : 0};
}

bp_status bytes(bp_device, bp_context context, const bp_kv_desc* given, std::uint64_t* total) {
  return plugin::guard(context, [&] {
    const bp_kv_desc desc = plugin::read_struct(given);
    check_desc(desc);
    *total = 0;
    plugin::for_each_layer(desc, [&](const bp_kv_layer& layer, std::uint64_t pages) {
      for (const std::uint32_t dim : {layer.head_dim, layer.value_dim}) {
        const Size size = side_size(desc, layer, dim, pages);
        const plugin::Bytes sum = plugin::checked_add(*total, size.data + size.scales);
        plugin::require(sum.has_value(), "a KV cache of impossible size");
        *total = *sum;
      }
    });
  });
}

KvCache::Side make_side(Device& device, const bp_kv_desc& desc, const bp_kv_layer& layer, std::uint32_t dim,
                        std::uint64_t pages) {
  const Size size = side_size(desc, layer, dim, pages);
  KvCache::Side side{DeviceMemory(device, size.data + size.scales), {}};
  side.view.data = side.memory.data();
  side.view.scales = size.scales != 0 ? side.view.data + size.data : nullptr;
  side.view.dim = dim;
  side.view.pitch = size.pitch;
  if (size.pitch != dim && size.data != 0) check(cudaMemset(side.view.data, 0, size.data), "cudaMemset");
  return side;
}

bp_status create(bp_device handle, bp_context context, const bp_kv_desc* given, bp_kv* kv) {
  return plugin::guard(context, [&] {
    Device& device = device_of(handle);
    device.guarded([&] {
      const bp_kv_desc desc = plugin::read_struct(given);
      check_desc(desc);
      auto cache = std::make_unique<KvCache>();
      cache->type = desc.type;
      cache->page_size = desc.page_size;
      plugin::for_each_layer(desc, [&](const bp_kv_layer& layer, std::uint64_t pages) {
        cache->layers.push_back({layer.kv_heads, layer.group, static_cast<std::int64_t>(pages),
                                 make_side(device, desc, layer, layer.head_dim, pages),
                                 make_side(device, desc, layer, layer.value_dim, pages)});
      });
      check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // the zeros, which other streams don't wait for
      *kv = reinterpret_cast<bp_kv>(cache.release());
    });
  });
}

void destroy(bp_device, bp_kv kv) { delete &cache_of(kv); }

void check_pages(const KvCache::Layer& layer, const std::int32_t* pages, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    plugin::require(pages[i] >= 0 && pages[i] < layer.pages, "a page that the group hasn't");
  }
}

constexpr std::uint64_t kScratchBytes = std::uint64_t{16} << 20;

// How many pages go at once, of that many bytes each.
std::uint64_t batch_of(std::uint64_t page, std::uint64_t count, std::uint64_t most) {
  return std::min({count, most, std::max<std::uint64_t>(1, kScratchBytes / std::max<std::uint64_t>(1, page))});
}

// Moves pages of K or V between the cache and canonical bytes [count,S,Hk,dim] of the host: a kernel brings them to or
// from memory of the device where they lie as they do there, and one copy does the rest.
void move_side(Stream& on, const KvCache& cache, const KvCache::Layer& layer, const CacheSide& side,
               const std::int32_t* pages, std::uint64_t count, std::byte* canonical, bool out) {
  const plugin::TypeInfo info = plugin::type_info(cache.type);
  PageMoveCall kernel;
  kernel.side = side;
  kernel.heads = layer.heads;
  kernel.page_size = cache.page_size;
  kernel.row_bytes = side.dim / info.block_elements * info.block_bytes;
  kernel.pitch_bytes = side.pitch * (side.scales != nullptr ? 1 : info.block_bytes);
  kernel.out = out;
  const auto page = static_cast<std::uint64_t>(kernel.row_bytes * layer.heads * cache.page_size);
  if (page == 0 || count == 0) return;
  const std::uint64_t batch = batch_of(page, count, PageMoveCall::kMost);
  kernel.canonical = on.scratch(batch * page);
  for (std::uint64_t begin = 0; begin < count; begin += batch) {
    const std::uint64_t now = std::min(batch, count - begin);
    kernel.count = static_cast<std::int64_t>(now);
    std::copy_n(pages + begin, now, kernel.pages);
    std::byte* there = canonical + begin * page;
    if (!out) {
      check(cudaMemcpyAsync(kernel.canonical, there, now * page, cudaMemcpyHostToDevice, on.handle), "cudaMemcpyAsync");
    }
    check(enqueue(on.handle, kernel), "a kernel's launch");
    if (out) {
      check(cudaMemcpyAsync(there, kernel.canonical, now * page, cudaMemcpyDeviceToHost, on.handle), "cudaMemcpyAsync");
    }
  }
}

bp_status move(bp_stream stream, bp_context context, bp_kv kv, std::uint32_t index, const std::int32_t* pages,
               std::uint64_t count, void* k, void* v, bool out) {
  return on_stream(stream, context, [&](Stream& on) {
    const KvCache& cache = cache_of(kv);
    const KvCache::Layer& layer = cache.layer(index);
    check_pages(layer, pages, count);
    move_side(on, cache, layer, layer.k.view, pages, count, static_cast<std::byte*>(k), out);
    move_side(on, cache, layer, layer.v.view, pages, count, static_cast<std::byte*>(v), out);
  });
}

bp_status export_pages(bp_device, bp_stream stream, bp_context context, bp_kv kv, std::uint32_t layer,
                       const std::int32_t* pages, std::uint64_t count, void* k, void* v) {
  return move(stream, context, kv, layer, pages, count, k, v, true);
}

bp_status import_pages(bp_device, bp_stream stream, bp_context context, bp_kv kv, std::uint32_t layer,
                       const std::int32_t* pages, std::uint64_t count, const void* k, const void* v) {
  return move(stream, context, kv, layer, pages, count, const_cast<void*>(k), const_cast<void*>(v), false);
}

// An array of the cache, and the bytes that a page has in it.
struct Plane {
  std::byte* data;
  std::int64_t bytes;
};

// The arrays of a layer; first those whose pages are whole 16 bytes.
std::vector<Plane> planes_of(const KvCache& cache, const KvCache::Layer& layer) {
  const std::int64_t rows = layer.heads * cache.page_size;
  const std::int64_t element = cache.type == BP_TYPE_Q8_0 ? 1 : plugin::type_info(cache.type).block_bytes;
  std::vector<Plane> planes;
  for (const CacheSide* side : {&layer.k.view, &layer.v.view})
    planes.push_back({side->data, rows * side->pitch * element});
  for (const CacheSide* side : {&layer.k.view, &layer.v.view}) {
    if (side->scales != nullptr) planes.push_back({side->scales, rows * (side->dim / 32) * 2});
  }
  std::erase_if(planes, [](const Plane& plane) { return plane.bytes == 0; });
  return planes;
}

// Fills in the call's planes, as many as it takes, and enqueues it for all pages.
void copy_planes(const Stream& on, const std::vector<PagePlane>& planes, const std::int32_t* from,
                 const std::int32_t* to, std::uint64_t count) {
  PageCopyCall kernel;
  for (std::size_t plane = 0; plane < planes.size(); plane += PageCopyCall::kMostPlanes) {
    kernel.plane_count = static_cast<int>(std::min<std::size_t>(planes.size() - plane, PageCopyCall::kMostPlanes));
    std::copy_n(planes.begin() + static_cast<std::ptrdiff_t>(plane), kernel.plane_count, kernel.planes);
    for (std::uint64_t begin = 0; begin < count; begin += PageCopyCall::kMost) {
      const std::uint64_t now = std::min(count - begin, PageCopyCall::kMost);
      kernel.count = static_cast<std::int64_t>(now);
      std::copy_n(from + begin, now, kernel.from);
      std::copy_n(to + begin, now, kernel.to);
      check(enqueue(on.handle, kernel), "a kernel's launch");
    }
  }
}

bp_status copy_pages(bp_device, bp_stream stream, bp_context context, bp_kv kv, std::uint32_t group,
                     const std::int32_t* from, const std::int32_t* to, std::uint64_t count) {
  return on_stream(stream, context, [&](Stream& on) {
    const KvCache& cache = cache_of(kv);
    std::vector<PagePlane> planes;
    for (const KvCache::Layer& layer : cache.layers) {
      if (layer.group != group) continue;
      check_pages(layer, from, count);
      check_pages(layer, to, count);
      for (const Plane& plane : planes_of(cache, layer)) {
        planes.push_back({plane.data, plane.data, plane.bytes, plane.bytes, plane.bytes});
      }
    }
    copy_planes(on, planes, from, to, count);
  });
}

// ---- Pages as they are: a layer's arrays, page after page.

bp_status native_layout(bp_device, bp_context context, bp_kv kv, char tag[64]) {
  return plugin::guard(context, [&] {
    const KvCache& cache = cache_of(kv);
    const std::string text =
        std::string("cuda-1 ") + plugin::type_info(cache.type).name + " S" + std::to_string(cache.page_size);
    std::fill_n(tag, 64, '\0');
    std::copy_n(text.begin(), std::min<std::size_t>(text.size(), 63), tag);
  });
}

std::int64_t native_bytes(const std::vector<Plane>& planes) {
  std::int64_t bytes = 0;
  for (const Plane& plane : planes) bytes += plane.bytes;
  return bytes;
}

bp_status native_page_bytes(bp_device, bp_context context, bp_kv kv, std::uint32_t layer, std::uint64_t* bytes) {
  return plugin::guard(context, [&] {
    const KvCache& cache = cache_of(kv);
    *bytes = static_cast<std::uint64_t>(native_bytes(planes_of(cache, cache.layer(layer))));
  });
}

bp_status move_native(bp_stream stream, bp_context context, bp_kv kv, std::uint32_t index, const std::int32_t* pages,
                      std::uint64_t count, std::byte* data, bool out) {
  return on_stream(stream, context, [&](Stream& on) {
    const KvCache& cache = cache_of(kv);
    const KvCache::Layer& layer = cache.layer(index);
    check_pages(layer, pages, count);
    const std::vector<Plane> own = planes_of(cache, layer);
    const std::int64_t page = native_bytes(own);
    if (page == 0 || count == 0) return;
    const std::uint64_t size = static_cast<std::uint64_t>(page), batch = batch_of(size, count, PageCopyCall::kMost);
    std::byte* scratch = on.scratch(batch * size);
    std::vector<PagePlane> planes;
    std::byte* part = scratch;
    for (const Plane& plane : own) {
      planes.push_back(out ? PagePlane{plane.data, part, plane.bytes, page, plane.bytes}
                           : PagePlane{part, plane.data, page, plane.bytes, plane.bytes});
      part += plane.bytes;
    }
    std::vector<std::int32_t> numbers(batch);
    std::iota(numbers.begin(), numbers.end(), 0);
    for (std::uint64_t begin = 0; begin < count; begin += batch) {
      const std::uint64_t now = std::min(batch, count - begin);
      std::byte* there = data + begin * size;
      if (out) {
        copy_planes(on, planes, pages + begin, numbers.data(), now);
        check(cudaMemcpyAsync(there, scratch, now * size, cudaMemcpyDeviceToHost, on.handle), "cudaMemcpyAsync");
      } else {
        check(cudaMemcpyAsync(scratch, there, now * size, cudaMemcpyHostToDevice, on.handle), "cudaMemcpyAsync");
        copy_planes(on, planes, numbers.data(), pages + begin, now);
      }
    }
  });
}

bp_status export_native(bp_device, bp_stream stream, bp_context context, bp_kv kv, std::uint32_t layer,
                        const std::int32_t* pages, std::uint64_t count, void* data) {
  return move_native(stream, context, kv, layer, pages, count, static_cast<std::byte*>(data), true);
}

bp_status import_native(bp_device, bp_stream stream, bp_context context, bp_kv kv, std::uint32_t layer,
                        const std::int32_t* pages, std::uint64_t count, const void* data) {
  return move_native(stream, context, kv, layer, pages, count, static_cast<std::byte*>(const_cast<void*>(data)), false);
}

}  // namespace

void fill_kv(bp_kv_table& table) {
  table.bytes = bytes;
  table.create = create;
  table.destroy = destroy;
  table.export_pages = export_pages;
  table.import_pages = import_pages;
  table.copy_pages = copy_pages;
  table.native_layout = native_layout;
  table.native_page_bytes = native_page_bytes;
  table.export_native = export_native;
  table.import_native = import_native;
}

}  // namespace backplane::cuda

// The KV cache in the plugin's own layout.
#include <cstring>

#include "device.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

std::unique_ptr<Kv> shaped(const Device& device, const bp_kv_desc& desc) {
  if (device.options.no_kv) sdk::refuse("owns no KV cache");
  if (desc.flags != 0) sdk::refuse("an unknown flag of a KV cache");
  if (desc.type != BP_TYPE_F32 && desc.type != BP_TYPE_F16) sdk::refuse("a KV cache is F32 or F16");
  auto kv = std::make_unique<Kv>();
  kv->type = desc.type;
  kv->page_size = desc.page_size;
  sdk::for_each_layer(desc, [&](const bp_kv_layer& from, std::uint64_t pages) {
    Kv::Layer layer{from.kv_heads, from.head_dim, from.value_dim, from.group, pages};
    const std::uint64_t tokens = layer.pages * layer.heads * kv->page_size * sdk::type_info(desc.type).block_bytes;
    layer.k = Scrambled(tokens * layer.dim);
    layer.v = Scrambled(tokens * layer.value_dim);
    kv->layers.push_back(std::move(layer));
  });
  return kv;
}

Kv& kv_of(bp_kv kv) { return *reinterpret_cast<Kv*>(kv); }

bp_status bytes(bp_device device, bp_context context, const bp_kv_desc* desc, std::uint64_t* out) {
  return sdk::guard(context, [&] {
    self(device).gate();
    *out = 0;
    const auto kv = shaped(self(device), sdk::read_struct(desc));
    for (const Kv::Layer& layer : kv->layers) *out += layer.k.size() + layer.v.size();
  });
}

bp_status create(bp_device device, bp_context context, const bp_kv_desc* desc, bp_kv* kv) {
  return sdk::guard(context, [&] {
    self(device).gate();
    *kv = self(device).give<bp_kv>(shaped(self(device), sdk::read_struct(desc)));
  });
}

void destroy(bp_device device, bp_kv kv) { self(device).take(reinterpret_cast<Kv*>(kv)); }

// Moves pages between the cache and canonical bytes: [count,S,Hk,D].
void move_pages(Kv& kv, Kv::Layer& layer, Scrambled& cache, std::uint64_t dim, const std::vector<std::int32_t>& pages,
                std::byte* data, bool out) {
  const std::uint64_t size = sdk::type_info(kv.type).block_bytes, run = dim * size;
  for (const std::int32_t page : pages) {
    sdk::require(page >= 0 && static_cast<std::uint64_t>(page) < layer.pages, "a page that the group hasn't");
    for (std::uint64_t s = 0; s < kv.page_size; ++s) {
      for (std::uint64_t h = 0; h < layer.heads; ++h, data += run) {
        const std::uint64_t slot = static_cast<std::uint64_t>(page) * kv.page_size + s;
        const std::uint64_t place = Kv::place(layer, kv.page_size, h, slot, dim) * size;
        if (out) {
          cache.read(place, data, run);
        } else {
          cache.write(place, data, run);
        }
      }
    }
  }
}

bp_status move(bp_device device, bp_stream stream, bp_context context, bp_kv handle, std::uint32_t layer,
               const std::int32_t* pages, std::uint64_t count, void* k, void* v, bool out) {
  return sdk::guard(context, [&] {
    const auto fault = self(device).gate(true);
    Kv& kv = kv_of(handle);
    sdk::require(layer < kv.layers.size(), "a layer that the cache hasn't");
    const std::vector<std::int32_t> list(pages, pages + count);
    self(device).enqueue(stream, fault, [&kv, layer, list, k, v, out] {
      Kv::Layer& at = kv.layers[layer];
      move_pages(kv, at, at.k, at.dim, list, static_cast<std::byte*>(k), out);
      move_pages(kv, at, at.v, at.value_dim, list, static_cast<std::byte*>(v), out);
    });
  });
}

bp_status export_pages(bp_device device, bp_stream stream, bp_context context, bp_kv kv, std::uint32_t layer,
                       const std::int32_t* pages, std::uint64_t count, void* k, void* v) {
  return move(device, stream, context, kv, layer, pages, count, k, v, true);
}

bp_status import_pages(bp_device device, bp_stream stream, bp_context context, bp_kv kv, std::uint32_t layer,
                       const std::int32_t* pages, std::uint64_t count, const void* k, const void* v) {
  return move(device, stream, context, kv, layer, pages, count, const_cast<void*>(k), const_cast<void*>(v), false);
}

bp_status copy_pages(bp_device device, bp_stream stream, bp_context context, bp_kv handle, std::uint32_t group,
                     const std::int32_t* from, const std::int32_t* to, std::uint64_t count) {
  return sdk::guard(context, [&] {
    const auto fault = self(device).gate(true);
    Kv& kv = kv_of(handle);
    const std::vector<std::int32_t> sources(from, from + count), targets(to, to + count);
    self(device).enqueue(stream, fault, [&kv, group, sources, targets] {
      for (Kv::Layer& layer : kv.layers) {
        if (layer.group != group) continue;
        for (Scrambled* cache : {&layer.k, &layer.v}) {
          const std::uint64_t dim = cache == &layer.k ? layer.dim : layer.value_dim;
          std::vector<std::byte> data(sources.size() * kv.page_size * layer.heads * dim *
                                      sdk::type_info(kv.type).block_bytes);
          move_pages(kv, layer, *cache, dim, sources, data.data(), true);
          move_pages(kv, layer, *cache, dim, targets, data.data(), false);
        }
      }
    });
  });
}

// As they lie in the cache: a head's tokens of the page, then the next head's; K before V.
std::uint64_t native_bytes(const Kv& kv, const Kv::Layer& layer) {
  return layer.heads * kv.page_size * (layer.dim + layer.value_dim) * sdk::type_info(kv.type).block_bytes;
}

void move_native(const Kv& kv, Kv::Layer& layer, const std::vector<std::int32_t>& pages, std::byte* data, bool out) {
  for (const std::int32_t page : pages) {
    sdk::require(page >= 0 && static_cast<std::uint64_t>(page) < layer.pages, "a page that the group hasn't");
    for (Scrambled* cache : {&layer.k, &layer.v}) {
      const std::uint64_t dim = cache == &layer.k ? layer.dim : layer.value_dim;
      const std::uint64_t size = sdk::type_info(kv.type).block_bytes, run = kv.page_size * dim * size;
      for (std::uint64_t h = 0; h < layer.heads; ++h, data += run) {
        const std::uint64_t slot = static_cast<std::uint64_t>(page) * kv.page_size;
        const std::uint64_t place = Kv::place(layer, kv.page_size, h, slot, dim) * size;
        if (out) {
          cache->read(place, data, run);
        } else {
          cache->write(place, data, run);
        }
      }
    }
  }
}

bp_status native_layout(bp_device device, bp_context context, bp_kv kv, char tag[64]) {
  return sdk::guard(context, [&] {
    self(device).gate();
    const std::string text = "opaque heads-first " + std::string(sdk::type_info(kv_of(kv).type).name);
    std::memset(tag, 0, 64);
    std::memcpy(tag, text.data(), std::min<std::size_t>(text.size(), 63));
  });
}

bp_status native_page_bytes(bp_device device, bp_context context, bp_kv kv, std::uint32_t layer, std::uint64_t* bytes) {
  return sdk::guard(context, [&] {
    self(device).gate();
    sdk::require(layer < kv_of(kv).layers.size(), "a layer that the cache hasn't");
    *bytes = native_bytes(kv_of(kv), kv_of(kv).layers[layer]);
  });
}

bp_status move_native(bp_device device, bp_stream stream, bp_context context, bp_kv handle, std::uint32_t layer,
                      const std::int32_t* pages, std::uint64_t count, void* data, bool out) {
  return sdk::guard(context, [&] {
    const auto fault = self(device).gate(true);
    Kv& kv = kv_of(handle);
    sdk::require(layer < kv.layers.size(), "a layer that the cache hasn't");
    const std::vector<std::int32_t> list(pages, pages + count);
    self(device).enqueue(stream, fault, [&kv, layer, list, data, out] {
      move_native(kv, kv.layers[layer], list, static_cast<std::byte*>(data), out);
    });
  });
}

bp_status export_native(bp_device device, bp_stream stream, bp_context context, bp_kv kv, std::uint32_t layer,
                        const std::int32_t* pages, std::uint64_t count, void* data) {
  return move_native(device, stream, context, kv, layer, pages, count, data, true);
}

bp_status import_native(bp_device device, bp_stream stream, bp_context context, bp_kv kv, std::uint32_t layer,
                        const std::int32_t* pages, std::uint64_t count, const void* data) {
  return move_native(device, stream, context, kv, layer, pages, count, const_cast<void*>(data), false);
}

}  // namespace

std::uint64_t Kv::place(const Layer& layer, std::uint64_t page_size, std::uint64_t head, std::uint64_t slot,
                        std::uint64_t dim) {
  return (head * layer.pages * page_size + slot) * dim;
}

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

}  // namespace opaque

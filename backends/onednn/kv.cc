// The KV cache: its memory, its table, and KV_WRITE.
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "backends/onednn/ops.h"

namespace backplane::onednn {
namespace {

void check_desc(const bp_kv_desc& desc) {
  if (desc.flags != 0) plugin::refuse("unknown flags of a KV cache");
  if (!is_cache_type(desc.type)) {
    plugin::refuse(std::string("KV caches in ") + plugin::type_info(desc.type).name);
  }
  if (desc.page_size == 0 || desc.page_size % kLanes != 0 || desc.page_size > kChunk || kChunk % desc.page_size != 0) {
    plugin::refuse("pages of " + std::to_string(desc.page_size) + " tokens: 8, 16, 32, 64, 128 or 256 are possible");
  }
  plugin::for_each_layer(desc, [&](const bp_kv_layer& layer, std::uint64_t) {
    const std::uint32_t block = plugin::type_info(desc.type).block_elements;
    if (layer.head_dim % block == 0 && layer.value_dim % block == 0) return;
    plugin::refuse("heads of " + std::to_string(layer.head_dim) + " and " + std::to_string(layer.value_dim) + " in " +
                   plugin::type_info(desc.type).name + ", which has blocks of " + std::to_string(block));
  });
}

// Bytes of the K or V of one layer.
std::uint64_t side_bytes(const bp_kv_desc& desc, const bp_kv_layer& layer, std::uint32_t dim, std::uint64_t pages) {
  plugin::Bytes bytes = plugin::checked_multiply(pages, std::uint64_t{desc.page_size} * layer.kv_heads);
  const plugin::TypeInfo info = plugin::type_info(desc.type);
  if (bytes) bytes = plugin::checked_multiply(*bytes, std::uint64_t{dim} / info.block_elements * info.block_bytes);
  plugin::require(bytes.has_value() && *bytes <= INT64_MAX, "a KV cache of impossible size");
  return *bytes;
}

}  // namespace

KvCache::KvCache(const bp_kv_desc& desc) : type_(desc.type), page_size_(desc.page_size) {
  check_desc(desc);
  plugin::for_each_layer(desc, [&](const bp_kv_layer& layer, std::uint64_t pages) {
    Layer& made = layers_.emplace_back();
    made.heads = layer.kv_heads;
    made.dim = layer.head_dim;
    made.value_dim = layer.value_dim;
    made.group = layer.group;
    made.pages = static_cast<std::int64_t>(pages);
    made.k = AlignedBytes(side_bytes(desc, layer, layer.head_dim, pages));
    made.v = AlignedBytes(side_bytes(desc, layer, layer.value_dim, pages));
  });
}

std::uint64_t KvCache::bytes_for(const bp_kv_desc& desc) {
  check_desc(desc);
  std::uint64_t total = 0;
  plugin::for_each_layer(desc, [&](const bp_kv_layer& layer, std::uint64_t pages) {
    for (const std::uint32_t dim : {layer.head_dim, layer.value_dim}) {
      const plugin::Bytes sum = plugin::checked_add(total, side_bytes(desc, layer, dim, pages));
      plugin::require(sum.has_value(), "a KV cache of impossible size");
      total = *sum;
    }
  });
  return total;
}

const KvCache::Layer& KvCache::layer(std::uint32_t index) const {
  plugin::require(index < layers_.size(), "a layer that the cache hasn't");
  return layers_[index];
}

namespace {

bp_status bytes(bp_device, bp_context context, const bp_kv_desc* desc, std::uint64_t* bytes) {
  return plugin::guard(context, [&] { *bytes = KvCache::bytes_for(plugin::read_struct(desc)); });
}

bp_status create(bp_device, bp_context context, const bp_kv_desc* desc, bp_kv* kv) {
  return plugin::guard(
      context, [&] { *kv = reinterpret_cast<bp_kv>(std::make_unique<KvCache>(plugin::read_struct(desc)).release()); });
}

void destroy(bp_device, bp_kv kv) { delete &cache_of(kv); }

void check_pages(const KvCache::Layer& layer, const std::int32_t* pages, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    plugin::require(pages[i] >= 0 && pages[i] < layer.pages, "a page that the group hasn't");
  }
}

// A row between the cache and its canonical blocks, which are advanced.
template <bool kOut>
void move_row(const QuantizedRow& own, std::int64_t dim, std::byte*& blocks) {
  const auto copy = [&](std::byte* at, std::size_t size) {
    std::memcpy(kOut ? blocks : at, kOut ? at : blocks, size);
    blocks += size;
  };
  for (std::int64_t b = 0; b < dim / kBlock; ++b) {
    copy(own.scales + 2 * b * own.scale_step, 2);
    for (std::int64_t i = b * kBlock; i < (b + 1) * kBlock; ++i) copy(own.q + i * own.step, 1);
  }
}

// Moves pages between the cache and canonical bytes, k [count,S,Hk,D] and v [count,S,Hk,Dv].
template <bool kOut>
bp_status move(bp_context context, bp_kv kv, std::uint32_t index, const std::int32_t* pages, std::uint64_t count,
               std::byte* k, std::byte* v) {
  return plugin::guard(context, [&] {
    KvCache& cache = cache_of(kv);
    const KvCache::Layer& layer = cache.layer(index);
    check_pages(layer, pages, count);
    const auto element = static_cast<std::size_t>(cache.element());
    const auto copy = [](std::byte* own, std::byte* canonical, std::size_t size) {
      std::memcpy(kOut ? canonical : own, kOut ? own : canonical, size);
    };
    for (std::uint64_t p = 0; p < count; ++p) {
      for (std::int64_t s = 0; s < cache.page_size(); ++s) {
        for (std::int64_t h = 0; h < layer.heads; ++h) {
          if (cache.quantized()) {
            move_row<kOut>(cache.key_row(cache.k_at(layer, pages[p], h), s, layer.dim), layer.dim, k);
            move_row<kOut>(cache.value_row(cache.v_at(layer, pages[p], h), s, layer.value_dim), layer.value_dim, v);
            continue;
          }
          std::byte* own = cache.k_at(layer, pages[p], h) + static_cast<std::size_t>(s) * element;
          for (std::int64_t d = 0; d < layer.dim; ++d, k += element) {
            copy(own + static_cast<std::size_t>(d * cache.page_size()) * element, k, element);
          }
          const std::size_t row = static_cast<std::size_t>(layer.value_dim) * element;
          copy(cache.v_at(layer, pages[p], h) + static_cast<std::size_t>(s) * row, v, row);
          v += row;
        }
      }
    }
  });
}

bp_status export_pages(bp_device, bp_stream, bp_context context, bp_kv kv, std::uint32_t layer,
                       const std::int32_t* pages, std::uint64_t count, void* k, void* v) {
  return move<true>(context, kv, layer, pages, count, static_cast<std::byte*>(k), static_cast<std::byte*>(v));
}

bp_status import_pages(bp_device, bp_stream, bp_context context, bp_kv kv, std::uint32_t layer,
                       const std::int32_t* pages, std::uint64_t count, const void* k, const void* v) {
  return move<false>(context, kv, layer, pages, count, static_cast<std::byte*>(const_cast<void*>(k)),
                     static_cast<std::byte*>(const_cast<void*>(v)));
}

bp_status copy_pages(bp_device, bp_stream, bp_context context, bp_kv kv, std::uint32_t group, const std::int32_t* from,
                     const std::int32_t* to, std::uint64_t count) {
  return plugin::guard(context, [&] {
    KvCache& cache = cache_of(kv);
    for (const KvCache::Layer& layer : cache.layers()) {
      if (layer.group != group) continue;
      check_pages(layer, from, count);
      check_pages(layer, to, count);
      const auto k_bytes = static_cast<std::size_t>(layer.heads * cache.page_bytes(layer.dim));
      const auto v_bytes = static_cast<std::size_t>(layer.heads * cache.page_bytes(layer.value_dim));
      for (std::uint64_t i = 0; i < count; ++i) {
        std::memmove(cache.k_at(layer, to[i], 0), cache.k_at(layer, from[i], 0), k_bytes);
        std::memmove(cache.v_at(layer, to[i], 0), cache.v_at(layer, from[i], 0), v_bytes);
      }
    }
  });
}

}  // namespace

void fill_kv(bp_kv_table& table) {
  table.bytes = bytes;
  table.create = create;
  table.destroy = destroy;
  table.export_pages = export_pages;
  table.import_pages = import_pages;
  table.copy_pages = copy_pages;
}

void CacheWriter::write(std::int64_t t, std::int64_t head, const float* k, const float* v) const {
  if (slots_[t] < 0) return;
  const std::int64_t page = slots_[t] / cache_.page_size(), offset = slots_[t] % cache_.page_size();
  const RowKernels& rows = device_.kernels->rows;
  if (cache_.quantized()) {
    rows.quantize(k, layer_.dim, cache_.key_row(cache_.k_at(layer_, page, head), offset, layer_.dim));
    rows.quantize(v, layer_.value_dim, cache_.value_row(cache_.v_at(layer_, page, head), offset, layer_.value_dim));
    return;
  }
  rows.store(cache_.type(), k, layer_.dim, cache_.k_at(layer_, page, head) + offset * cache_.element(),
             cache_.page_size());
  rows.store(cache_.type(), v, layer_.value_dim,
             cache_.v_at(layer_, page, head) + offset * layer_.value_dim * cache_.element(), 1);
}

CacheWriter::CacheWriter(const Device& device, const bp_kv_write_args& args)
    : device_(device), cache_(cache_of(args.kv)), layer_(cache_.layer(args.layer)), slots_(nullptr) {
  const bp_step step = plugin::step_of(args.step);
  plugin::require(step.page_size == cache_.page_size(), "the step's pages are of another size than the cache's");
  plugin::require(args.k.shape[1] == layer_.heads && args.k.shape[2] == layer_.dim &&
                      args.v.shape[2] == layer_.value_dim && args.group == layer_.group,
                  "k and v aren't of the shape of this layer's cache");
  slots_ = plugin::checked_slots(step, args.group, layer_.pages * cache_.page_size());
}

void run(const Call& call, const bp_kv_write_args& args) {
  const View<const float> k(args.k, "k"), v(args.v, "v");
  const CacheWriter writer(call.device, args);
  for_rows(k.shape(0), k.shape(1) * k.shape(2), [&](std::int64_t t) {
    for (std::int64_t h = 0; h < k.shape(1); ++h) writer.write(t, h, k.at(t, h), v.at(t, h));
  });
}

}  // namespace backplane::onednn

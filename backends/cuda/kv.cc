// The KV cache: its memory, its table, and the ops on it.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "backends/cuda/ops.h"

namespace backplane::cuda {
namespace {

template <class Visit>
void for_layers(const bp_kv_desc& desc, Visit&& visit) {
  plugin::require(desc.layers != nullptr || desc.layer_count == 0, "a cache without its layers");
  for (std::uint32_t i = 0; i < desc.layer_count; ++i) {
    const auto* at = reinterpret_cast<const char*>(desc.layers) + i * desc.layer_stride;
    const bp_kv_layer layer = plugin::read_struct(reinterpret_cast<const bp_kv_layer*>(at));
    plugin::require(layer.group < desc.groups && desc.pages != nullptr, "a layer of a group that the cache hasn't");
    visit(layer, desc.pages[layer.group]);
  }
}

void check_desc(const bp_kv_desc& desc) {
  if (desc.flags != 0) plugin::refuse("unknown flags of a KV cache");
  if (!is_cache_type(desc.type)) {
    plugin::refuse(std::string("KV caches in ") + plugin::type_info(desc.type).name);
  }
  plugin::require(desc.page_size != 0, "pages of no tokens");
}

// Bytes of the K or V of one layer.
std::uint64_t side_bytes(const bp_kv_desc& desc, const bp_kv_layer& layer, std::uint32_t dim, std::uint64_t pages) {
  if (dim > kMostHeadDim) plugin::refuse("heads of more than " + std::to_string(kMostHeadDim));
  plugin::Bytes bytes = plugin::checked_multiply(pages, std::uint64_t{desc.page_size} * layer.kv_heads);
  if (bytes) bytes = plugin::checked_multiply(*bytes, std::uint64_t{dim} * plugin::type_info(desc.type).block_bytes);
  plugin::require(bytes.has_value() && *bytes <= INT64_MAX, "a KV cache of impossible size");
  return *bytes;
}

bp_status bytes(bp_device, bp_context context, const bp_kv_desc* given, std::uint64_t* total) {
  return plugin::guard(context, [&] {
    const bp_kv_desc desc = plugin::read_struct(given);
    check_desc(desc);
    *total = 0;
    for_layers(desc, [&](const bp_kv_layer& layer, std::uint64_t pages) {
      for (const std::uint32_t dim : {layer.head_dim, layer.value_dim}) {
        const plugin::Bytes sum = plugin::checked_add(*total, side_bytes(desc, layer, dim, pages));
        plugin::require(sum.has_value(), "a KV cache of impossible size");
        *total = *sum;
      }
    });
  });
}

bp_status create(bp_device handle, bp_context context, const bp_kv_desc* given, bp_kv* kv) {
  return plugin::guard(context, [&] {
    device_of(handle).guarded([&] {
      const bp_kv_desc desc = plugin::read_struct(given);
      check_desc(desc);
      auto cache = std::make_unique<KvCache>();
      cache->type = desc.type;
      cache->page_size = desc.page_size;
      for_layers(desc, [&](const bp_kv_layer& layer, std::uint64_t pages) {
        cache->layers.push_back({layer.kv_heads, layer.head_dim, layer.value_dim, layer.group,
                                 static_cast<std::int64_t>(pages),
                                 DeviceMemory(device_of(handle), side_bytes(desc, layer, layer.head_dim, pages)),
                                 DeviceMemory(device_of(handle), side_bytes(desc, layer, layer.value_dim, pages))});
      });
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

// Moves pages of K or V between the cache and canonical bytes [count,S,Hk,dim].
void move_side(const Stream& on, const KvCache& cache, const KvCache::Layer& layer, std::byte* own, std::int64_t dim,
               const std::int32_t* pages, std::uint64_t count, std::byte* canonical, bool out) {
  const std::size_t row = static_cast<std::size_t>(dim) * cache.element();
  const std::size_t line = row * static_cast<std::size_t>(layer.heads);  // of canonical bytes, a token
  const auto tokens = static_cast<std::size_t>(cache.page_size);
  if (row == 0) return;
  for (std::uint64_t p = 0; p < count; ++p) {
    for (std::size_t h = 0; h < static_cast<std::size_t>(layer.heads); ++h) {
      std::byte* page = own + (static_cast<std::size_t>(pages[p] * layer.heads) + h) * tokens * row;
      std::byte* there = canonical + p * tokens * line + h * row;
      check(out ? cudaMemcpy2DAsync(there, line, page, row, row, tokens, cudaMemcpyDeviceToHost, on.handle)
                : cudaMemcpy2DAsync(page, row, there, line, row, tokens, cudaMemcpyHostToDevice, on.handle),
            "cudaMemcpy2DAsync");
    }
  }
}

bp_status move(bp_stream stream, bp_context context, bp_kv kv, std::uint32_t index, const std::int32_t* pages,
               std::uint64_t count, void* k, void* v, bool out) {
  return on_stream(stream, context, [&](Stream& on) {
    const KvCache& cache = cache_of(kv);
    const KvCache::Layer& layer = cache.layer(index);
    check_pages(layer, pages, count);
    move_side(on, cache, layer, layer.k.data(), layer.dim, pages, count, static_cast<std::byte*>(k), out);
    move_side(on, cache, layer, layer.v.data(), layer.value_dim, pages, count, static_cast<std::byte*>(v), out);
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

bp_status copy_pages(bp_device, bp_stream stream, bp_context context, bp_kv kv, std::uint32_t group,
                     const std::int32_t* from, const std::int32_t* to, std::uint64_t count) {
  return on_stream(stream, context, [&](Stream& on) {
    const KvCache& cache = cache_of(kv);
    for (const KvCache::Layer& layer : cache.layers) {
      if (layer.group != group) continue;
      check_pages(layer, from, count);
      check_pages(layer, to, count);
      const auto page = static_cast<std::size_t>(layer.heads * cache.page_size) * cache.element();
      for (std::uint64_t i = 0; i < count; ++i) {
        if (from[i] == to[i]) continue;
        const auto source = static_cast<std::size_t>(from[i]), target = static_cast<std::size_t>(to[i]);
        for (const auto& [data, dim] : {std::pair{layer.k.data(), layer.dim}, {layer.v.data(), layer.value_dim}}) {
          const std::size_t size = page * static_cast<std::size_t>(dim);
          if (size == 0) continue;
          check(cudaMemcpyAsync(data + target * size, data + source * size, size, cudaMemcpyDeviceToDevice, on.handle),
                "cudaMemcpyAsync");
        }
      }
    }
  });
}

// The layer's cache for kernels, of the shape that an op says.
CacheView view_of(const KvCache& cache, std::uint32_t index, std::uint32_t group, const bp_step& step,
                  std::int64_t heads, std::int64_t dim, std::int64_t value_dim) {
  const KvCache::Layer& layer = cache.layer(index);
  plugin::require(step.page_size == cache.page_size, "the step's pages are of another size than the cache's");
  plugin::require(layer.heads == heads && layer.dim == dim && layer.value_dim == value_dim && layer.group == group,
                  "an op on heads of another shape or group than this layer's cache");
  return {cache.type, layer.k.data(), layer.v.data(), heads, dim, value_dim, layer.pages, cache.page_size};
}

constexpr std::uint64_t kMostPartialBytes = std::uint64_t{64} << 20;

// Floats of results of chunks, for that many tokens.
std::uint64_t partial_bytes(const bp_attention_args& args, std::uint64_t tokens, std::uint64_t chunks) {
  const std::uint64_t row = 2 + static_cast<std::uint64_t>(args.out.shape[2]);
  plugin::Bytes bytes = plugin::checked_multiply(tokens, static_cast<std::uint64_t>(args.q.shape[1]));
  if (bytes) bytes = plugin::checked_multiply(*bytes, chunks);
  if (bytes) bytes = plugin::checked_multiply(*bytes, row * sizeof(float));
  return bytes.value_or(std::numeric_limits<std::uint64_t>::max());
}

std::uint64_t chunks_of(const bp_step& step) { return (std::uint64_t{step.max_kv} + kChunk - 1) / kChunk; }

}  // namespace

void fill_kv(bp_kv_table& table) {
  table.bytes = bytes;
  table.create = create;
  table.destroy = destroy;
  table.export_pages = export_pages;
  table.import_pages = import_pages;
  table.copy_pages = copy_pages;
}

std::uint64_t workspace_bytes(const bp_attention_args& args) {
  if (args.step == nullptr) return 0;
  const bp_step step = plugin::step_of(args.step);
  const std::uint64_t bytes = partial_bytes(args, step.tokens, chunks_of(step));
  return std::min(bytes, kMostPartialBytes) + plugin::kHostAlignment;
}

void run(const Call& call, const bp_kv_write_args& args) {
  const bp_step step = plugin::step_of(args.step);
  KvWriteCall kernel;
  kernel.cache =
      view_of(cache_of(args.kv), args.layer, args.group, step, args.k.shape[1], args.k.shape[2], args.v.shape[2]);
  kernel.k = input(args.k, "k");
  kernel.v = input(args.v, "v");
  const std::uint64_t skipped = std::uint64_t{args.group} * step.tokens;
  kernel.slots = step_array<std::int64_t>(step, step.slot_offset + skipped * sizeof(std::int64_t), step.tokens);
  kernel.tokens = step.tokens;
  kernel.fault = call.stream.fault;
  launch(call, kernel);
}

void run(const Call& call, const bp_attention_args& args) {
  const bp_step step = plugin::step_of(args.step);
  AttentionCall kernel;
  kernel.cache =
      view_of(cache_of(args.kv), args.layer, args.group, step, args.kv_heads, args.q.shape[2], args.out.shape[2]);
  kernel.q = input(args.q, "q");
  kernel.out = output(args.out, "out");
  kernel.sinks = vector_of<const float>(args.sinks, "sinks");
  kernel.q_start = step_array<std::int32_t>(step, step.q_start_offset, std::uint64_t{step.sequences} + 1);
  kernel.pos = step_array<std::int32_t>(step, step.pos_offset, step.tokens);
  const std::uint64_t table = std::uint64_t{step.sequences} * step.max_pages;
  kernel.page_table =
      step_array<std::int32_t>(step, step.page_table_offset + args.group * table * sizeof(std::int32_t), table);
  kernel.max_pages = step.max_pages;
  kernel.first_sequence = args.first_sequence;
  kernel.last_sequence = args.last_sequence;
  kernel.max_q = step.max_q;
  kernel.heads = args.q.shape[1];
  kernel.window = args.window;
  kernel.scale = static_cast<float>(args.scale);
  kernel.softcap = static_cast<float>(args.softcap);
  kernel.fault = call.stream.fault;

  // Chunks apart, where sequences alone don't keep the GPU busy and there is room for their results.
  const std::uint64_t chunks = chunks_of(step), sequences = args.last_sequence - args.first_sequence;
  kernel.chunks = static_cast<std::int64_t>(chunks);
  const std::uint64_t tokens = std::min<std::uint64_t>(step.tokens, sequences * step.max_q);
  const std::uint64_t needed = partial_bytes(args, tokens, chunks);
  const auto blocks = sequences * args.kv_heads;
  if (chunks > 1 && chunks < 65536 && blocks < 4 * static_cast<std::uint64_t>(call.stream.device.processors) &&
      needed <= kMostPartialBytes && call.op.workspace != nullptr &&
      needed + plugin::kHostAlignment <= call.op.workspace_bytes) {
    kernel.partial = plugin::Workspace(call.op).take<float>(needed / sizeof(float));
  }
  launch(call, kernel);
}

}  // namespace backplane::cuda

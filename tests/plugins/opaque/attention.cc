// Attention and KV_WRITE over the plugin's own pages. The step's arrays are read from the device's copy.
#include <cmath>

#include "device.h"
#include "numbers.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

template <class T>
std::vector<T> array(const Device& device, const bp_step& step, std::uint64_t offset, std::uint64_t count) {
  sdk::require(offset % 256 == 0, "an array of the step that is not aligned as the device wants");
  std::vector<T> values(count);
  if (count != 0) device.memory.at(step.buffer)->read(offset, values.data(), count * sizeof(T));
  return values;
}

std::vector<double> read_head(const Kv& kv, const Scrambled& cache, std::uint64_t place, std::uint64_t dim) {
  const std::uint64_t size = sdk::type_info(kv.type).block_bytes;
  std::vector<std::byte> bytes(dim * size);
  cache.read(place * size, bytes.data(), bytes.size());
  std::vector<double> values(dim);
  decode_row(kv.type, bytes.data(), static_cast<std::int64_t>(dim), values.data());
  return values;
}

void write_head(const Kv& kv, Scrambled& cache, std::uint64_t place, const double* values, std::uint64_t dim) {
  const std::uint64_t size = sdk::type_info(kv.type).block_bytes;
  std::vector<std::byte> bytes(dim * size);
  for (std::uint64_t i = 0; i < dim; ++i) encode(kv.type, values[i], bytes.data() + i * size);
  cache.write(place * size, bytes.data(), bytes.size());
}

Kv::Layer& layer_of(bp_kv kv, std::uint32_t layer) {
  sdk::require(kv != nullptr, "canonical pages, which this plugin refused");
  auto& layers = reinterpret_cast<Kv*>(kv)->layers;
  sdk::require(layer < layers.size(), "a layer that the cache hasn't");
  return layers[layer];
}

struct Query {
  std::int64_t position;
  const std::int32_t* pages;  // of its sequence
  const double* q;
  double* out;
  std::uint64_t kv_head;
  double sink;  // -infinity: none
};

void attend(const Kv& kv, const Kv::Layer& layer, const bp_attention_args& a, const Query& query) {
  const std::int64_t first = a.window ? std::max<std::int64_t>(0, query.position - a.window + 1) : 0;
  const auto place = [&](std::int64_t j, std::uint64_t dim) {
    const std::int32_t page = query.pages[static_cast<std::uint64_t>(j) / kv.page_size];
    sdk::require(page >= 0 && static_cast<std::uint64_t>(page) < layer.pages, "a key on a page that isn't there");
    const std::uint64_t slot =
        static_cast<std::uint64_t>(page) * kv.page_size + static_cast<std::uint64_t>(j) % kv.page_size;
    return Kv::place(layer, kv.page_size, query.kv_head, slot, dim);
  };
  std::vector<double> scores;
  double largest = query.sink;
  for (std::int64_t j = first; j <= query.position; ++j) {
    const auto key = read_head(kv, layer.k, place(j, layer.dim), layer.dim);
    double score = 0;
    for (std::uint64_t d = 0; d < layer.dim; ++d) score += query.q[d] * key[d];
    score *= a.scale;
    if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
    scores.push_back(score);
    largest = std::max(largest, score);
  }
  double sum = std::isinf(query.sink) ? 0 : std::exp(query.sink - largest);
  std::vector<double> out(layer.value_dim);
  for (std::int64_t j = first; j <= query.position; ++j) {
    const double weight = std::exp(scores[static_cast<std::size_t>(j - first)] - largest);
    const auto value = read_head(kv, layer.v, place(j, layer.value_dim), layer.value_dim);
    for (std::uint64_t d = 0; d < layer.value_dim; ++d) out[d] += weight * value[d];
    sum += weight;
  }
  for (std::uint64_t d = 0; d < layer.value_dim; ++d) query.out[d] = out[d] / sum;
}

}  // namespace

void run_attention(Device& device, const bp_step& step, const bp_attention_args& a) {
  const Kv::Layer& layer = layer_of(a.kv, a.layer);
  const Kv& kv = *reinterpret_cast<const Kv*>(a.kv);
  const auto heads = static_cast<std::uint64_t>(a.q.shape[1]);
  const auto starts = array<std::int32_t>(device, step, step.q_start_offset, step.sequences + 1);
  const auto lengths = array<std::int32_t>(device, step, step.kv_len_offset, step.sequences);
  const auto tables = array<std::int32_t>(device, step, step.page_table_offset,
                                          std::uint64_t{step.groups} * step.sequences * step.max_pages);
  const auto q = device.memory.load(a.q), sinks = device.memory.load(a.sinks);
  auto out = device.memory.load(a.out);  // other sequences' rows stay
  for (std::uint32_t b = a.first_sequence; b < a.last_sequence; ++b) {
    const std::int32_t* pages = tables.data() + (std::uint64_t{a.group} * step.sequences + b) * step.max_pages;
    for (std::int32_t t = starts[b]; t < starts[b + 1]; ++t) {
      for (std::uint64_t h = 0; h < heads; ++h) {
        const std::uint64_t row = static_cast<std::uint64_t>(t) * heads + h;
        attend(kv, layer, a,
               {lengths[b] - (starts[b + 1] - t), pages, &q[row * layer.dim], &out[row * layer.value_dim],
                h / (heads / layer.heads), sinks.empty() ? -HUGE_VAL : sinks[h]});
      }
    }
  }
  device.memory.store(a.out, out);
}

void run_kv_write(Device& device, const bp_step& step, const bp_kv_write_args& a) {
  Kv::Layer& layer = layer_of(a.kv, a.layer);
  const Kv& kv = *reinterpret_cast<const Kv*>(a.kv);
  const auto slots = array<std::int64_t>(device, step, step.slot_offset, std::uint64_t{step.groups} * step.tokens);
  const auto k = device.memory.load(a.k), v = device.memory.load(a.v);
  for (std::uint32_t t = 0; t < step.tokens; ++t) {
    const std::int64_t slot = slots[std::uint64_t{a.group} * step.tokens + t];
    if (slot < 0) continue;
    for (std::uint64_t h = 0; h < layer.heads; ++h) {
      const std::uint64_t row = t * layer.heads + h, at = static_cast<std::uint64_t>(slot);
      write_head(kv, layer.k, Kv::place(layer, kv.page_size, h, at, layer.dim), &k[row * layer.dim], layer.dim);
      write_head(kv, layer.v, Kv::place(layer, kv.page_size, h, at, layer.value_dim), &v[row * layer.value_dim],
                 layer.value_dim);
    }
  }
}

}  // namespace opaque

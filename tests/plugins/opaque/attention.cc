// Attention and KV_WRITE over the plugin's own pages. The step's arrays are read from the device's copy.
#include <cmath>

#include "numbers.h"
#include "run.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

template <class T>
std::vector<T> array(const Device& device, const bp_step& step, std::uint64_t offset, std::uint64_t count) {
  sdk::require(offset % device.options.alignment == 0, "an array of the step that is not aligned as the device wants");
  std::vector<T> values(count);
  if (count != 0) device.memory.at(step.buffer)->read(offset, values.data(), count * sizeof(T));
  return values;
}

// Tokens one after another in one head, from an element on.
void read_tokens(const Kv& kv, const Scrambled& cache, std::uint64_t place, std::uint64_t elements, double* out) {
  const std::uint64_t size = sdk::type_info(kv.type).block_bytes;
  std::vector<std::byte> bytes(elements * size);
  cache.read(place * size, bytes.data(), bytes.size());
  decode_row(kv.type, bytes.data(), elements, out);
}

void write_token(const Kv& kv, Scrambled& cache, std::uint64_t place, const double* values, std::uint64_t dim) {
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

// The tokens of one sequence in this step.
struct Sequence {
  std::int64_t first_token, tokens;
  std::int64_t first_position;  // of the first one
  const std::int32_t* pages;
  std::uint64_t max_pages;
};

// Keys or values of a head at positions [first, first + count): [count,dim].
Values read_positions(const Kv& kv, const Kv::Layer& layer, const Scrambled& cache, const Sequence& sequence,
                      std::uint64_t head, std::uint64_t first, std::uint64_t count, std::uint64_t dim) {
  Values out(count * dim);
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t page = (first + done) / kv.page_size, offset = (first + done) % kv.page_size;
    sdk::require(page < sequence.max_pages, "a key beyond the sequence's pages");
    const std::int32_t number = sequence.pages[page];
    sdk::require(number >= 0 && static_cast<std::uint64_t>(number) < layer.pages, "a key on a page that isn't there");
    const std::uint64_t run = std::min(kv.page_size - offset, count - done);
    const std::uint64_t slot = static_cast<std::uint64_t>(number) * kv.page_size + offset;
    read_tokens(kv, cache, Kv::place(layer, kv.page_size, head, slot, dim), run * dim, &out[done * dim]);
    done += run;
  }
  return out;
}

// K and V of one KV head, of all positions that any token of the sequence sees.
struct Context {
  std::int64_t first = 0;
  std::uint64_t count = 0, dim = 0, value_dim = 0;
  Values k;  // [dim,count]
  Values v;  // [count,value_dim]
};

Context read_context(const Kv& kv, const Kv::Layer& layer, const Sequence& s, std::uint32_t window,
                     std::uint64_t head) {
  Context c;
  c.dim = layer.dim;
  c.value_dim = layer.value_dim;
  c.first = window ? std::max<std::int64_t>(0, s.first_position - window + 1) : 0;
  c.count = static_cast<std::uint64_t>(std::max<std::int64_t>(0, s.first_position + s.tokens - c.first));
  const auto from = static_cast<std::uint64_t>(c.first);
  const Values keys = read_positions(kv, layer, layer.k, s, head, from, c.count, c.dim);
  c.k.resize(keys.size());
  for (std::uint64_t j = 0; j < c.count; ++j) {
    for (std::uint64_t d = 0; d < c.dim; ++d) c.k[d * c.count + j] = keys[j * c.dim + d];
  }
  c.v = read_positions(kv, layer, layer.v, s, head, from, c.count, c.value_dim);
  return c;
}

// One token in one head; keys [begin, end) of the context. sink: -infinity where there is none.
void attend(const Context& c, const bp_attention_args& a, std::uint64_t begin, std::uint64_t end, double sink,
            const double* q, double* out) {
  Values scores(end - begin);
  for (std::uint64_t d = 0; d < c.dim; ++d) {
    const double* keys = &c.k[d * c.count + begin];
    for (std::uint64_t j = 0; j < scores.size(); ++j) scores[j] += q[d] * keys[j];
  }
  double largest = sink;
  for (double& score : scores) {
    score *= a.scale;
    if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
    largest = std::max(largest, score);
  }
  double sum = std::isinf(sink) ? 0 : std::exp(sink - largest);
  std::fill_n(out, c.value_dim, 0.0);
  for (std::uint64_t j = 0; j < scores.size(); ++j) {
    const double weight = std::exp(scores[j] - largest);
    const double* value = &c.v[(begin + j) * c.value_dim];
    for (std::uint64_t d = 0; d < c.value_dim; ++d) out[d] += weight * value[d];
    sum += weight;
  }
  for (std::uint64_t d = 0; d < c.value_dim && sum != 0; ++d) out[d] /= sum;
}

}  // namespace

void run_op(const Run& run, const bp_attention_args& a) {
  const bp_step& step = *a.step;
  const Kv::Layer& layer = layer_of(a.kv, a.layer);
  const Kv& kv = *reinterpret_cast<const Kv*>(a.kv);
  const auto heads = static_cast<std::uint64_t>(a.q.shape[1]), group = heads / layer.heads;
  const auto starts = array<std::int32_t>(run.device, step, step.q_start_offset, step.sequences + 1);
  const auto lengths = array<std::int32_t>(run.device, step, step.kv_len_offset, step.sequences);
  const auto tables = array<std::int32_t>(run.device, step, step.page_table_offset,
                                          std::uint64_t{step.groups} * step.sequences * step.max_pages);
  const Values q = run.load(a.q), sinks = run.load(a.sinks);
  Values out = run.load(a.out);  // other sequences' rows stay
  for (std::uint32_t b = a.first_sequence; b < a.last_sequence; ++b) {
    const std::int64_t tokens = starts[b + 1] - starts[b];
    const Sequence sequence{starts[b], tokens, lengths[b] - tokens,
                            tables.data() + (std::uint64_t{a.group} * step.sequences + b) * step.max_pages,
                            step.max_pages};
    for (std::uint64_t kv_head = 0; kv_head < layer.heads; ++kv_head) {
      const Context context = read_context(kv, layer, sequence, a.window, kv_head);
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::int64_t position = sequence.first_position + t;
        const std::int64_t first = a.window ? std::max<std::int64_t>(0, position - a.window + 1) : 0;
        for (std::uint64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
          const std::uint64_t row = static_cast<std::uint64_t>(starts[b] + t) * heads + h;
          attend(context, a, static_cast<std::uint64_t>(first - context.first),
                 static_cast<std::uint64_t>(position + 1 - context.first), sinks.empty() ? -HUGE_VAL : sinks[h],
                 &q[row * layer.dim], &out[row * layer.value_dim]);
        }
      }
    }
  }
  run.store(a.out, std::move(out));
}

void write_cache(const bp_kv_write_args& a, const Device& device, const Values& k, const Values& v) {
  const bp_step& step = *a.step;
  Kv::Layer& layer = layer_of(a.kv, a.layer);
  const Kv& kv = *reinterpret_cast<const Kv*>(a.kv);
  const auto slots = array<std::int64_t>(device, step, step.slot_offset, std::uint64_t{step.groups} * step.tokens);
  for (std::uint32_t t = 0; t < step.tokens; ++t) {
    const std::int64_t slot = slots[std::uint64_t{a.group} * step.tokens + t];
    if (slot < 0) continue;
    sdk::require(static_cast<std::uint64_t>(slot) < layer.pages * kv.page_size, "a slot that the cache hasn't");
    for (std::uint64_t h = 0; h < layer.heads; ++h) {
      const std::uint64_t row = t * layer.heads + h, at = static_cast<std::uint64_t>(slot);
      write_token(kv, layer.k, Kv::place(layer, kv.page_size, h, at, layer.dim), &k[row * layer.dim], layer.dim);
      write_token(kv, layer.v, Kv::place(layer, kv.page_size, h, at, layer.value_dim), &v[row * layer.value_dim],
                  layer.value_dim);
    }
  }
}

void run_op(const Run& run, const bp_kv_write_args& a) {
  Values k = run.load(a.k);
  if (run.wrong) Run::spoil(k);
  write_cache(a, run.device, k, run.load(a.v));
}

}  // namespace opaque

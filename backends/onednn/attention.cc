// ATTN_PREFILL and ATTN_DECODE. The queries of one KV head at a few neighboring tokens are a unit: they read the same
// keys and values, chunk by chunk. Many units are shared out among the threads; few long ones are cut at their chunks.
// Either way a row's chunks are computed alone and combined in order, so that its bits are the same.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "backends/onednn/attention_plan.h"
#include "backends/onednn/ops.h"

namespace backplane::onednn {
namespace {

class Attention {
 public:
  Attention(const Call& call, const bp_attention_args& args)
      : args_(args),
        plan_(args),
        step_(plugin::step_of(args.step)),
        kernels_(call.device.kernels->attention),
        cache_(cache_of(args.kv)),
        layer_(cache_.layer(args.layer)),
        q_(args.q, "q"),
        out_(args.out, "out"),
        sinks_(floats_or_null(args.sinks, "sinks")) {
    plugin::require(step_.page_size == cache_.page_size(), "the step's pages are of another size than the cache's");
    plugin::require(plan_.kv_heads == layer_.heads && plan_.dim == layer_.dim && plan_.value_dim == layer_.value_dim &&
                        args.group == layer_.group,
                    "q and out aren't of the shape of this layer's cache");
    for (std::uint32_t b = args.first_sequence; b < args.last_sequence; ++b) {
      plugin::check_sequence(args, step_, b, layer_.pages);
    }
    Workspace workspace = call.workspace;
    scratch_ = workspace.take<float>(plan_.worker_floats() * plugin::threads());
    split_floats_ = plan_.split_floats(step_.max_kv);
    partials_ = workspace.take<float>(split_floats_);
  }

  void run() const {
    std::uint64_t units = 0, chunks = 0;
    std::int64_t cost = 0, rows = 0;
    for_units([&](const Unit& unit) {
      ++units;
      chunks += static_cast<std::uint64_t>(unit.chunks());
      cost += unit.cost();
      rows = std::max(rows, unit.tokens * plan_.group);
    });
    const bool cut = units < plan_.split_units() && chunks > units && rows <= kSplitRows &&
                     chunks * static_cast<std::uint64_t>(rows * plan_.partial_floats()) <= split_floats_;
    if (cut) {
      run_cut(cost, rows);
    } else {
      run_whole(cost);
    }
  }

 private:
  template <class Visit>
  void for_units(Visit&& visit) const {
    for (std::uint32_t b = args_.first_sequence; b < args_.last_sequence; ++b) {
      const std::int64_t begin = step_.q_start[b], end = step_.q_start[b + 1];
      for (std::int64_t t = begin; t < end; t += plan_.unit_tokens) {
        Unit unit{b, 0, t, std::min(plan_.unit_tokens, end - t), std::numeric_limits<std::int64_t>::max(), 0};
        for (std::int64_t i = t; i < t + unit.tokens; ++i) {
          unit.first = std::min(unit.first, plugin::first_key(args_, step_.pos[i]));
          unit.last = std::max<std::int64_t>(unit.last, step_.pos[i]);
        }
        for (; unit.kv_head < plan_.kv_heads; ++unit.kv_head) visit(unit);
      }
    }
  }

  // Where the pages of a chunk lie.
  struct Pages {
    std::array<const std::byte*, kChunk / kLanes> k, v;
    std::int64_t from, count;  // those that are there
  };

  // A chunk of a unit, and where its results go.
  struct Item {
    Unit unit;
    std::int64_t number;
    float* results;
    bool first, last;  // of what is combined in `results`
  };

  // Takes items one by one, and computes each when the next is known, whose keys are fetched meanwhile.
  class Line {
   public:
    Line(const Attention& attention, unsigned worker) : attention_(attention), worker_(worker) {}
    void add(const Item& item) {
      const int other = 1 - now_;
      items_[other] = item;
      attention_.find_pages(item, pages_[other]);
      compute(&pages_[other]);
      now_ = other;
      any_ = true;
    }
    void end() { compute(nullptr); }

   private:
    void compute(const Pages* next) {
      if (any_) attention_.attend_chunk(items_[now_], worker_, pages_[now_], next);
    }

    const Attention& attention_;
    const unsigned worker_;
    std::array<Item, 2> items_;
    std::array<Pages, 2> pages_;
    int now_ = 0;
    bool any_ = false;
  };

  // Units as they are: each thread takes those whose middle lies in its share of the cost.
  void run_whole(std::int64_t cost) const {
    const std::int64_t threads = plugin::threads();
    const std::int64_t products = cost * plan_.group * (plan_.dim + plan_.value_dim);
    const std::int64_t grain = 1 + (1 << 15) / (1 + products / threads);
    plugin::parallel_for(threads, grain, [&](std::int64_t begin, std::int64_t end, unsigned worker) {
      Line line(*this, worker);
      float* results = scratch_of(worker) + plan_.worker_floats() - plan_.unit_rows * plan_.partial_floats();
      std::int64_t before = 0;
      for_units([&](const Unit& unit) {
        const std::int64_t share = (2 * before + unit.cost()) * threads / (2 * cost);
        before += unit.cost();
        if (share < begin || share >= end) return;
        for (std::int64_t c = 0; c < unit.chunks(); ++c)
          line.add({unit, unit.first_chunk() + c, results, c == 0, c + 1 == unit.chunks()});
      });
      line.end();
    });
  }

  // Chunks of units: partial results first, then they are combined.
  void run_cut(std::int64_t cost, std::int64_t rows) const {
    const std::int64_t floats = rows * plan_.partial_floats(), threads = plugin::threads();
    plugin::parallel_for(threads, 1, [&](std::int64_t begin, std::int64_t end, unsigned worker) {
      Line line(*this, worker);
      float* results = partials_;
      std::int64_t before = 0;
      for_units([&](const Unit& unit) {
        for (std::int64_t c = 0; c < unit.chunks(); ++c, results += floats) {
          const std::int64_t chunk = unit.first_chunk() + c, here = unit.cost_of(chunk);
          const std::int64_t share = (2 * before + here) * threads / (2 * cost);
          before += here;
          if (share >= begin && share < end) line.add({unit, chunk, results, true, false});
        }
      });
      line.end();
    });
    float* partial = partials_;
    for_units([&](const Unit& unit) {
      float* results = partial;
      partial += floats;
      for (std::int64_t c = 1; c < unit.chunks(); ++c, partial += floats) {
        for (std::int64_t r = 0; r < unit.tokens * plan_.group; ++r) {
          const std::int64_t at = r * plan_.partial_floats();
          kernels_.merge(results + at, results + at + 1, results + at + 2, partial[at], partial[at + 1],
                         partial + at + 2, plan_.value_dim);
        }
      }
      finish(unit, results);
    });
  }

  float* scratch_of(unsigned worker) const { return scratch_ + worker * plan_.worker_floats(); }

  // What a chunk's rows have in common.
  AttentionChunk described(const Item& item, const Pages& pages, const Pages* next) const {
    AttentionChunk chunk{};
    chunk.type = expands(item.unit) ? bp_type{BP_TYPE_F32} : cache_.type();
    chunk.k_pages = pages.k.data();
    chunk.v_pages = pages.v.data();
    if (next != nullptr && !expands(item.unit)) {
      chunk.next_k_pages = next->k.data() + next->from;
      chunk.next_pages = next->count;
    }
    chunk.begin = item.number * kChunk;
    chunk.page_size = cache_.page_size();
    chunk.dim = plan_.dim;
    chunk.value_dim = plan_.value_dim;
    chunk.scale = static_cast<float>(args_.scale);
    chunk.softcap = static_cast<float>(args_.softcap);
    return chunk;
  }

  // The unit's rows over one chunk, into results [row][maximum, sum, values], or combined with what is there. A row
  // that has no key in the chunk gets a maximum of minus infinity and a sum of zero.
  void attend_chunk(const Item& item, unsigned worker, Pages& pages, const Pages* next) const {
    const std::int64_t begin = item.number * kChunk, rows = item.unit.tokens * plan_.group;
    AttentionChunk chunk = described(item, pages, next);
    chunk.scores = scratch_of(worker);
    chunk.v_scales = chunk.scores + kMostRows * kChunk + kChunk * (plan_.dim + plan_.value_dim);
    if (expands(item.unit)) expand(pages, scratch_of(worker) + kMostRows * kChunk);
    float* some = scratch_of(worker) + plan_.worker_floats() -
                  (plan_.unit_rows + kMostRows) * plan_.partial_floats();  // results of a few rows
    std::array<std::int64_t, kMostRows> numbers;
    const auto flush = [&] {
      if (chunk.rows > 0) kernels_.chunk(chunk);
      for (int r = 0; !item.first && r < chunk.rows; ++r) {
        float* to = item.results + numbers[static_cast<std::size_t>(r)] * plan_.partial_floats();
        kernels_.merge(to, to + 1, to + 2, *chunk.maximum[r], *chunk.total[r], chunk.out[r], plan_.value_dim);
      }
      chunk.rows = 0;
      chunk.next_pages = 0;
    };
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t token = item.unit.token + row / plan_.group, position = step_.pos[token];
      const std::int64_t first = std::max(begin, plugin::first_key(args_, position));
      const std::int64_t last = std::min<std::int64_t>(begin + kChunk - 1, position);
      float* own = item.results + row * plan_.partial_floats();
      if (first > last) {
        if (!item.first) continue;
        *own = -std::numeric_limits<float>::infinity();
        std::fill(own + 1, own + plan_.partial_floats(), 0.0F);
        continue;
      }
      const int r = chunk.rows++;
      float* to = item.first ? own : some + r * plan_.partial_floats();
      numbers[static_cast<std::size_t>(r)] = row;
      chunk.q[r] = q_.at(token, item.unit.kv_head * plan_.group + row % plan_.group);
      chunk.first[r] = first;
      chunk.last[r] = last;
      chunk.maximum[r] = to;
      chunk.total[r] = to + 1;
      chunk.out[r] = to + 2;
      if (chunk.rows == kMostRows) flush();
    }
    flush();
    if (item.last) finish(item.unit, item.results);
  }

  // Whether the keys and values of a unit's chunks are copied as floats first: for many tokens.
  bool expands(const Unit& unit) const { return cache_.type() != BP_TYPE_F32 && unit.tokens >= kExpandFrom; }

  // Where the pages of an item lie in the cache.
  void find_pages(const Item& item, Pages& pages) const {
    const std::int32_t* table =
        step_.page_table + (std::uint64_t{args_.group} * step_.sequences + item.unit.sequence) * step_.max_pages;
    const std::int64_t size = cache_.page_size(), begin = item.number * kChunk;
    const std::int64_t from = std::max(begin, item.unit.first) / size;
    const std::int64_t to = std::min(begin + kChunk - 1, item.unit.last) / size;
    pages.from = from - begin / size;
    pages.count = to - from + 1;
    for (std::int64_t page = from; page <= to; ++page) {
      const auto i = static_cast<std::size_t>(page - begin / size);
      pages.k[i] = cache_.k_at(layer_, table[page], item.unit.kv_head);
      pages.v[i] = cache_.v_at(layer_, table[page], item.unit.kv_head);
    }
  }

  // Copies pages as floats, and points to the copies.
  void expand(Pages& pages, float* copy) const {
    const std::int64_t size = cache_.page_size();
    for (std::int64_t page = pages.from; page < pages.from + pages.count; ++page) {
      const auto i = static_cast<std::size_t>(page);
      float* k_copy = copy + page * size * (plan_.dim + plan_.value_dim);
      float* v_copy = k_copy + size * plan_.dim;
      kernels_.expand(cache_.type(), true, pages.k[i], size, plan_.dim, k_copy);
      kernels_.expand(cache_.type(), false, pages.v[i], size, plan_.value_dim, v_copy);
      pages.k[i] = reinterpret_cast<const std::byte*>(k_copy);
      pages.v[i] = reinterpret_cast<const std::byte*>(v_copy);
    }
  }

  // Sinks, and division by the sum.
  void finish(const Unit& unit, float* results) const {
    for (std::int64_t r = 0; r < unit.tokens * plan_.group; ++r, results += plan_.partial_floats()) {
      const std::int64_t head = unit.kv_head * plan_.group + r % plan_.group;
      float scale = 1, total = results[1];
      if (sinks_ != nullptr) {
        const float best = std::max(results[0], sinks_[head]);
        scale = std::exp(results[0] - best);
        total = total * scale + std::exp(sinks_[head] - best);
      }
      float* out = out_.at(unit.token + r / plan_.group, head);
      for (std::int64_t d = 0; d < plan_.value_dim; ++d) out[d] = results[2 + d] * scale / total;
    }
  }

  const bp_attention_args& args_;
  const Plan plan_;
  const bp_step step_;
  const AttentionKernels& kernels_;
  const KvCache& cache_;
  const KvCache::Layer& layer_;
  const View<const float> q_;
  const View<float> out_;
  const float* sinks_;
  float* scratch_;
  std::uint64_t split_floats_;
  float* partials_;
};

}  // namespace

std::uint64_t workspace_bytes(const bp_attention_args& args) {
  const Plan plan(args);
  const std::uint64_t floats = Workspace::checked(plan.worker_floats(), plugin::threads());
  const std::uint64_t max_kv = args.step != nullptr ? plugin::step_of(args.step).max_kv : 0;
  return Workspace::bytes_for({Workspace::checked(floats, sizeof(float)), plan.split_floats(max_kv) * sizeof(float)});
}

void run(const Call& call, const bp_attention_args& args) {
  if (args.first_sequence == args.last_sequence || plugin::is_empty(args.q) || plugin::is_empty(args.out)) return;
  const bp_step& step = *args.step;
  plugin::require(step.q_start && step.kv_len && step.pos && step.page_table, "the step lacks arrays");
  if (step.q_start[args.first_sequence] == step.q_start[args.last_sequence]) return;
  Attention(call, args).run();
}

}  // namespace backplane::onednn

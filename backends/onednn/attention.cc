// ATTN_PREFILL and ATTN_DECODE. The queries of one KV head at a few neighboring tokens are a unit: they read the same
// keys and values, chunk by chunk. Many units are shared out among the threads; few long ones are cut at their chunks.
// Either way a row's chunks are computed alone and combined in order, so that its bits are the same.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "backends/onednn/ops.h"

namespace backplane::onednn {
namespace {

constexpr std::int64_t kUnitRows = 32;          // queries of a unit, unless the heads of one token are more
constexpr std::int64_t kSplitRows = 16;         // units that may be cut have at most so many
constexpr std::uint64_t kSplitBytes = 8 << 20;  // what their partial results may take
constexpr std::int64_t kExpandFrom = 4;         // tokens that are worth a copy of a chunk as floats

// Sizes that decide how the work is cut; from arguments, or from a query that has no tensors.
struct Plan {
  std::int64_t heads, kv_heads, group, dim, value_dim;
  std::int64_t unit_tokens, unit_rows;

  explicit Plan(const bp_attention_args& args)
      : heads(args.q.shape[1]),
        kv_heads(args.kv_heads),
        group(heads / std::max<std::int64_t>(1, kv_heads)),
        dim(args.q.shape[2]),
        value_dim(args.out.shape[2]),
        unit_tokens(std::max<std::int64_t>(1, kUnitRows / std::max<std::int64_t>(1, group))),
        unit_rows(unit_tokens * group) {}

  // A partial result of a row: maximum, sum, values.
  std::int64_t partial_floats() const { return 2 + value_dim; }

  // For each worker: scores, a chunk of K and V as floats, the rows' results so far and those of one chunk.
  std::uint64_t worker_floats() const {
    return static_cast<std::uint64_t>(kMostRows * kChunk + kChunk * (dim + value_dim) +
                                      (unit_rows + kMostRows) * partial_floats());
  }
  std::uint64_t split_units() const { return 4 * std::uint64_t{plugin::threads()}; }
  // Room for partial results: never less for a longer context, and never more than kSplitBytes.
  std::uint64_t split_floats(std::uint64_t max_kv) const {
    const std::uint64_t chunks = max_kv / kChunk + 2;
    const std::uint64_t floats = split_units() * chunks * kSplitRows * static_cast<std::uint64_t>(partial_floats());
    return std::min<std::uint64_t>(floats, kSplitBytes / sizeof(float));
  }
};

// Tokens [token, token + tokens) of sequence `sequence`, for one KV head; keys [first, last].
struct Unit {
  std::uint32_t sequence;
  std::int64_t kv_head, token, tokens, first, last;

  std::int64_t first_chunk() const { return first / kChunk; }
  std::int64_t chunks() const { return last / kChunk - first_chunk() + 1; }
  std::int64_t cost() const { return tokens * (last - first + 1); }
};

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
      run_cut(chunks, rows);
    } else {
      run_whole(cost);
    }
  }

 private:
  // Rows of a unit that look at the same keys of a chunk.
  struct Run {
    std::int64_t row, rows, first, last;
  };

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

  // Units as they are: each thread takes those whose middle lies in its share of the cost.
  void run_whole(std::int64_t cost) const {
    const std::int64_t threads = plugin::threads();
    const std::int64_t products = cost * plan_.group * (plan_.dim + plan_.value_dim);
    const std::int64_t grain = 1 + (1 << 15) / (1 + products / threads);
    plugin::parallel_for(threads, grain, [&](std::int64_t begin, std::int64_t end, unsigned worker) {
      std::int64_t before = 0;
      for_units([&](const Unit& unit) {
        const std::int64_t share = (2 * before + unit.cost()) * threads / (2 * cost);
        before += unit.cost();
        if (share < begin || share >= end) return;
        float* results = scratch_of(worker) + plan_.worker_floats() - plan_.unit_rows * plan_.partial_floats();
        for (std::int64_t c = 0; c < unit.chunks(); ++c)
          attend_chunk(unit, unit.first_chunk() + c, worker, results, c == 0);
        finish(unit, results);
      });
    });
  }

  // Chunks of units: partial results first, then they are combined.
  void run_cut(std::uint64_t chunks, std::int64_t rows) const {
    const std::int64_t floats = rows * plan_.partial_floats();
    plugin::parallel_for(chunks, 1, [&](std::int64_t begin, std::int64_t end, unsigned worker) {
      std::int64_t number = 0;
      for_units([&](const Unit& unit) {
        for (std::int64_t c = 0; c < unit.chunks(); ++c, ++number) {
          if (number < begin || number >= end) continue;
          attend_chunk(unit, unit.first_chunk() + c, worker, partials_ + number * floats, true);
        }
      });
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

  // The unit's rows over one chunk, into results [row][maximum, sum, values], or combined with what is there. A row
  // that has no key in the chunk gets a maximum of minus infinity and a sum of zero.
  void attend_chunk(const Unit& unit, std::int64_t number, unsigned worker, float* results, bool first) const {
    const std::int64_t begin = number * kChunk;
    std::array<const std::byte*, kChunk / kLanes> k_pages, v_pages;
    AttentionChunk chunk{};
    chunk.type = cache_.type();
    chunk.begin = begin;
    chunk.page_size = cache_.page_size();
    chunk.dim = plan_.dim;
    chunk.value_dim = plan_.value_dim;
    chunk.scale = static_cast<float>(args_.scale);
    chunk.softcap = static_cast<float>(args_.softcap);
    chunk.k_pages = k_pages.data();
    chunk.v_pages = v_pages.data();
    float* scratch = scratch_of(worker);
    chunk.scores = scratch;
    find_pages(unit, begin, scratch + kMostRows * kChunk, chunk, k_pages, v_pages);
    float* some = scratch + plan_.worker_floats() -
                  (plan_.unit_rows + kMostRows) * plan_.partial_floats();  // results of a few rows

    const std::int64_t rows = unit.tokens * plan_.group;
    for (Run run = run_at(unit, 0, begin); run.row < rows; run = run_at(unit, run.row + run.rows, begin)) {
      const bool empty = run.first > run.last;
      if (empty && !first) continue;
      for (int r = 0; r < run.rows; ++r) {
        float* to = first ? results + (run.row + r) * plan_.partial_floats() : some + r * plan_.partial_floats();
        if (empty) {
          *to = -std::numeric_limits<float>::infinity();
          std::fill(to + 1, to + plan_.partial_floats(), 0.0F);
        }
        chunk.q[r] =
            q_.at(unit.token + (run.row + r) / plan_.group, unit.kv_head * plan_.group + (run.row + r) % plan_.group);
        chunk.maximum[r] = to;
        chunk.total[r] = to + 1;
        chunk.out[r] = to + 2;
      }
      if (empty) continue;
      chunk.rows = static_cast<int>(run.rows);
      chunk.first = run.first;
      chunk.last = run.last;
      kernels_.chunk(chunk);
      for (int r = 0; !first && r < run.rows; ++r) {
        float* to = results + (run.row + r) * plan_.partial_floats();
        kernels_.merge(to, to + 1, to + 2, *chunk.maximum[r], *chunk.total[r], chunk.out[r], plan_.value_dim);
      }
    }
  }

  // The next rows of a unit, at most kMostRows, that look at the same keys of the chunk at `begin`.
  Run run_at(const Unit& unit, std::int64_t row, std::int64_t begin) const {
    const std::int64_t rows = unit.tokens * plan_.group;
    const auto keys = [&](std::int64_t r) {
      const std::int64_t position = step_.pos[unit.token + r / plan_.group];
      return std::pair{std::max(begin, plugin::first_key(args_, position)),
                       std::min<std::int64_t>(begin + kChunk - 1, position)};
    };
    if (row >= rows) return {row, 0, 0, 0};
    const auto [first, last] = keys(row);
    std::int64_t count = 1;
    while (count < kMostRows && row + count < rows && keys(row + count) == std::pair{first, last}) ++count;
    return {row, count, first, last};
  }

  // Where the pages of a chunk lie: in the cache, or for many tokens in a copy as floats.
  void find_pages(const Unit& unit, std::int64_t begin, float* copy, AttentionChunk& chunk,
                  std::array<const std::byte*, kChunk / kLanes>& k_pages,
                  std::array<const std::byte*, kChunk / kLanes>& v_pages) const {
    const std::int32_t* table =
        step_.page_table + (std::uint64_t{args_.group} * step_.sequences + unit.sequence) * step_.max_pages;
    const std::int64_t size = cache_.page_size();
    const std::int64_t from = std::max(begin, unit.first) / size, to = std::min(begin + kChunk - 1, unit.last) / size;
    const bool expand = cache_.type() != BP_TYPE_F32 && unit.tokens >= kExpandFrom;
    for (std::int64_t page = from; page <= to; ++page) {
      const auto i = static_cast<std::size_t>(page - begin / size);
      const std::byte* k = cache_.k_at(layer_, table[page], unit.kv_head);
      const std::byte* v = cache_.v_at(layer_, table[page], unit.kv_head);
      if (expand) {
        float* k_copy = copy + static_cast<std::int64_t>(i) * size * (plan_.dim + plan_.value_dim);
        float* v_copy = k_copy + size * plan_.dim;
        kernels_.load(cache_.type(), k, size * plan_.dim, k_copy);
        kernels_.load(cache_.type(), v, size * plan_.value_dim, v_copy);
        k = reinterpret_cast<const std::byte*>(k_copy);
        v = reinterpret_cast<const std::byte*>(v_copy);
      }
      k_pages[i] = k;
      v_pages[i] = v;
    }
    if (expand) chunk.type = BP_TYPE_F32;
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

// Sequences whose K and V lie in shuffled pages, and attention over them in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/unit/cpu/rig.h"

namespace backplane::cpu_test {

struct Geometry {
  std::int64_t heads = 4, kv_heads = 2, dim = 6, value_dim = 6, page_size = 4;
  bp_type kv_type = BP_TYPE_F32;
  std::uint32_t window = 0;
  double scale = 0.4, softcap = 0;
  bool sinks = false;
};

// One sequence: tokens [begin, end) are computed in this step, those before are in the cache already.
struct Sequence {
  int begin, end;
};

// K, V and Q are functions of sequence and position, so that every way to cut a batch sees the same numbers.
class Paged {
 public:
  Paged(Rig& rig, const Geometry& geometry, const std::vector<Sequence>& sequences, std::uint32_t decodes,
        const std::vector<int>& names = {})
      : rig_(rig), g(geometry), sequences_(sequences), names_(names) {
    if (names_.empty()) {
      names_.resize(sequences.size());
      std::iota(names_.begin(), names_.end(), 0);
    }
    make_step(decodes);
    make_tensors();
  }

  // KV_WRITE of the older tokens (as a step of their own), then of this step's.
  void write() {
    Paged* self = this;
    std::vector<std::int64_t> old_slots;
    Values k, v;
    for (std::size_t b = 0; b < sequences_.size(); ++b) {
      for (int p = 0; p < sequences_[b].begin; ++p) {
        if (!held(b, p)) continue;
        old_slots.push_back(self->slot_of(b, p));
        append(k, names_[b], p, 1, g.kv_heads * g.dim);
        append(v, names_[b], p, 2, g.kv_heads * g.value_dim);
      }
    }
    bp_step old = step;
    std::vector<std::int64_t> both(old_slots.size(), -1);  // group 0 gets nothing
    both.insert(both.end(), old_slots.begin(), old_slots.end());
    old.slot = both.data();
    old.tokens = static_cast<std::uint32_t>(old_slots.size());
    bp_kv_write_args args = write_args();
    args.step = &old;
    args.k = rig_.reals({old.tokens, g.kv_heads, g.dim}, k, 8);
    args.v = rig_.reals({old.tokens, g.kv_heads, g.value_dim}, v);
    ASSERT_EQ(rig_.run(BP_OP_KV_WRITE, args), BP_OK) << rig_.reason;
    ASSERT_EQ(rig_.run(BP_OP_KV_WRITE, write_args()), BP_OK) << rig_.reason;
  }

  bp_kv_write_args write_args() {
    bp_kv_write_args args{};
    args.step = &step;
    args.k = k_new;
    args.v = v_new;
    args.k_pages = k_pages;
    args.v_pages = v_pages;
    args.group = 1;
    return args;
  }

  bp_attention_args attention_args(std::uint32_t first, std::uint32_t last) {
    bp_attention_args args{};
    args.step = &step;
    args.q = q;
    args.out = out;
    args.sinks = sinks;
    args.k_pages = k_pages;
    args.v_pages = v_pages;
    args.group = 1;
    args.first_sequence = first;
    args.last_sequence = last;
    args.kv_heads = static_cast<std::uint32_t>(g.kv_heads);
    args.window = g.window;
    args.scale = g.scale;
    args.softcap = g.softcap;
    return args;
  }

  // The row of `out` for a token of a sequence: [Hq,Dv].
  Values expected(std::size_t b, int position) const {
    Values result;
    const Values query = numbers(names_[b], position, 0, g.heads * g.dim);
    for (std::int64_t h = 0; h < g.heads; ++h) {
      const std::int64_t kv = h / (g.heads / g.kv_heads);
      double sum = g.sinks ? std::exp(sink(h)) : 0;
      Values row(static_cast<std::size_t>(g.value_dim));
      for (int j = 0; j <= position; ++j) {
        if (g.window > 0 && j <= position - static_cast<int>(g.window)) continue;
        const Values k = numbers(names_[b], j, 1, g.kv_heads * g.dim);
        const Values v = numbers(names_[b], j, 2, g.kv_heads * g.value_dim);
        double score = 0;
        for (std::int64_t d = 0; d < g.dim; ++d) {
          score += query[static_cast<std::size_t>(h * g.dim + d)] * k[static_cast<std::size_t>(kv * g.dim + d)];
        }
        score *= g.scale;
        if (g.softcap > 0) score = g.softcap * std::tanh(score / g.softcap);
        sum += std::exp(score);
        for (std::size_t d = 0; d < row.size(); ++d) {
          row[d] += std::exp(score) * v[static_cast<std::size_t>(kv * g.value_dim) + d];
        }
      }
      for (const double value : row) result.push_back(value / sum);
    }
    return result;
  }

  // Whether a window still reaches that token, for some query of this step or later.
  bool held(std::size_t b, int position) const {
    return g.window == 0 || position > sequences_[b].begin - static_cast<int>(g.window);
  }
  std::int64_t slot_of(std::size_t b, int position) const {
    const auto m = static_cast<std::size_t>(position / g.page_size);
    return table[(sequences_.size() + b) * step.max_pages + m] * g.page_size + position % g.page_size;
  }

  // Numbers that BF16 holds exactly, so that every type of page gives them back.
  static Values numbers(int sequence, int position, int what, std::int64_t count) {
    std::mt19937 generator(static_cast<unsigned>(sequence * 1000003 + position * 17 + what));
    Values values(static_cast<std::size_t>(count));
    for (double& value : values) value = (static_cast<int>(generator() % 255) - 127) / 64.0;
    return values;
  }
  static double sink(std::int64_t head) { return 0.5 * static_cast<double>(head) - 0.75; }

 private:
  Rig& rig_;

 public:
  const Geometry g;
  bp_step step{};
  bp_tensor q{}, out{}, sinks{}, k_new{}, v_new{}, k_pages{}, v_pages{};
  std::vector<std::int32_t> pos, starts, lengths, table;
  std::vector<std::int64_t> slots;

 private:
  static void append(Values& to, int sequence, int position, int what, std::int64_t count) {
    const Values more = numbers(sequence, position, what, count);
    to.insert(to.end(), more.begin(), more.end());
  }

  // Pages in a shuffled order; of those that the window has passed, none. Group 0 has no pages at all.
  void make_step(std::uint32_t decodes) {
    const std::size_t count = sequences_.size();
    std::uint32_t most = 1, pages = 0;
    for (const Sequence& s : sequences_) {
      most = std::max(most, static_cast<std::uint32_t>((s.end + g.page_size - 1) / g.page_size));
      pages += static_cast<std::uint32_t>((s.end + g.page_size - 1) / g.page_size);
    }
    std::vector<std::int32_t> order(pages + 3);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(count));
    page_count_ = static_cast<std::int64_t>(order.size());
    table.assign(2 * count * most, -1);
    step.max_pages = most;
    std::size_t next = 0;
    starts = {0};
    for (std::size_t b = 0; b < count; ++b) {
      const Sequence& s = sequences_[b];
      for (int p = 0; p < s.end; ++p) {
        auto& page = table[(count + b) * most + static_cast<std::size_t>(p / g.page_size)];
        if (page < 0 && held(b, p)) page = order[next++];
      }
      for (int p = s.begin; p < s.end; ++p) pos.push_back(p);
      starts.push_back(static_cast<std::int32_t>(pos.size()));
      lengths.push_back(s.end);
      step.max_kv = std::max(step.max_kv, static_cast<std::uint32_t>(s.end));
      step.max_q = std::max(step.max_q, static_cast<std::uint32_t>(s.end - s.begin));
    }
    slots.assign(2 * pos.size(), -1);
    for (std::size_t b = 0, t = 0; b < count; ++b) {
      for (int p = sequences_[b].begin; p < sequences_[b].end; ++p, ++t) slots[pos.size() + t] = slot_of(b, p);
    }
    step.size = sizeof(step);
    step.tokens = static_cast<std::uint32_t>(pos.size());
    step.sequences = static_cast<std::uint32_t>(count);
    step.n_decode = decodes;
    step.groups = 2;
    step.page_size = static_cast<std::uint32_t>(g.page_size);
    step.pos = pos.data();
    step.q_start = starts.data();
    step.kv_len = lengths.data();
    step.page_table = table.data();
    step.slot = slots.data();
  }

  void make_tensors() {
    Values queries, keys, values, all_sinks;
    for (std::size_t b = 0; b < sequences_.size(); ++b) {
      for (int p = sequences_[b].begin; p < sequences_[b].end; ++p) {
        append(queries, names_[b], p, 0, g.heads * g.dim);
        append(keys, names_[b], p, 1, g.kv_heads * g.dim);
        append(values, names_[b], p, 2, g.kv_heads * g.value_dim);
      }
    }
    for (std::int64_t h = 0; h < g.heads; ++h) all_sinks.push_back(sink(h));
    const std::int64_t tokens = step.tokens;
    q = rig_.reals({tokens, g.heads, g.dim}, queries, 16);
    k_new = rig_.reals({tokens, g.kv_heads, g.dim}, keys);
    v_new = rig_.reals({tokens, g.kv_heads, g.value_dim}, values, 8);
    out = rig_.reals({tokens, g.heads, g.value_dim},
                     Values(static_cast<std::size_t>(tokens * g.heads * g.value_dim), 99));
    if (g.sinks) sinks = rig_.tensor(BP_TYPE_F32, {g.heads}, all_sinks);
    make_pages();
  }

  // One buffer, each page with its K and then its V, as the canonical cache has it.
  void make_pages() {
    const std::int64_t element = type_info(g.kv_type).block_bytes;
    const std::int64_t k_bytes = g.page_size * g.kv_heads * g.dim * element;
    const std::int64_t v_bytes = g.page_size * g.kv_heads * g.value_dim * element;
    k_pages = rig_.bytes(g.kv_type, {1, g.page_size, g.kv_heads, g.dim});
    v_pages = rig_.bytes(g.kv_type, {1, g.page_size, g.kv_heads, g.value_dim});
    const auto total = static_cast<std::uint64_t>(page_count_ * (k_bytes + v_bytes));
    k_pages.buffer = v_pages.buffer = rig_.alloc(total);
    k_pages.shape[0] = v_pages.shape[0] = page_count_;
    k_pages.stride[0] = v_pages.stride[0] = k_bytes + v_bytes;
    v_pages.offset = static_cast<std::uint64_t>(k_bytes);
    std::memset(rig_.address(k_pages), 0xff, total);  // NaN wherever nothing is written
  }

  std::vector<Sequence> sequences_;
  std::vector<int> names_;
  std::int64_t page_count_ = 0;
};

}  // namespace backplane::cpu_test

// Softmax attention over one chunk of keys, and how chunks are combined. Chunks begin at fixed positions and are
// combined in their order, so that a token's result doesn't depend on what it was computed beside, or by how many.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/onednn/attention_kernels.cc"
#include "hwy/foreach_target.h"  // keep before what follows

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/onednn/kernels.h"
#include "backends/onednn/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace backplane::onednn {
namespace HWY_NAMESPACE {
namespace {

constexpr int kRowsAtOnce = Widest::kCount == 16 ? 8 : 4;  // as many sums as there are registers for

struct F32Elements {
  static constexpr int kBytes = 4;
  static constexpr bool kScaled = false;
  template <class L>
  static HWY_INLINE typename L::V load(const std::byte* p) {
    return L::load(reinterpret_cast<const float*>(p));
  }
  static float one(const std::byte* p) {
    float value;
    std::memcpy(&value, p, sizeof(value));
    return value;
  }
};
struct F16Elements {
  static constexpr int kBytes = 2;
  static constexpr bool kScaled = false;
  template <class L>
  static HWY_INLINE typename L::V load(const std::byte* p) {
    return L::load_half(reinterpret_cast<const std::uint16_t*>(p));
  }
  static float one(const std::byte* p) {
    std::uint16_t value;
    std::memcpy(&value, p, sizeof(value));
    return plugin::half_to_float(value);
  }
};
struct BF16Elements {
  static constexpr int kBytes = 2;
  static constexpr bool kScaled = false;
  template <class L>
  static HWY_INLINE typename L::V load(const std::byte* p) {
    return L::load_bfloat(reinterpret_cast<const std::uint16_t*>(p));
  }
  static float one(const std::byte* p) {
    std::uint16_t value;
    std::memcpy(&value, p, sizeof(value));
    return plugin::bfloat_to_float(value);
  }
};

// Bytes, to be multiplied by their scales: products that a float holds exactly, so that it doesn't matter when.
struct Q8Elements {
  static constexpr int kBytes = 1;
  static constexpr bool kScaled = true;
  template <class L>
  static HWY_INLINE typename L::V load(const std::byte* p) {
    return L::load_i8(reinterpret_cast<const std::int8_t*>(p));
  }
};
template <class L>
HWY_INLINE typename L::V load_scales(const std::byte* p) {
  return L::load_half(reinterpret_cast<const std::uint16_t*>(p));
}

// Into the second-level cache: it may take a while until it is read.
HWY_INLINE void fetch(const std::byte* p) { __builtin_prefetch(p, 0, 2); }
HWY_INLINE void fetch(const std::byte* p, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 64) fetch(p + i);
}

// ---- Scores: lanes are keys

// A vector of keys: [D] rows in a page, their scales if there are, and what to fetch meanwhile.
struct Keys {
  const std::byte* k;
  const std::byte* scales;  // [D/32] rows
  const std::byte* fetch_k;
  const std::byte* fetch_v;
};

// kGroups vectors of keys, whose rows are `step` bytes apart; `row` is the first of kRows.
template <class T, class L, int kRows, int kGroups>
HWY_INLINE void score_groups(const AttentionChunk& c, int row, const Keys* keys, float* scores) {
  const std::int64_t step = c.page_size * T::kBytes;
  const std::int64_t fetch_k = L::kCount * T::kBytes, fetch_v = fetch_k * c.value_dim / c.dim;
  typename L::V sums[kRows][kGroups];
  for (auto& each : sums) {
    for (auto& sum : each) sum = L::set(0);
  }
  typename L::V scales[kGroups];
  for (auto& scale : scales) scale = L::set(1);
  for (std::int64_t d = 0; d < c.dim; ++d) {
    if constexpr (T::kScaled) {
      if (d % kBlock == 0) {
        for (int g = 0; g < kGroups; ++g) scales[g] = load_scales<L>(keys[g].scales + d / kBlock * c.page_size * 2);
      }
    }
    typename L::V loaded[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      loaded[g] = T::template load<L>(keys[g].k + d * step);
      if constexpr (T::kScaled) loaded[g] = mul(loaded[g], scales[g]);
      if (row == 0) {
        fetch(keys[g].fetch_k + d * fetch_k);
        fetch(keys[g].fetch_v + d * fetch_v);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const auto q = L::set(c.q[row + r][d]);
      for (int g = 0; g < kGroups; ++g) sums[r][g] = fma(loaded[g], q, sums[r][g]);
    }
  }
  const auto scale = L::set(c.scale);
  for (int r = 0; r < kRows; ++r) {
    for (int g = 0; g < kGroups; ++g) {
      auto score = mul(sums[r][g], scale);
      if (c.softcap > 0) score = mul(L::set(c.softcap), tanh(div(score, L::set(c.softcap))));
      L::store(score, scores + (row + r) * kChunk + g * L::kCount);
    }
  }
}

// Scores of the vectors of keys that hold keys first to last; scores[r][i] is that of key begin + i.
template <class T, class L, int kRows>
void all_scores(const AttentionChunk& c, int row, std::int64_t first, std::int64_t last) {
  constexpr int kAtOnce = kRows == 1 ? 4 : 2;
  const std::int64_t per_page = c.page_size / L::kCount, end = last / L::kCount + 1;
  const auto at = [&](std::int64_t group) {
    const std::int64_t page = group / per_page, next = std::min(group + 2 * kAtOnce, end - 1), in = group % per_page;
    // Whole pages are fetched, piece by piece in no matter which order.
    return Keys{c.k_pages[page] + in * L::kCount * T::kBytes,
                c.k_pages[page] + c.dim * c.page_size + in * L::kCount * 2,
                c.k_pages[next / per_page] + next % per_page * L::kCount * c.dim * T::kBytes,
                c.v_pages[page] + in * L::kCount * c.value_dim * T::kBytes};
  };
  std::int64_t g = first / L::kCount;
  for (; g + kAtOnce <= end; g += kAtOnce) {
    Keys keys[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) keys[i] = at(g + i);
    score_groups<T, L, kRows, kAtOnce>(c, row, keys, c.scores + g * L::kCount);
  }
  for (; g < end; ++g) {
    const Keys keys = at(g);
    score_groups<T, L, kRows, 1>(c, row, &keys, c.scores + g * L::kCount);
  }
}

// Turns a row's scores into weights: exp(score - maximum). Keys outside [first, last] weigh nothing.
template <class L>
void soften(const AttentionChunk& c, int row) {
  float* scores = c.scores + row * kChunk;
  const std::int64_t first = c.first[row] - c.begin, last = c.last[row] - c.begin;
  const std::int64_t from = first / L::kCount * L::kCount, to = last / L::kCount * L::kCount + L::kCount;
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  std::fill(scores + from, scores + first, kNever);
  std::fill(scores + last + 1, scores + to, kNever);
  F8 best = set(kNever);
  for (std::int64_t i = from; i < to; i += L::kCount) best = L::max_lanes(best, L::load(scores + i));
  const float maximum = max_lanes(best);
  // All of them minus infinity: they weigh nothing, and what follows must not compute infinity minus infinity.
  const auto shift = L::set(maximum == kNever ? 0 : maximum);
  F8 sum = set(0);
  for (std::int64_t i = from; i < to; i += L::kCount) {
    const auto weight = exp(sub(L::load(scores + i), shift));
    sum = L::add_lanes(sum, weight);
    L::store(weight, scores + i);
  }
  *c.maximum[row] = maximum;
  *c.total[row] = sum_lanes(sum);
}

// ---- Values: lanes are elements

// Keys first to last (of the chunk) for kRows rows, added to what is in `out`, elements from d on.
template <class T, class L, int kRows, int kVectors>
HWY_INLINE void weigh_values(const AttentionChunk& c, int row, std::int64_t first, std::int64_t last, std::int64_t d) {
  typename L::V sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int k = 0; k < kVectors; ++k) sums[r][k] = L::load(c.out[row + r] + d + k * L::kCount);
  }
  const std::int64_t row_bytes = c.value_dim * T::kBytes, next_bytes = c.dim * T::kBytes;
  for (std::int64_t i = first; i <= last;) {
    const std::int64_t page = i / c.page_size, stop = std::min(last + 1, (page + 1) * c.page_size);
    const std::byte* v = c.v_pages[page] + i % c.page_size * row_bytes + d * T::kBytes;
    const std::byte* next =
        row == 0 && d == 0 && page < c.next_pages ? c.next_k_pages[page] + i % c.page_size * next_bytes : nullptr;
    for (; i < stop; ++i, v += row_bytes) {
      if (next != nullptr) {
        fetch(next, next_bytes);
        next += next_bytes;
      }
      typename L::V values[kVectors];
      for (int k = 0; k < kVectors; ++k) {
        values[k] = T::template load<L>(v + k * L::kCount * T::kBytes);
        if constexpr (T::kScaled) {
          values[k] = mul(values[k], L::set(c.v_scales[(i * c.value_dim + d + k * L::kCount) / kBlock]));
        }
      }
      for (int r = 0; r < kRows; ++r) {
        const auto weight = L::set(c.scores[(row + r) * kChunk + i]);
        for (int k = 0; k < kVectors; ++k) sums[r][k] = fma(weight, values[k], sums[r][k]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int k = 0; k < kVectors; ++k) L::store(sums[r][k], c.out[row + r] + d + k * L::kCount);
  }
}

template <class T, class L, int kRows>
void add_values(const AttentionChunk& c, int row, std::int64_t first, std::int64_t last) {
  if (first > last) return;
  constexpr int kAtOnce = kRows == 1 ? 8 : kRows <= 4 ? 4 : 2;
  std::int64_t d = 0;
  for (; d + kAtOnce * L::kCount <= c.value_dim; d += kAtOnce * L::kCount)
    weigh_values<T, L, kRows, kAtOnce>(c, row, first, last, d);
  for (; d + 2 * L::kCount <= c.value_dim; d += 2 * L::kCount) weigh_values<T, L, kRows, 2>(c, row, first, last, d);
  for (; d + kLanes <= c.value_dim; d += kLanes) weigh_values<T, Eight, kRows, 1>(c, row, first, last, d);
  if constexpr (!T::kScaled) {  // others are whole blocks
    for (; d < c.value_dim; ++d) {
      for (int r = row; r < row + kRows; ++r) {
        for (std::int64_t i = first; i <= last; ++i) {
          const std::byte* v = c.v_pages[i / c.page_size];
          c.out[r][d] += c.scores[r * kChunk + i] * T::one(v + (i % c.page_size * c.value_dim + d) * T::kBytes);
        }
      }
    }
  }
}

// The scales of the values of keys first to last, or a few more, as floats.
template <class L>
void load_value_scales(const AttentionChunk& c, std::int64_t first, std::int64_t last) {
  const std::int64_t count = c.page_size * (c.value_dim / kBlock);
  for (std::int64_t page = first / c.page_size; page <= last / c.page_size; ++page) {
    const std::byte* from = c.v_pages[page] + c.page_size * c.value_dim;
    float* to = c.v_scales + page * count;
    for (std::int64_t i = 0; i < count; i += L::kCount) L::store(load_scales<L>(from + 2 * i), to + i);
  }
}

// Rows row to row + kRows. What only some of them look at is looked at for each by itself; either way a row's sums go
// from its first key to its last.
template <class T, class L, int kRows>
void attend_rows(const AttentionChunk& c, int row) {
  const auto [least, first] = std::minmax_element(c.first + row, c.first + row + kRows);
  const auto [last, most] = std::minmax_element(c.last + row, c.last + row + kRows);
  all_scores<T, L, kRows>(c, row, *least - c.begin, *most - c.begin);
  if constexpr (T::kScaled) load_value_scales<L>(c, *least - c.begin, *most - c.begin);
  for (int r = row; r < row + kRows; ++r) {
    soften<L>(c, r);
    std::fill_n(c.out[r], c.value_dim, 0.0F);
  }
  if (*first > *last) {
    for (int r = row; r < row + kRows; ++r) add_values<T, L, 1>(c, r, c.first[r] - c.begin, c.last[r] - c.begin);
    return;
  }
  for (int r = row; r < row + kRows; ++r) add_values<T, L, 1>(c, r, c.first[r] - c.begin, *first - c.begin - 1);
  add_values<T, L, kRows>(c, row, *first - c.begin, *last - c.begin);
  for (int r = row; r < row + kRows; ++r) add_values<T, L, 1>(c, r, *last - c.begin + 1, c.last[r] - c.begin);
}

template <class T, class L>
void attend_all(const AttentionChunk& c) {
  for (int row = 0; row < c.rows;) {
    const int left = c.rows - row;
    if constexpr (kRowsAtOnce == 8) {
      if (left == 8) {
        attend_rows<T, L, 8>(c, row);
        return;
      }
    }
    const int now = left == 5 || left == 6 ? 3 : std::min(left, 4);
    if (now == 1) attend_rows<T, L, 1>(c, row);
    if (now == 2) attend_rows<T, L, 2>(c, row);
    if (now == 3) attend_rows<T, L, 3>(c, row);
    if (now == 4) attend_rows<T, L, 4>(c, row);
    row += now;
  }
}

template <class T>
void attend(const AttentionChunk& c) {
  if (c.page_size % Widest::kCount == 0) {
    attend_all<T, Widest>(c);
  } else {
    attend_all<T, Eight>(c);
  }
}

void chunk(const AttentionChunk& c) {
  switch (c.type) {
    case BP_TYPE_F32:
      return attend<F32Elements>(c);
    case BP_TYPE_F16:
      return attend<F16Elements>(c);
    case BP_TYPE_Q8_0:
      return attend<Q8Elements>(c);
    default:
      return attend<BF16Elements>(c);
  }
}

void merge(float* maximum, float* total, float* out, float maximum2, float total2, const float* out2, std::int64_t n) {
  const float best = std::max(*maximum, maximum2);
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const float one = *maximum == kNever ? 0 : std::exp(*maximum - best);
  const float two = maximum2 == kNever ? 0 : std::exp(maximum2 - best);
  *total = *total * one + total2 * two;
  *maximum = best;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(fma(load(out2 + i), set(two), mul(load(out + i), set(one))), out + i);
  }
  for (; i < n; ++i) out[i] = out2[i] * two + out[i] * one;
}

template <class T>
void load_row(const std::byte* from, std::int64_t n, float* out) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(T::template load<Eight>(from + i * T::kBytes), out + i);
  for (; i < n; ++i) out[i] = T::one(from + i * T::kBytes);
}

// [rows][columns] bytes; a scale for each column and 32 rows if they are keys, or for each row and 32 columns.
void expand_bytes(bool keys, const std::byte* page, std::int64_t page_size, std::int64_t dim, float* out) {
  const std::byte* scales = page + page_size * dim;
  const std::int64_t rows = keys ? dim : page_size, columns = keys ? page_size : dim;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < columns; i += kLanes, page += kLanes, out += kLanes) {
      F8 scale;
      if (keys) {
        scale = load_scales<Eight>(scales + 2 * (r / kBlock * page_size + i));
      } else {
        std::uint16_t half;
        std::memcpy(&half, scales + 2 * (r * (dim / kBlock) + i / kBlock), sizeof(half));
        scale = set(plugin::half_to_float(half));
      }
      store(mul(Q8Elements::load<Eight>(page), scale), out);
    }
  }
}

void expand(bp_type type, bool keys, const std::byte* page, std::int64_t page_size, std::int64_t dim, float* out) {
  switch (type) {
    case BP_TYPE_F32:
      return load_row<F32Elements>(page, page_size * dim, out);
    case BP_TYPE_F16:
      return load_row<F16Elements>(page, page_size * dim, out);
    case BP_TYPE_Q8_0:
      return expand_bytes(keys, page, page_size, dim, out);
    default:
      return load_row<BF16Elements>(page, page_size * dim, out);
  }
}

[[maybe_unused]] const bool kAdded = [] {
  kernels_for(HWY_TARGET).attention = {chunk, merge, expand};
  return true;
}();

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace backplane::onednn
HWY_AFTER_NAMESPACE();

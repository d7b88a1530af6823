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
#include "backends/onednn/vec8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace backplane::onednn {
namespace HWY_NAMESPACE {
namespace {

struct F32Elements {
  static constexpr int kBytes = 4;
  static HWY_INLINE F8 load8(const std::byte* p) { return load(reinterpret_cast<const float*>(p)); }
  static float one(const std::byte* p) {
    float value;
    std::memcpy(&value, p, sizeof(value));
    return value;
  }
};
struct F16Elements {
  static constexpr int kBytes = 2;
  static HWY_INLINE F8 load8(const std::byte* p) { return load_half(reinterpret_cast<const std::uint16_t*>(p)); }
  static float one(const std::byte* p) {
    std::uint16_t value;
    std::memcpy(&value, p, sizeof(value));
    return plugin::half_to_float(value);
  }
};
struct BF16Elements {
  static constexpr int kBytes = 2;
  static HWY_INLINE F8 load8(const std::byte* p) { return load_bfloat(reinterpret_cast<const std::uint16_t*>(p)); }
  static float one(const std::byte* p) {
    std::uint16_t value;
    std::memcpy(&value, p, sizeof(value));
    return plugin::bfloat_to_float(value);
  }
};

// ---- Scores: lanes are keys

// kGroups groups of eight keys at k[g], [D] rows that are `step` bytes apart.
template <class T, int kRows, int kGroups>
HWY_INLINE void score_groups(const AttentionChunk& c, const std::byte* const* k, std::int64_t step, float* scores) {
  F8 sums[kRows][kGroups];
  for (auto& row : sums) {
    for (F8& sum : row) sum = set(0);
  }
  for (std::int64_t d = 0; d < c.dim; ++d) {
    F8 keys[kGroups];
    for (int g = 0; g < kGroups; ++g) keys[g] = T::load8(k[g] + d * step);
    for (int r = 0; r < kRows; ++r) {
      const F8 q = set(c.q[r][d]);
      for (int g = 0; g < kGroups; ++g) sums[r][g] = fma(keys[g], q, sums[r][g]);
    }
  }
  const F8 scale = set(c.scale);
  for (int r = 0; r < kRows; ++r) {
    for (int g = 0; g < kGroups; ++g) {
      F8 score = mul(sums[r][g], scale);
      if (c.softcap > 0) score = mul(set(c.softcap), tanh(div(score, set(c.softcap))));
      store(score, scores + r * kChunk + g * kLanes);
    }
  }
}

// Scores of the groups of eight keys that hold keys first to last; scores[r][i] is that of key begin + i.
template <class T, int kRows>
void all_scores(const AttentionChunk& c) {
  constexpr int kAtOnce = kRows == 1 ? 4 : 2;
  const std::int64_t step = c.page_size * T::kBytes;
  const std::int64_t groups_of_page = c.page_size / kLanes;
  const std::int64_t end = (c.last - c.begin) / kLanes + 1;
  const auto at = [&](std::int64_t group) {
    return c.k_pages[group / groups_of_page] + group % groups_of_page * kLanes * T::kBytes;
  };
  std::int64_t g = (c.first - c.begin) / kLanes;
  for (; g + kAtOnce <= end; g += kAtOnce) {
    const std::byte* k[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) k[i] = at(g + i);
    score_groups<T, kRows, kAtOnce>(c, k, step, c.scores + g * kLanes);
  }
  for (; g < end; ++g) {
    const std::byte* k[1] = {at(g)};
    score_groups<T, kRows, 1>(c, k, step, c.scores + g * kLanes);
  }
}

// Turns a row's scores into weights: exp(score - maximum). Keys outside [first, last] weigh nothing.
void soften(const AttentionChunk& c, int row) {
  float* scores = c.scores + row * kChunk;
  const std::int64_t first = c.first - c.begin, last = c.last - c.begin;
  const std::int64_t from = first / kLanes * kLanes, to = last / kLanes * kLanes + kLanes;
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  std::fill(scores + from, scores + first, kNever);
  std::fill(scores + last + 1, scores + to, kNever);
  F8 best = set(kNever);
  for (std::int64_t i = from; i < to; i += kLanes) best = max(best, load(scores + i));
  const float maximum = max_lanes(best);
  // All of them minus infinity: they weigh nothing, and what follows must not compute infinity minus infinity.
  const F8 shift = set(maximum == kNever ? 0 : maximum);
  F8 sum = set(0);
  for (std::int64_t i = from; i < to; i += kLanes) {
    const F8 weight = exp(sub(load(scores + i), shift));
    sum = add(sum, weight);
    store(weight, scores + i);
  }
  *c.maximum[row] = maximum;
  *c.total[row] = sum_lanes(sum);
}

// ---- Values: lanes are elements

template <class T, int kRows, int kVectors>
HWY_INLINE void weigh_values(const AttentionChunk& c, std::int64_t d) {
  F8 sums[kRows][kVectors];
  for (auto& row : sums) {
    for (F8& sum : row) sum = set(0);
  }
  const std::int64_t row_bytes = c.value_dim * T::kBytes;
  std::int64_t i = c.first - c.begin;
  const std::int64_t end = c.last - c.begin + 1;
  while (i < end) {
    const std::int64_t page = i / c.page_size, stop = std::min(end, (page + 1) * c.page_size);
    const std::byte* v = c.v_pages[page] + i % c.page_size * row_bytes + d * T::kBytes;
    for (; i < stop; ++i, v += row_bytes) {
      F8 values[kVectors];
      for (int k = 0; k < kVectors; ++k) values[k] = T::load8(v + k * kLanes * T::kBytes);
      for (int r = 0; r < kRows; ++r) {
        const F8 weight = set(c.scores[r * kChunk + i]);
        for (int k = 0; k < kVectors; ++k) sums[r][k] = fma(weight, values[k], sums[r][k]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int k = 0; k < kVectors; ++k) store(sums[r][k], c.out[r] + d + k * kLanes);
  }
}

template <class T, int kRows>
void all_values(const AttentionChunk& c) {
  constexpr int kAtOnce = kRows == 1 ? 8 : 4;
  std::int64_t d = 0;
  for (; d + kAtOnce * kLanes <= c.value_dim; d += kAtOnce * kLanes) weigh_values<T, kRows, kAtOnce>(c, d);
  for (; d + kLanes <= c.value_dim; d += kLanes) weigh_values<T, kRows, 1>(c, d);
  for (; d < c.value_dim; ++d) {
    for (int r = 0; r < kRows; ++r) {
      float sum = 0;
      for (std::int64_t i = c.first - c.begin; i <= c.last - c.begin; ++i) {
        const std::byte* v = c.v_pages[i / c.page_size];
        sum += c.scores[r * kChunk + i] * T::one(v + (i % c.page_size * c.value_dim + d) * T::kBytes);
      }
      c.out[r][d] = sum;
    }
  }
}

template <class T, int kRows>
void attend_rows(const AttentionChunk& c) {
  all_scores<T, kRows>(c);
  for (int r = 0; r < kRows; ++r) soften(c, r);
  all_values<T, kRows>(c);
}

template <class T>
void attend(const AttentionChunk& c) {
  switch (c.rows) {
    case 1:
      return attend_rows<T, 1>(c);
    case 2:
      return attend_rows<T, 2>(c);
    case 3:
      return attend_rows<T, 3>(c);
    default:
      return attend_rows<T, 4>(c);
  }
}

void chunk(const AttentionChunk& c) {
  switch (c.type) {
    case BP_TYPE_F32:
      return attend<F32Elements>(c);
    case BP_TYPE_F16:
      return attend<F16Elements>(c);
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
  for (; i + kLanes <= n; i += kLanes) store(T::load8(from + i * T::kBytes), out + i);
  for (; i < n; ++i) out[i] = T::one(from + i * T::kBytes);
}

void load_elements(bp_type type, const std::byte* from, std::int64_t n, float* out) {
  switch (type) {
    case BP_TYPE_F32:
      return load_row<F32Elements>(from, n, out);
    case BP_TYPE_F16:
      return load_row<F16Elements>(from, n, out);
    default:
      return load_row<BF16Elements>(from, n, out);
  }
}

[[maybe_unused]] const bool kAdded = [] {
  kernels_for(HWY_TARGET).attention = {chunk, merge, load_elements};
  return true;
}();

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace backplane::onednn
HWY_AFTER_NAMESPACE();

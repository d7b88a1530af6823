// Products of panels of eight weight rows with rows of activations. Every result is one sum in one order, block after
// block, whatever else is computed beside it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/onednn/linear_kernels.cc"
#include "hwy/foreach_target.h"  // keep before what follows

#include <cmath>
#include <limits>
#include <type_traits>

#include "backends/onednn/formats-inl.h"
#include "backends/onednn/kernels.h"
#include "backends/onednn/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace backplane::onednn {
namespace HWY_NAMESPACE {
namespace {

// ---- Activations to bytes

void quantize(const Format& format, const float* x, const QuantizedRows& to, std::int64_t row) {
  const std::int64_t blocks = to.columns / kBlock;
  const std::int32_t center = format.offset == Offset::kNone ? kByteOffset : format.center;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const float* in = x + b * kBlock;
    const std::int64_t at = to.index(row, b);
    const F8 v[4] = {load(in), load(in + 8), load(in + 16), load(in + 24)};
    const float largest = max_lanes(max(max(abs(v[0]), abs(v[1])), max(abs(v[2]), abs(v[3]))));
    // x * 0 is 0 but for NaN and infinity, which maxima may lose.
    const F8 zero = set(0);
    const bool finite = all_zero(fma(v[0], zero, fma(v[1], zero, fma(v[2], zero, mul(v[3], zero)))));
    const float d = finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
    // Where 127 / largest would be too large, x is scaled up first.
    const bool small = largest < 0x1p-100f;
    const F8 lift = set(small ? 0x1p64f : 1);
    const F8 inverse = set(finite && largest > 0 ? 127 / (largest * (small ? 0x1p64f : 1)) : 0);
    I8 q[4];
    for (int i = 0; i < 4; ++i) {
      q[i] = round(finite ? mul(mul(v[i], lift), inverse) : zero);
      store_i8(q[i], to.q + at * kBlock + 8 * i);
    }
    const std::int32_t sums[2] = {sum_lanes(add(q[0], q[1])), sum_lanes(add(q[2], q[3]))};
    to.d[at] = d;
    if (format.offset == Offset::kMinimum) {
      to.sum[at] = d * static_cast<float>(sums[0] + sums[1]);
    } else if (format.scales == 1) {
      to.start[at] = -center * (sums[0] + sums[1]);
    } else {
      to.start[2 * at] = -center * sums[0];
      to.start[2 * at + 1] = -center * sums[1];
    }
  }
}

// ---- Quantized weights

// What a kernel must know of a format at compile time.
template <int kBitsOf, int kScalesOf, bool kMinimumOf>
struct Shape {
  static constexpr int kBits = kBitsOf, kScales = kScalesOf;
  static constexpr bool kMinimum = kMinimumOf;
};

// A format as it is stored.
template <bp_type kType, class ShapeOf, int kBlocksOf, int kSuperBytesOf, int kBlockBytesOf>
struct Stored : ShapeOf, Packed<kType> {
  using Form = ShapeOf;
  static constexpr int kBlocks = kBlocksOf, kSuperBytes = kSuperBytesOf, kBlockBytes = kBlockBytesOf;
};

// The same weights as bytes and float scales: unpacked once for many tokens.
template <class ShapeOf>
struct Expanded : ShapeOf {
  using Super = Nothing;
  static constexpr int kBlocks = 1, kSuperBytes = 0;
  static constexpr int kBlockBytes = 256 + 32 * (ShapeOf::kScales + ShapeOf::kMinimum);
  static HWY_INLINE void load_block(const std::uint8_t* p, const Super&, Block& b) {
    for (int j = 0; j < 8; ++j) b.w[j] = load_bytes(p + 32 * j);
    const auto* scales = reinterpret_cast<const float*>(p + 256);
    b.d = load(scales);
    if constexpr (ShapeOf::kScales == 2) b.d2 = load(scales + 8);
    if constexpr (ShapeOf::kMinimum) b.m = load(scales + 8);
  }
  static HWY_INLINE void store_block(const Block& b, std::uint8_t* p) {
    for (int j = 0; j < 8; ++j) store_bytes(b.w[j], p + 32 * j);
    auto* scales = reinterpret_cast<float*>(p + 256);
    store(b.d, scales);
    if constexpr (ShapeOf::kScales == 2) store(b.d2, scales + 8);
    if constexpr (ShapeOf::kMinimum) store(b.m, scales + 8);
  }
};

// How far ahead of the weights that are multiplied others are asked for. Memory delivers a stream at full speed only
// while enough of it is on the way, and what processors foresee by themselves ends with each page.
constexpr std::int64_t kAhead = 2048;

template <class Visit, class F>
HWY_INLINE void for_blocks(F, const std::uint8_t* p, std::int64_t blocks, Visit&& visit) {
  for (std::int64_t b = 0; b < blocks;) {
    const typename F::Super super(p);
    p += F::kSuperBytes;
    for (int i = 0; i < F::kBlocks; ++i, ++b, p += F::kBlockBytes) {
      for (int line = 0; line < F::kBlockBytes; line += 64) hwy::Prefetch(p + kAhead + line);
      Block block;
      F::load_block(p, super, block);
      visit(b, block);
    }
  }
}

// kTokens tokens from `first` on, of one group, with one panel.
template <class F, int kTokens>
void multiply_tokens(const std::uint8_t* panel, const QuantizedRows& x, std::int64_t first, float* tile) {
  F8 sums[kTokens];
  unrolled<kTokens>([&](auto t) HWY_ATTR { sums[t] = set(0); });
  BlockRows<F> rows(x, first);
  for_blocks(F{}, panel, x.columns / kBlock, [&](std::int64_t, const Block& w) HWY_ATTR {
    unrolled<kTokens>([&](auto t) HWY_ATTR {
      const std::int8_t* bytes = rows.q + t * kBlock;
      const F8 scale = set(rows.d[t]);
      if constexpr (F::kMinimum) {
        sums[t] = fma(to_float(dot<F::kBits, 8>(w.w, bytes, set_int(0))), mul(w.d, scale), sums[t]);
        sums[t] = fma(w.m, set(rows.sum[t]), sums[t]);
      } else if constexpr (F::kScales == 1) {
        sums[t] = fma(to_float(dot<F::kBits, 8>(w.w, bytes, set_int(rows.start[t]))), mul(w.d, scale), sums[t]);
      } else {
        const F8 one = to_float(dot<F::kBits, 4>(w.w, bytes, set_int(rows.start[2 * t])));
        const F8 two = to_float(dot<F::kBits, 4>(w.w + 4, bytes + 16, set_int(rows.start[2 * t + 1])));
        sums[t] = fma(one, mul(w.d, scale), sums[t]);
        sums[t] = fma(two, mul(w.d2, scale), sums[t]);
      }
    });
    rows.next();
  });
  unrolled<kTokens>([&](auto t) HWY_ATTR { store(sums[t], tile + (first + t) * kLanes); });
}

template <class F>
void multiply_rest(const std::uint8_t* panel, const QuantizedRows& x, std::int64_t first, std::int64_t count,
                   float* tile) {
  switch (count) {
    case 1:
      return multiply_tokens<F, 1>(panel, x, first, tile);
    case 2:
      return multiply_tokens<F, 2>(panel, x, first, tile);
    case 3:
      return multiply_tokens<F, 3>(panel, x, first, tile);
    case 4:
      return multiply_tokens<F, 4>(panel, x, first, tile);
    default:
      break;
  }
}

// One panel, any number of tokens.
template <class F>
void multiply_panel(const std::uint8_t* panel, const QuantizedRows& x, std::int64_t tokens, std::uint8_t* scratch,
                    float* tile) {
  constexpr int kFew = 4, kMany = 8;
  using Wide = Expanded<typename F::Form>;
  if (tokens <= kFew) return multiply_rest<F>(panel, x, 0, tokens, tile);
  for_blocks(F{}, panel, x.columns / kBlock, [&](std::int64_t b, const Block& block) HWY_ATTR {
    Wide::store_block(block, scratch + b * Wide::kBlockBytes);
  });
  std::int64_t t = 0;
  for (; t + kMany <= tokens; t += kMany) multiply_tokens<Wide, kMany>(scratch, x, t, tile);
  for (; t < tokens; t += kFew) multiply_rest<Wide>(scratch, x, t, std::min<std::int64_t>(kFew, tokens - t), tile);
}

#if HWY_TARGET == HWY_AVX3_DL

constexpr int kPairTokens = kGroup;  // that a pair of panels is multiplied with at once

// Calls visit(block number, PairBlock) for two panels as they are stored.
template <class F, class Visit>
HWY_INLINE void for_pair_blocks(const std::uint8_t* one, std::int64_t stride, std::int64_t blocks, Visit&& visit) {
  for (std::int64_t b = 0; b < blocks;) {
    const typename F::Super super_one(one), super_two(one + stride);
    one += F::kSuperBytes;
    for (int i = 0; i < F::kBlocks; ++i, ++b, one += F::kBlockBytes) {
      for (int line = 0; line < F::kBlockBytes; line += 64) {
        hwy::Prefetch(one + kAhead + line);
        hwy::Prefetch(one + stride + kAhead + line);
      }
      Block first, second;
      F::load_block(one, super_one, first);
      F::load_block(one + stride, super_two, second);
      PairBlock pair;
      join<typename F::Form>(first, second, pair);
      visit(b, pair);
    }
  }
}

// The first kTokens tokens, from a pair as it is stored. Where more tokens follow, it is unpacked into `scratch` for
// them, while memory delivers the next weights.
template <class F, int kTokens>
void multiply_stored_pair(const std::uint8_t* one, std::int64_t stride, const QuantizedRows& x, std::int64_t tokens,
                          std::uint8_t* scratch, float* tile) {
  using Wide = ExpandedPair<typename F::Form>;
  __m512 sums[kTokens];
  unrolled<kTokens>([&](auto t) HWY_ATTR { sums[t] = _mm512_setzero_ps(); });
  const bool more = tokens > kTokens;
  BlockRows<typename F::Form> rows(x, 0);
  for_pair_blocks<F>(one, stride, x.columns / kBlock, [&](std::int64_t b, const PairBlock& w) HWY_ATTR {
    if (more) Wide::store_block(w, scratch + b * Wide::kBytes);
    unrolled<kTokens>([&](auto t) HWY_ATTR { sums[t] = add_pair_block(w, rows, t, sums[t]); });
    rows.next();
  });
  unrolled<kTokens>([&](auto t) HWY_ATTR { store_pair(sums[t], tile + t * kLanes, tokens); });
}

template <class F, int kTokens>
void multiply_expanded_pair(const std::uint8_t* pair, const QuantizedRows& x, std::int64_t first, std::int64_t tokens,
                            float* tile) {
  using Wide = ExpandedPair<typename F::Form>;
  __m512 sums[kTokens];
  unrolled<kTokens>([&](auto t) HWY_ATTR { sums[t] = _mm512_setzero_ps(); });
  BlockRows<typename F::Form> rows(x, first);
  for (std::int64_t b = 0; b < x.columns / kBlock; ++b, pair += Wide::kBytes) {
    PairBlock w;
    Wide::load_block(pair, w);
    unrolled<kTokens>([&](auto t) HWY_ATTR { sums[t] = add_pair_block(w, rows, t, sums[t]); });
    rows.next();
  }
  unrolled<kTokens>([&](auto t) HWY_ATTR { store_pair(sums[t], tile + (first + t) * kLanes, tokens); });
}

// kCount tokens at most: calls f with their number as a constant.
template <int kCount, class Function>
HWY_INLINE void with_count(std::int64_t count, Function&& f) {
  if constexpr (kCount > 0) {
    if (count == kCount) return f(std::integral_constant<int, kCount>());
    with_count<kCount - 1>(count, f);
  }
}

// Panels at `one` and `one + stride`, from two tokens on.
template <class F>
void multiply_pair(const std::uint8_t* one, std::int64_t stride, const QuantizedRows& x, std::int64_t tokens,
                   std::uint8_t* scratch, float* tile) {
  for (std::int64_t t = 0; t < tokens; t += kPairTokens) {
    with_count<kPairTokens>(std::min<std::int64_t>(kPairTokens, tokens - t), [&](auto count) {
      if (t == 0) {
        multiply_stored_pair<F, count()>(one, stride, x, tokens, scratch, tile);
      } else {
        multiply_expanded_pair<F, count()>(scratch, x, t, tokens, tile);
      }
    });
  }
}

#endif

template <class F>
void multiply_format(const Panels& panels, const QuantizedRows& x, std::int64_t tokens, std::uint8_t* scratch,
                     float* tile) {
  std::int64_t i = 0;
#if HWY_TARGET == HWY_AVX3_DL
  for (; tokens > 1 && i + 2 <= panels.count; i += 2) {
    multiply_pair<F>(panels.data + i * panels.stride, panels.stride, x, tokens, scratch, tile + i * tokens * kLanes);
  }
#endif
  for (; i < panels.count; ++i) {
    multiply_panel<F>(panels.data + i * panels.stride, x, tokens, scratch, tile + i * tokens * kLanes);
  }
}

void multiply(const Format& format, const Panels& panels, const QuantizedRows& x, std::int64_t tokens,
              std::uint8_t* scratch, float* tile) {
  switch (format.type) {
    case BP_TYPE_Q4_0:
      return multiply_format<Stored<BP_TYPE_Q4_0, Shape<4, 1, false>, 1, 0, 144>>(panels, x, tokens, scratch, tile);
    case BP_TYPE_Q4_1:
      return multiply_format<Stored<BP_TYPE_Q4_1, Shape<4, 1, true>, 1, 0, 160>>(panels, x, tokens, scratch, tile);
    case BP_TYPE_Q5_0:
      return multiply_format<Stored<BP_TYPE_Q5_0, Shape<5, 1, false>, 1, 0, 176>>(panels, x, tokens, scratch, tile);
    case BP_TYPE_Q5_1:
      return multiply_format<Stored<BP_TYPE_Q5_1, Shape<5, 1, true>, 1, 0, 192>>(panels, x, tokens, scratch, tile);
    case BP_TYPE_Q8_0:
      return multiply_format<Stored<BP_TYPE_Q8_0, Shape<8, 1, false>, 1, 0, 272>>(panels, x, tokens, scratch, tile);
    case BP_TYPE_Q4_K:
      return multiply_format<Stored<BP_TYPE_Q4_K, Shape<4, 1, true>, 8, 32, 144>>(panels, x, tokens, scratch, tile);
    case BP_TYPE_Q5_K:
      return multiply_format<Stored<BP_TYPE_Q5_K, Shape<5, 1, true>, 8, 32, 176>>(panels, x, tokens, scratch, tile);
    default:  // Q6_K, the last that format_of knows
      return multiply_format<Stored<BP_TYPE_Q6_K, Shape<6, 2, false>, 8, 16, 208>>(panels, x, tokens, scratch, tile);
  }
}

[[maybe_unused]] const bool kAdded = [] {
  kernels_for(HWY_TARGET).linear = {quantize, multiply};
  return true;
}();

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace backplane::onednn
HWY_AFTER_NAMESPACE();

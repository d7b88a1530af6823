// Products of panels of eight weight rows with rows of activations. Every result is one sum in one order, block after
// block, whatever else is computed beside it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/onednn/linear_kernels.cc"
#include "hwy/foreach_target.h"  // keep before what follows

#include <cmath>
#include <limits>

#include "backends/onednn/formats-inl.h"
#include "backends/onednn/kernels.h"

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
      store_i8(q[i], to.q + row * to.columns + b * kBlock + 8 * i);
    }
    const std::int32_t sums[2] = {sum_lanes(add(q[0], q[1])), sum_lanes(add(q[2], q[3]))};
    to.d[row * blocks + b] = d;
    if (format.offset == Offset::kMinimum) {
      to.sum[row * blocks + b] = d * static_cast<float>(sums[0] + sums[1]);
    } else if (format.scales == 1) {
      to.start[row * blocks + b] = -center * (sums[0] + sums[1]);
    } else {
      to.start[2 * (row * blocks + b)] = -center * sums[0];
      to.start[2 * (row * blocks + b) + 1] = -center * sums[1];
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

// kTokens tokens from `first` on with one panel.
template <class F, int kTokens>
void multiply_tokens(const std::uint8_t* panel, const QuantizedRows& x, std::int64_t first, float* tile) {
  const std::int64_t blocks = x.columns / kBlock;
  F8 sums[kTokens];
  for (F8& sum : sums) sum = set(0);
  const std::int8_t* q = x.q + first * x.columns;
  const float* d = x.d + first * blocks;
  for_blocks(F{}, panel, blocks, [&](std::int64_t b, const Block& w) HWY_ATTR {
#pragma GCC unroll 8  // so that sums stay in registers
    for (int t = 0; t < kTokens; ++t) {
      const std::int8_t* bytes = q + t * x.columns + b * kBlock;
      const F8 scale = set(d[t * blocks + b]);
      if constexpr (F::kMinimum) {
        sums[t] = fma(to_float(dot<F::kBits, 8>(w.w, bytes, set_int(0))), mul(w.d, scale), sums[t]);
        sums[t] = fma(w.m, set(x.sum[(first + t) * blocks + b]), sums[t]);
      } else if constexpr (F::kScales == 1) {
        const I8 start = set_int(x.start[(first + t) * blocks + b]);
        sums[t] = fma(to_float(dot<F::kBits, 8>(w.w, bytes, start)), mul(w.d, scale), sums[t]);
      } else {
        const std::int32_t* start = x.start + 2 * ((first + t) * blocks + b);
        const F8 one = to_float(dot<F::kBits, 4>(w.w, bytes, set_int(start[0])));
        const F8 two = to_float(dot<F::kBits, 4>(w.w + 4, bytes + 16, set_int(start[1])));
        sums[t] = fma(one, mul(w.d, scale), sums[t]);
        sums[t] = fma(two, mul(w.d2, scale), sums[t]);
      }
    }
  });
  for (int t = 0; t < kTokens; ++t) store(sums[t], tile + (first + t) * kLanes);
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

template <class F>
void multiply_format(const Panels& panels, const QuantizedRows& x, std::int64_t tokens, std::uint8_t* scratch,
                     float* tile) {
  constexpr int kFew = 4, kMany = 8;
  using Wide = Expanded<typename F::Form>;
  for (std::int64_t i = 0; i < panels.count; ++i, tile += tokens * kLanes) {
    const std::uint8_t* panel = panels.data + i * panels.stride;
    if (tokens <= kFew) {
      multiply_rest<F>(panel, x, 0, tokens, tile);
      continue;
    }
    for_blocks(F{}, panel, x.columns / kBlock, [&](std::int64_t b, const Block& block) HWY_ATTR {
      Wide::store_block(block, scratch + b * Wide::kBlockBytes);
    });
    std::int64_t t = 0;
    for (; t + kMany <= tokens; t += kMany) multiply_tokens<Wide, kMany>(scratch, x, t, tile);
    for (; t < tokens; t += kFew) multiply_rest<Wide>(scratch, x, t, std::min<std::int64_t>(kFew, tokens - t), tile);
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

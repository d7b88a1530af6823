// Ops that go over one row of floats: norms, sums, activation functions, stores to narrower types.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/onednn/row_kernels.cc"
#include "hwy/foreach_target.h"  // keep before what follows

#include <cmath>
#include <cstring>
#include <numbers>

#include "backends/onednn/kernels.h"
#include "backends/onednn/vec8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace backplane::onednn {
namespace HWY_NAMESPACE {
namespace {

// The first `n` of eight floats, the others zero.
HWY_INLINE F8 load_some(const float* from, std::int64_t n) {
  alignas(32) float x[8] = {};
  for (std::int64_t i = 0; i < n; ++i) x[i] = from[i];
  return load(x);
}
HWY_INLINE void store_some(F8 v, std::int64_t n, float* to) {
  alignas(32) float x[8];
  store(v, x);
  for (std::int64_t i = 0; i < n; ++i) to[i] = x[i];
}

// out[i] = function(in[i]...) for n floats.
template <class Function, class... In>
HWY_INLINE void map(std::int64_t n, float* out, Function&& function, const In*... in) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(function(load(in + i)...), out + i);
  if (i < n) store_some(function(load_some(in + i, n - i)...), n - i, out + i);
}

// The sum of term(x[i]): four sums of vectors, then their lanes, then what fills no vector, in an order that depends on
// n alone.
template <class Term>
HWY_INLINE float sum_of(const float* x, std::int64_t n, Term&& term) {
  F8 sums[4] = {set(0), set(0), set(0), set(0)};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int k = 0; k < 4; ++k) sums[k] = add(sums[k], term(load(x + i + k * kLanes)));
  }
  for (int k = 0; i + kLanes <= n; i += kLanes, ++k) sums[k] = add(sums[k], term(load(x + i)));
  float total = sum_lanes(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
  for (; i < n; ++i) {
    alignas(32) float one[8];
    store(term(set(x[i])), one);
    total += one[0];
  }
  return total;
}

void norm(const float* x, const float* weight, const float* bias, std::int64_t n, bool layer, float eps,
          float unit_offset, float* out) {
  const auto count = static_cast<float>(n);
  const float mean = layer ? sum_of(x, n, [](F8 v) HWY_ATTR { return v; }) / count : 0;
  const F8 means = set(mean);
  const float squares = sum_of(x, n, [&](F8 v) HWY_ATTR {
    const F8 off = sub(v, means);
    return mul(off, off);
  });
  const F8 scale = set(1 / std::sqrt(squares / count + eps)), offset = set(unit_offset);
  const auto normal = [&](F8 v) HWY_ATTR { return mul(sub(v, means), scale); };
  if (weight == nullptr && bias == nullptr) return map(n, out, normal, x);
  const auto weighted = [&](F8 v, F8 w) HWY_ATTR { return mul(normal(v), add(offset, w)); };
  if (bias == nullptr) return map(n, out, weighted, x, weight);
  if (weight == nullptr)
    return map(
        n, out, [&](F8 v, F8 b) HWY_ATTR { return add(normal(v), b); }, x, bias);
  map(
      n, out, [&](F8 v, F8 w, F8 b) HWY_ATTR { return add(weighted(v, w), b); }, x, weight, bias);
}

void add_rows(const float* a, const float* b, float alpha, std::int64_t n, float* sum) {
  const F8 factor = set(alpha);
  map(
      n, sum, [&](F8 x, F8 y) HWY_ATTR { return fma(factor, y, x); }, a, b);
}

// ---- Activation functions

HWY_INLINE F8 gelu_erf(F8 x) {  // erf has no vector form in every version of Highway
  alignas(32) float v[8];
  store(x, v);
  for (float& each : v) each = each / 2 * (1 + std::erf(each / std::numbers::sqrt2_v<float>));
  return load(v);
}
HWY_INLINE F8 gelu_tanh(F8 x) {
  constexpr float kRoot = std::numbers::sqrt2_v<float> * std::numbers::inv_sqrtpi_v<float>;  // sqrt(2/pi)
  const F8 cube = mul(mul(x, x), x);
  return mul(mul(x, set(0.5f)), add(set(1), tanh(mul(set(kRoot), fma(set(0.044715f), cube, x)))));
}
HWY_INLINE F8 silu(F8 x) {
  // exp is made for arguments up to 104, where it is infinite long since, and the result a zero.
  return div(x, add(set(1), exp(min(sub(set(0), x), set(104)))));
}
HWY_INLINE F8 relu(F8 x) {  // NaN stays NaN
  alignas(32) float v[8];
  store(x, v);
  for (float& each : v) each = each < 0 ? 0 : each;
  return load(v);
}

template <class Use>
void with_activation(std::uint32_t kind, Use&& use) {
  switch (kind) {
    case BP_ACT_GELU_ERF:
      return use([](F8 x) HWY_ATTR { return gelu_erf(x); });
    case BP_ACT_GELU_TANH:
      return use([](F8 x) HWY_ATTR { return gelu_tanh(x); });
    case BP_ACT_SILU:
      return use([](F8 x) HWY_ATTR { return silu(x); });
    default:
      return use([](F8 x) HWY_ATTR { return relu(x); });
  }
}

void activate(std::uint32_t kind, const float* x, std::int64_t n, float* out) {
  with_activation(kind, [&](auto f) HWY_ATTR { map(n, out, f, x); });
}

void glu(std::uint32_t kind, const float* gate, const float* up, std::int64_t n, float* out) {
  with_activation(kind, [&](auto f) HWY_ATTR {
    map(
        n, out, [&](F8 g, F8 u) HWY_ATTR { return mul(f(g), u); }, gate, up);
  });
}

// ---- Stores

void store_row(bp_type type, const float* x, std::int64_t n, std::byte* out, std::int64_t step) {
  const auto put = [&](auto convert) {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto value = convert(x[i]);
      std::memcpy(out + i * step * static_cast<std::int64_t>(sizeof(value)), &value, sizeof(value));
    }
  };
  if (type == BP_TYPE_F32) return put([](float v) { return v; });
  if (type == BP_TYPE_BF16) return put([](float v) { return plugin::float_to_bfloat(v); });
#if BACKPLANE_WIDE
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const hn::Rebind<hwy::float16_t, TagF> d;
    alignas(16) hwy::float16_t halves[kLanes];
    hn::Store(hn::DemoteTo(d, load(x + i)), d, halves);
    if (step == 1) {
      std::memcpy(out + i * 2, halves, sizeof(halves));
      continue;
    }
    for (std::int64_t k = 0; k < kLanes; ++k) std::memcpy(out + (i + k) * step * 2, halves + k, 2);
  }
  x += i;
  n -= i;
  out += i * step * 2;
#endif
  put([](float v) { return plugin::float_to_half(v); });
}

void quantize_row(const float* x, std::int64_t n, const QuantizedRow& out) {
  for (std::int64_t b = 0; b < n / kBlock; ++b, x += kBlock) {
    F8 largest = set(0), off = set(0);
    for (std::int64_t i = 0; i < kBlock; i += kLanes) {
      const F8 v = load(x + i);
      largest = max(largest, abs(v));
      off = add(off, sub(v, v));  // NaN where v is no number
    }
    const bool finite = all_zero(off);
    const float d = max_lanes(largest) / 127;
    const std::uint16_t half = finite ? plugin::float_to_half(d) : std::uint16_t{0x7e00};
    std::memcpy(out.scales + 2 * b * out.scale_step, &half, sizeof(half));
    // What is too small for a scale is zero: one divided by it might be infinite.
    const bool zero = !finite || half == 0;
    const F8 inverse = set(zero ? 0 : 1 / d);
    std::int8_t q[kBlock] = {};
    for (std::int64_t i = 0; !zero && i < kBlock; i += kLanes) {
      store_i8(round(round_away(mul(load(x + i), inverse))), q + i);
    }
    for (std::int64_t i = 0; i < kBlock; ++i) out.q[(b * kBlock + i) * out.step] = static_cast<std::byte>(q[i]);
  }
}

[[maybe_unused]] const bool kAdded = [] {
  kernels_for(HWY_TARGET).rows = {norm, add_rows, activate, glu, store_row, quantize_row};
  return true;
}();

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace backplane::onednn
HWY_AFTER_NAMESPACE();

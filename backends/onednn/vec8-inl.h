// Eight lanes of float, int32 or 4-byte groups, on every target: one vector where it has 32 bytes, otherwise arrays.
// Included once for each target (Highway's foreach_target), hence the odd guard.
#if defined(BACKPLANE_ONEDNN_VEC8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_ONEDNN_VEC8_INL_H_
#undef BACKPLANE_ONEDNN_VEC8_INL_H_
#else
#define BACKPLANE_ONEDNN_VEC8_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "plugins/sdk/backplane_half.hpp"

#undef BACKPLANE_WIDE
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define BACKPLANE_WIDE 1
#else
#define BACKPLANE_WIDE 0
#endif

HWY_BEFORE_NAMESPACE();
namespace backplane::onednn {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if BACKPLANE_WIDE

using TagF = hn::FixedTag<float, 8>;
using F8 = hn::Vec<TagF>;
using I8 = hn::Vec<hn::FixedTag<std::int32_t, 8>>;
using U32 = hn::Vec<hn::FixedTag<std::uint8_t, 32>>;  // 8 rows x 4 bytes

HWY_INLINE F8 load(const float* from) { return hn::LoadU(TagF(), from); }
HWY_INLINE void store(F8 v, float* to) { hn::StoreU(v, TagF(), to); }
HWY_INLINE F8 set(float x) { return hn::Set(TagF(), x); }
HWY_INLINE F8 add(F8 a, F8 b) { return hn::Add(a, b); }
HWY_INLINE F8 sub(F8 a, F8 b) { return hn::Sub(a, b); }
HWY_INLINE F8 mul(F8 a, F8 b) { return hn::Mul(a, b); }
HWY_INLINE F8 div(F8 a, F8 b) { return hn::Div(a, b); }
HWY_INLINE F8 fma(F8 a, F8 b, F8 c) { return hn::MulAdd(a, b, c); }
HWY_INLINE F8 max(F8 a, F8 b) { return hn::Max(a, b); }
HWY_INLINE F8 min(F8 a, F8 b) { return hn::Min(a, b); }
HWY_INLINE F8 abs(F8 a) { return hn::Abs(a); }
// Highway's functions take NaN for a very small number; here it stays NaN.
HWY_INLINE F8 exp(F8 a) { return hn::IfThenElse(hn::IsNaN(a), a, hn::Exp(TagF(), a)); }
HWY_INLINE F8 tanh(F8 a) { return hn::IfThenElse(hn::IsNaN(a), a, hn::Tanh(TagF(), a)); }
HWY_INLINE F8 to_float(I8 a) { return hn::ConvertTo(TagF(), a); }
HWY_INLINE I8 set_int(std::int32_t x) { return hn::Set(hn::FixedTag<std::int32_t, 8>(), x); }
HWY_INLINE F8 load_half(const std::uint16_t* from) {
  return hn::PromoteTo(TagF(),
                       hn::LoadU(hn::Rebind<hwy::float16_t, TagF>(), reinterpret_cast<const hwy::float16_t*>(from)));
}
HWY_INLINE F8 load_bfloat(const std::uint16_t* from) {
  return hn::PromoteTo(TagF(),
                       hn::LoadU(hn::Rebind<hwy::bfloat16_t, TagF>(), reinterpret_cast<const hwy::bfloat16_t*>(from)));
}
// Eight bytes as floats.
HWY_INLINE F8 load_u8(const std::uint8_t* from) {
  const hn::FixedTag<std::int32_t, 8> d;
  return hn::ConvertTo(TagF(), hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::uint8_t, decltype(d)>(), from)));
}
HWY_INLINE F8 load_i8(const std::int8_t* from) {
  const hn::FixedTag<std::int32_t, 8> d;
  return hn::ConvertTo(TagF(), hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::int8_t, decltype(d)>(), from)));
}
// To nearest even.
HWY_INLINE I8 round(F8 v) { return hn::NearestInt(v); }
// To the nearest whole number, halves away from zero.
HWY_INLINE F8 round_away(F8 v) {
  const F8 whole = hn::Trunc(v);
  const auto half = hn::Ge(hn::Abs(hn::Sub(v, whole)), hn::Set(TagF(), 0.5F));
  return hn::Add(whole, hn::IfThenElseZero(half, hn::CopySign(hn::Set(TagF(), 1), v)));
}
HWY_INLINE I8 add(I8 a, I8 b) { return hn::Add(a, b); }
// Eight values in -128..127 as bytes.
HWY_INLINE void store_i8(I8 v, std::int8_t* to) {
  const hn::Rebind<std::int8_t, hn::FixedTag<std::int32_t, 8>> d8;
  hn::StoreU(hn::DemoteTo(d8, v), d8, to);
}
HWY_INLINE std::int32_t sum_lanes(I8 v) {
  const hn::FixedTag<std::int32_t, 8> d;
  return hn::GetLane(hn::SumOfLanes(d, v));
}
HWY_INLINE float max_lanes(F8 v) { return hn::GetLane(hn::MaxOfLanes(TagF(), v)); }
// False where a lane is NaN.
HWY_INLINE bool all_zero(F8 v) { return hn::AllTrue(TagF(), hn::Eq(v, hn::Zero(TagF()))); }

HWY_INLINE U32 load_bytes(const std::uint8_t* from) { return hn::LoadU(hn::FixedTag<std::uint8_t, 32>(), from); }
HWY_INLINE void store_bytes(U32 v, std::uint8_t* to) { hn::StoreU(v, hn::FixedTag<std::uint8_t, 32>(), to); }
HWY_INLINE U32 set_bytes(std::uint8_t x) { return hn::Set(hn::FixedTag<std::uint8_t, 32>(), x); }
HWY_INLINE U32 and_bytes(U32 a, U32 b) { return hn::And(a, b); }
HWY_INLINE U32 or_bytes(U32 a, U32 b) { return hn::Or(a, b); }
HWY_INLINE U32 xor_bytes(U32 a, U32 b) { return hn::Xor(a, b); }
// Shifts of 16-bit pieces: mask off what came over from the neighbor.
template <int kBits>
HWY_INLINE U32 shift_right(U32 a) {
  const hn::FixedTag<std::uint16_t, 16> d;
  return hn::BitCast(hn::FixedTag<std::uint8_t, 32>(), hn::ShiftRight<kBits>(hn::BitCast(d, a)));
}
template <int kBits>
HWY_INLINE U32 shift_left(U32 a) {
  const hn::FixedTag<std::uint16_t, 16> d;
  return hn::BitCast(hn::FixedTag<std::uint8_t, 32>(), hn::ShiftLeft<kBits>(hn::BitCast(d, a)));
}

#else  // eight of each, in loops that a compiler can make vectors of

template <class T, int kCount>
struct Lanes {
  T x[kCount];
};
using F8 = Lanes<float, 8>;
using I8 = Lanes<std::int32_t, 8>;
using U32 = Lanes<std::uint8_t, 32>;

template <class To, class Function>
HWY_INLINE To each(Function&& function) {
  To out;
  for (std::size_t i = 0; i < sizeof(out.x) / sizeof(out.x[0]); ++i) out.x[i] = function(i);
  return out;
}

HWY_INLINE F8 load(const float* from) {
  return each<F8>([&](auto i) { return from[i]; });
}
HWY_INLINE void store(const F8& v, float* to) {
  for (int i = 0; i < 8; ++i) to[i] = v.x[i];
}
HWY_INLINE F8 set(float x) {
  return each<F8>([&](auto) { return x; });
}
HWY_INLINE F8 add(const F8& a, const F8& b) {
  return each<F8>([&](auto i) { return a.x[i] + b.x[i]; });
}
HWY_INLINE F8 sub(const F8& a, const F8& b) {
  return each<F8>([&](auto i) { return a.x[i] - b.x[i]; });
}
HWY_INLINE F8 mul(const F8& a, const F8& b) {
  return each<F8>([&](auto i) { return a.x[i] * b.x[i]; });
}
HWY_INLINE F8 div(const F8& a, const F8& b) {
  return each<F8>([&](auto i) { return a.x[i] / b.x[i]; });
}
HWY_INLINE F8 fma(const F8& a, const F8& b, const F8& c) {
  return each<F8>([&](auto i) { return a.x[i] * b.x[i] + c.x[i]; });
}
HWY_INLINE F8 max(const F8& a, const F8& b) {
  return each<F8>([&](auto i) { return a.x[i] > b.x[i] ? a.x[i] : b.x[i]; });
}
HWY_INLINE F8 min(const F8& a, const F8& b) {
  return each<F8>([&](auto i) { return a.x[i] < b.x[i] ? a.x[i] : b.x[i]; });
}
HWY_INLINE F8 abs(const F8& a) {
  return each<F8>([&](auto i) { return std::fabs(a.x[i]); });
}
HWY_INLINE F8 exp(const F8& a) {
  return each<F8>([&](auto i) { return std::exp(a.x[i]); });
}
HWY_INLINE F8 tanh(const F8& a) {
  return each<F8>([&](auto i) { return std::tanh(a.x[i]); });
}
HWY_INLINE F8 to_float(const I8& a) {
  return each<F8>([&](auto i) { return static_cast<float>(a.x[i]); });
}
HWY_INLINE I8 set_int(std::int32_t x) {
  return each<I8>([&](auto) { return x; });
}
HWY_INLINE F8 load_half(const std::uint16_t* from) {
  return each<F8>([&](auto i) { return plugin::half_to_float(from[i]); });
}
HWY_INLINE F8 load_bfloat(const std::uint16_t* from) {
  return each<F8>([&](auto i) { return plugin::bfloat_to_float(from[i]); });
}
HWY_INLINE F8 load_u8(const std::uint8_t* from) {
  return each<F8>([&](auto i) { return static_cast<float>(from[i]); });
}
HWY_INLINE F8 load_i8(const std::int8_t* from) {
  return each<F8>([&](auto i) { return static_cast<float>(from[i]); });
}
HWY_INLINE I8 round(const F8& v) {
  return each<I8>([&](auto i) { return static_cast<std::int32_t>(std::nearbyint(v.x[i])); });
}
HWY_INLINE F8 round_away(const F8& v) {
  return each<F8>([&](auto i) { return std::round(v.x[i]); });
}
HWY_INLINE I8 add(const I8& a, const I8& b) {
  return each<I8>([&](auto i) { return a.x[i] + b.x[i]; });
}
HWY_INLINE void store_i8(const I8& v, std::int8_t* to) {
  for (int i = 0; i < 8; ++i) to[i] = static_cast<std::int8_t>(v.x[i]);
}
HWY_INLINE std::int32_t sum_lanes(const I8& v) {
  std::int32_t sum = 0;
  for (const std::int32_t x : v.x) sum += x;
  return sum;
}
HWY_INLINE float max_lanes(const F8& v) {
  float best = v.x[0];
  for (const float x : v.x) best = x > best ? x : best;
  return best;
}
HWY_INLINE bool all_zero(const F8& v) {
  bool zero = true;
  for (const float x : v.x) zero &= x == 0;
  return zero;
}

HWY_INLINE U32 load_bytes(const std::uint8_t* from) {
  return each<U32>([&](auto i) { return from[i]; });
}
HWY_INLINE void store_bytes(const U32& v, std::uint8_t* to) {
  for (int i = 0; i < 32; ++i) to[i] = v.x[i];
}
HWY_INLINE U32 set_bytes(std::uint8_t x) {
  return each<U32>([&](auto) { return x; });
}
HWY_INLINE U32 and_bytes(const U32& a, const U32& b) {
  return each<U32>([&](auto i) { return static_cast<std::uint8_t>(a.x[i] & b.x[i]); });
}
HWY_INLINE U32 or_bytes(const U32& a, const U32& b) {
  return each<U32>([&](auto i) { return static_cast<std::uint8_t>(a.x[i] | b.x[i]); });
}
HWY_INLINE U32 xor_bytes(const U32& a, const U32& b) {
  return each<U32>([&](auto i) { return static_cast<std::uint8_t>(a.x[i] ^ b.x[i]); });
}
template <int kBits>
HWY_INLINE U32 shift_right(const U32& a) {
  return each<U32>([&](auto i) { return static_cast<std::uint8_t>(a.x[i] >> kBits); });
}
template <int kBits>
HWY_INLINE U32 shift_left(const U32& a) {
  return each<U32>([&](auto i) { return static_cast<std::uint8_t>(a.x[i] << kBits); });
}

#endif

// The lanes added in a fixed tree: 0+4, 1+5, 2+6, 3+7, then 0+2, 1+3, then 0+1.
HWY_INLINE float sum_lanes(F8 v) {
  alignas(32) float x[8];
  store(v, x);
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

}  // namespace HWY_NAMESPACE
}  // namespace backplane::onednn
HWY_AFTER_NAMESPACE();

#endif  // guard

// Vectors of floats of two widths behind one face, for loops whose result doesn't depend on the width. Included once
// for each target, hence the odd guard.
#if defined(BACKPLANE_ONEDNN_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_ONEDNN_LANES_INL_H_
#undef BACKPLANE_ONEDNN_LANES_INL_H_
#else
#define BACKPLANE_ONEDNN_LANES_INL_H_
#endif

#include <cstdint>

#include "backends/onednn/vec8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace backplane::onednn {
namespace HWY_NAMESPACE {

// Vectors of floats: eight lanes on every processor, sixteen where it has them.
struct Eight {
  static constexpr std::int64_t kCount = 8;
  using V = F8;
  static HWY_INLINE V set(float x) { return HWY_NAMESPACE::set(x); }
  static HWY_INLINE V load(const float* p) { return HWY_NAMESPACE::load(p); }
  static HWY_INLINE V load_half(const std::uint16_t* p) { return HWY_NAMESPACE::load_half(p); }
  static HWY_INLINE V load_bfloat(const std::uint16_t* p) { return HWY_NAMESPACE::load_bfloat(p); }
  static HWY_INLINE V load_i8(const std::int8_t* p) { return HWY_NAMESPACE::load_i8(p); }
  static HWY_INLINE void store(V v, float* p) { HWY_NAMESPACE::store(v, p); }
  static HWY_INLINE F8 add_lanes(F8 sum, V v) { return add(sum, v); }
  static HWY_INLINE F8 max_lanes(F8 best, V v) { return max(best, v); }
};

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
struct Sixteen {
  static constexpr std::int64_t kCount = 16;
  using Tag = hn::FixedTag<float, 16>;
  using V = hn::Vec<Tag>;
  static HWY_INLINE V set(float x) { return hn::Set(Tag(), x); }
  static HWY_INLINE V load(const float* p) { return hn::LoadU(Tag(), p); }
  static HWY_INLINE V load_half(const std::uint16_t* p) {
    return hn::PromoteTo(Tag(),
                         hn::LoadU(hn::Rebind<hwy::float16_t, Tag>(), reinterpret_cast<const hwy::float16_t*>(p)));
  }
  static HWY_INLINE V load_bfloat(const std::uint16_t* p) {
    return hn::PromoteTo(Tag(),
                         hn::LoadU(hn::Rebind<hwy::bfloat16_t, Tag>(), reinterpret_cast<const hwy::bfloat16_t*>(p)));
  }
  static HWY_INLINE V load_i8(const std::int8_t* p) {
    const hn::Rebind<std::int32_t, Tag> d;
    return hn::ConvertTo(Tag(), hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::int8_t, Tag>(), p)));
  }
  static HWY_INLINE void store(V v, float* p) { hn::StoreU(v, Tag(), p); }
  // The same order as two vectors of eight, so that lanes aren't seen in the bits.
  static HWY_INLINE F8 add_lanes(F8 sum, V v) {
    return hn::Add(hn::Add(sum, hn::LowerHalf(TagF(), v)), hn::UpperHalf(TagF(), v));
  }
  static HWY_INLINE F8 max_lanes(F8 best, V v) {
    return hn::Max(hn::Max(best, hn::LowerHalf(TagF(), v)), hn::UpperHalf(TagF(), v));
  }
};
HWY_INLINE Sixteen::V sub(Sixteen::V a, Sixteen::V b) { return hn::Sub(a, b); }
HWY_INLINE Sixteen::V mul(Sixteen::V a, Sixteen::V b) { return hn::Mul(a, b); }
HWY_INLINE Sixteen::V div(Sixteen::V a, Sixteen::V b) { return hn::Div(a, b); }
HWY_INLINE Sixteen::V fma(Sixteen::V a, Sixteen::V b, Sixteen::V c) { return hn::MulAdd(a, b, c); }
HWY_INLINE Sixteen::V exp(Sixteen::V a) { return hn::IfThenElse(hn::IsNaN(a), a, hn::Exp(Sixteen::Tag(), a)); }
HWY_INLINE Sixteen::V tanh(Sixteen::V a) { return hn::IfThenElse(hn::IsNaN(a), a, hn::Tanh(Sixteen::Tag(), a)); }
using Widest = Sixteen;
#else
using Widest = Eight;
#endif

}  // namespace HWY_NAMESPACE
}  // namespace backplane::onednn
HWY_AFTER_NAMESPACE();

#endif  // guard

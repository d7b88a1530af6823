// Two panels side by side in vectors of 512 bits, where a processor has VNNI for them. Each lane computes what it does
// for one panel (formats-inl.h), so that results are the same, with half as many loads of activations.
#if defined(BACKPLANE_ONEDNN_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_ONEDNN_PAIRS_INL_H_
#undef BACKPLANE_ONEDNN_PAIRS_INL_H_
#else
#define BACKPLANE_ONEDNN_PAIRS_INL_H_
#endif

#include "backends/onednn/formats-inl.h"
#include "backends/onednn/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace backplane::onednn {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL

// A Block of 16 rows: the first panel's in the lower half.
struct PairBlock {
  __m512i w[8];
  __m512 d, d2, m;
};

HWY_INLINE __m512i join(U32 a, U32 b) { return _mm512_inserti64x4(_mm512_castsi256_si512(a.raw), b.raw, 1); }
HWY_INLINE __m512 join(F8 a, F8 b) { return _mm512_insertf32x8(_mm512_castps256_ps512(a.raw), b.raw, 1); }

template <class Form>
HWY_INLINE void join(const Block& a, const Block& b, PairBlock& pair) {
  for (int j = 0; j < 8; ++j) pair.w[j] = join(a.w[j], b.w[j]);
  pair.d = join(a.d, b.d);
  if constexpr (Form::kScales == 2) pair.d2 = join(a.d2, b.d2);
  if constexpr (Form::kMinimum) pair.m = join(a.m, b.m);
}

// A pair unpacked once for many tokens: bytes, then scales as floats.
template <class Form>
struct ExpandedPair {
  static constexpr std::int64_t kBytes = 512 + 64 * (Form::kScales + Form::kMinimum);
  static HWY_INLINE void load_block(const std::uint8_t* p, PairBlock& b) {
    for (int j = 0; j < 8; ++j) b.w[j] = _mm512_load_si512(p + 64 * j);
    const auto* scales = reinterpret_cast<const float*>(p + 512);
    b.d = _mm512_load_ps(scales);
    if constexpr (Form::kScales == 2) b.d2 = _mm512_load_ps(scales + 16);
    if constexpr (Form::kMinimum) b.m = _mm512_load_ps(scales + 16);
  }
  static HWY_INLINE void store_block(const PairBlock& b, std::uint8_t* p) {
    for (int j = 0; j < 8; ++j) _mm512_store_si512(p + 64 * j, b.w[j]);
    auto* scales = reinterpret_cast<float*>(p + 512);
    _mm512_store_ps(scales, b.d);
    if constexpr (Form::kScales == 2) _mm512_store_ps(scales + 16, b.d2);
    if constexpr (Form::kMinimum) _mm512_store_ps(scales + 16, b.m);
  }
};

// As dot() of one panel: the assembly has the reason that is given there.
template <int kVectors>
HWY_INLINE __m512 dot_pair(const __m512i* w, const std::int8_t* x, std::int32_t start) {
  __m512i sum = _mm512_set1_epi32(start), other = _mm512_setzero_si512();
  const auto step = [&](__m512i& to, int j) HWY_ATTR {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(to) : "v"(w[j]), "m"(*reinterpret_cast<const FourBytes*>(x + 4 * j)));
  };
#pragma GCC unroll 4
  for (int j = 0; j < kVectors / 2; ++j) {
    step(sum, j);
    step(other, j + kVectors / 2);
  }
  return _mm512_cvtepi32_ps(_mm512_add_epi32(sum, other));
}

// sum + the products of one block with token t of the group.
template <class Form>
HWY_INLINE __m512 add_pair_block(const PairBlock& w, const BlockRows<Form>& rows, int t, __m512 sum) {
  const std::int8_t* bytes = rows.q + t * kBlock;
  const __m512 scale = _mm512_set1_ps(rows.d[t]);
  if constexpr (Form::kMinimum) {
    sum = _mm512_fmadd_ps(dot_pair<8>(w.w, bytes, 0), _mm512_mul_ps(w.d, scale), sum);
    return _mm512_fmadd_ps(w.m, _mm512_set1_ps(rows.sum[t]), sum);
  } else if constexpr (Form::kScales == 1) {
    return _mm512_fmadd_ps(dot_pair<8>(w.w, bytes, rows.start[t]), _mm512_mul_ps(w.d, scale), sum);
  } else {
    const __m512 one = dot_pair<4>(w.w, bytes, rows.start[2 * t]);
    const __m512 two = dot_pair<4>(w.w + 4, bytes + 16, rows.start[2 * t + 1]);
    sum = _mm512_fmadd_ps(one, _mm512_mul_ps(w.d, scale), sum);
    return _mm512_fmadd_ps(two, _mm512_mul_ps(w.d2, scale), sum);
  }
}

// A token's sums to the tiles of the pair's two panels, of `tokens` tokens each.
HWY_INLINE void store_pair(__m512 sum, float* tile, std::int64_t tokens) {
  _mm256_storeu_ps(tile, _mm512_castps512_ps256(sum));
  _mm256_storeu_ps(tile + tokens * kLanes, _mm512_extractf32x8_ps(sum, 1));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace backplane::onednn
HWY_AFTER_NAMESPACE();

#endif  // guard

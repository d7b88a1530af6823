// Dot products of bytes: eight rows of weights with the activations of one token, 32 columns at a time.
#if defined(BACKPLANE_ONEDNN_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_ONEDNN_DOT_INL_H_
#undef BACKPLANE_ONEDNN_DOT_INL_H_
#else
#define BACKPLANE_ONEDNN_DOT_INL_H_
#endif

#include <cstring>

#include "backends/onednn/vec8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace backplane::onednn {
namespace HWY_NAMESPACE {

// What weights of 8 bits have added, so that they are unsigned where the multiplication wants them so. It is taken off
// again by starting the integer sum at -kByteOffset times the sum of the activations.
#if HWY_TARGET == HWY_AVX3_DL
constexpr int kByteOffset = 128;
#else
constexpr int kByteOffset = 0;
#endif

struct FourBytes {
  std::int8_t x[4];
};
HWY_INLINE std::int32_t four_bytes(const std::int8_t* x) {
  std::int32_t four;
  std::memcpy(&four, x, sizeof(four));
  return four;
}

// sum + the dot products of kVectors vectors of weights, of kBits bits each, with 4 * kVectors activations.
// w[j] holds, for each of eight rows, columns 4j to 4j+3. Weights below 8 bits are unsigned; those of 8 bits are
// signed, plus kByteOffset. Activations are in -127..127. Exact: int32 holds every sum.
template <int kBits, int kVectors>
HWY_INLINE I8 dot(const U32* HWY_RESTRICT w, const std::int8_t* HWY_RESTRICT x, I8 sum) {
#if HWY_TARGET == HWY_AVX3_DL
  // Assembly, because for this target some versions of Highway name AVX-VNNI instead of AVX-512 VNNI, and the intrinsic
  // then becomes an encoding that processors with only the latter refuse.
  const auto step = [&](I8& to, int j) HWY_ATTR {
    asm("vpdpbusd %2%{1to8%}, %1, %0"
        : "+v"(to.raw)
        : "v"(w[j].raw), "m"(*reinterpret_cast<const FourBytes*>(x + 4 * j)));
  };
  // Two sums, because each addition waits for the one before.
  I8 other = set_int(0);
  for (int j = 0; j < kVectors / 2; ++j) {
    step(sum, j);
    step(other, j + kVectors / 2);
  }
  return add(sum, other);
#elif BACKPLANE_WIDE
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (kBits == 8) {
    for (int j = 0; j < kVectors; ++j) {
      const __m256i four = _mm256_set1_epi32(four_bytes(x + 4 * j));
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w[j].raw), _mm256_sign_epi8(four, w[j].raw));
      sum.raw = _mm256_add_epi32(sum.raw, _mm256_madd_epi16(pairs, ones));
    }
  } else {
    // How many products of pairs fit into int16: 2 * 127 * (2^bits - 1) each.
    constexpr int kGroup = kBits <= 4 ? 8 : kBits == 5 ? 4 : 2;
    static_assert(2 * 127 * ((1 << kBits) - 1) * kGroup <= 32767);
    for (int j = 0; j < kVectors; j += kGroup) {
      __m256i pairs = _mm256_maddubs_epi16(w[j].raw, _mm256_set1_epi32(four_bytes(x + 4 * j)));
      for (int i = j + 1; i < j + kGroup && i < kVectors; ++i) {
        const __m256i four = _mm256_set1_epi32(four_bytes(x + 4 * i));
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(w[i].raw, four));
      }
      sum.raw = _mm256_add_epi32(sum.raw, _mm256_madd_epi16(pairs, ones));
    }
  }
  return sum;
#else
  for (int j = 0; j < kVectors; ++j) {
    for (int r = 0; r < 8; ++r) {
      for (int i = 0; i < 4; ++i) {
        // Weights below 8 bits have no sign bit, so all may be read as signed.
        sum.x[r] += static_cast<std::int8_t>(w[j].x[4 * r + i]) * x[4 * j + i];
      }
    }
  }
  return sum;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace backplane::onednn
HWY_AFTER_NAMESPACE();

#endif  // guard

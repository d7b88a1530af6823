#include "tools/bench_model/roof_kernels.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace backplane::bench {
namespace {

// As many sums as hide the latency of an instruction (4 or 5 cycles, two of them begin in each), and fit the registers.
constexpr int kSums = 10;

// The compiler can't know that an operand stays the same, so it leaves out no product. Costs no instruction.
#if defined(__x86_64__)
#define BACKPLANE_FORGET(vector) asm volatile("" : "+x"(vector))
#elif defined(__aarch64__)
#define BACKPLANE_FORGET(vector) asm volatile("" : "+w"(vector))
#else
#define BACKPLANE_FORGET(vector) asm volatile("" : "+m"(vector))
#endif

// A macro, since templates don't take over the processor that a function is compiled for. `step` is an expression of
// sum, x and y.
#define BACKPLANE_KERNEL(name, processor, Vector, step)                                             \
  processor double name(std::uint64_t rounds) {                                                     \
    Vector sums[kSums]{}, x{}, y{};                                                                 \
    std::memset(&x, 1, sizeof x);                                                                   \
    std::memset(&y, 1, sizeof y);                                                                   \
    for (std::uint64_t i = 0; i < rounds; ++i) {                                                    \
      _Pragma("GCC unroll 16") for (Vector & sum : sums) {                                          \
        BACKPLANE_FORGET(x);                                                                        \
        sum = step;                                                                                 \
      }                                                                                             \
    }                                                                                               \
    double all = 0;                                                                                 \
    _Pragma("GCC unroll 16") for (const Vector& sum : sums) { all += static_cast<double>(sum[0]); } \
    return all;                                                                                     \
  }

using Float4 = float __attribute__((vector_size(16)));
BACKPLANE_KERNEL(f32_plain, , Float4, sum + x * y)

#if defined(__x86_64__)
#define BACKPLANE_TARGET(list) __attribute__((target(list)))
BACKPLANE_KERNEL(f32_avx2, BACKPLANE_TARGET("avx2,fma"), __m256, _mm256_fmadd_ps(x, y, sum))
BACKPLANE_KERNEL(f32_avx512, BACKPLANE_TARGET("avx512f"), __m512, _mm512_fmadd_ps(x, y, sum))
BACKPLANE_KERNEL(int8_avx2, BACKPLANE_TARGET("avx2"), __m256i,
                 _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), _mm256_set1_epi16(1))))
BACKPLANE_KERNEL(int8_vnni, BACKPLANE_TARGET("avx512f,avx512vnni"), __m512i, _mm512_dpbusd_epi32(sum, x, y))
#endif

}  // namespace

ArithmeticKernel f32_kernel() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {f32_avx512, kSums * 16 * 2, "512-bit vfmadd"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {f32_avx2, kSums * 8 * 2, "256-bit vfmadd"};
#endif
  return {f32_plain, kSums * 4 * 2, "128-bit products and sums"};
}

std::optional<ArithmeticKernel> int8_kernel() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vnni")) return {{int8_vnni, kSums * 64 * 2, "512-bit vpdpbusd"}};
  if (__builtin_cpu_supports("avx2")) return {{int8_avx2, kSums * 32 * 2, "256-bit vpmaddubsw, vpmaddwd and vpaddd"}};
#endif
  return std::nullopt;
}

}  // namespace backplane::bench

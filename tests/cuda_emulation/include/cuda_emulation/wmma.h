// Warp matrix functions. Which lane holds which element differs from the hardware's choice on purpose, so that code
// which relies on it fails here. Loads and stores order no memory between lanes: that takes __syncwarp, as on a GPU.
// Products are exact and sums single-precision (or 32-bit integers), in ascending order; the hardware's order is
// another.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "cuda_emulation/access.h"
#include "cuda_emulation/device.h"

namespace cuda_emulation {

/// One lane's elements of a product of an m x k and a k x n matrix: element i of a lane is the matrix' element
/// wmma_element(lane, i) in row-major order.
template <class T>
struct WarpProduct {
  int m, n, k;
  const T *a, *b, *c;
  T* d;
};
void multiply(WarpProduct<float> product);
void multiply(WarpProduct<int> product);

constexpr unsigned wmma_element(unsigned lane, unsigned i) { return i * 32 + (lane * 11 + 5) % 32; }

/// Waits for the whole warp without ordering memory.
inline void meet_warp() { ballot(0xffffffffu, true); }

}  // namespace cuda_emulation

namespace nvcuda::wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

/// What holds an element of a type, and what a program sees of it.
template <class T>
struct storage {
  using type = T;
};
template <>
struct storage<precision::tf32> {
  using type = float;
};

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  using element_type = T;
  using storage_element_type = typename storage<T>::type;
  static constexpr int kRows = std::is_same_v<Use, matrix_b> ? K : M;
  static constexpr int kColumns = std::is_same_v<Use, matrix_a> ? K : N;
  static constexpr int num_elements = kRows * kColumns / 32;
  static_assert(M * N == 256, "the shapes are 16x16, 32x8 and 8x32");
  storage_element_type x[num_elements];
};

inline float __float_to_tf32(float x) {  // to the nearest of 10 fraction bits, ties away from zero
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x1000u) & 0xffffe000u);
}

template <class Use, int M, int N, int K, class T, class Layout, class V>
void fill_fragment(fragment<Use, M, N, K, T, Layout>& matrix, const V& value) {
  for (auto& element : matrix.x) element = static_cast<typename storage<T>::type>(value);
}

namespace detail {

// One lane's share of the bytes, in pieces of 16: lane after lane down the rows, as the hardware's matrix loads go.
template <class F, class T, class Note>
void note_matrix(const T* p, unsigned stride, bool by_rows, Note note) {
  constexpr unsigned kPiece = 16 / sizeof(T);
  const unsigned rows = by_rows ? F::kRows : F::kColumns, pieces = F::kRows * F::kColumns / kPiece;
  for (unsigned piece = cuda_emulation::lane(); piece < pieces; piece += 32) {
    note(p + static_cast<std::size_t>(piece % rows) * stride + piece / rows * kPiece);
  }
}

template <class T>
void check_matrix(const T* p, unsigned stride) {
  if (reinterpret_cast<std::uintptr_t>(p) % 32 != 0) cuda_emulation::trap("a matrix isn't aligned to 32 bytes");
  if (stride * sizeof(T) % 16 != 0) cuda_emulation::trap("the rows of a matrix aren't multiples of 16 bytes");
}

template <class F>
std::size_t offset(unsigned i, unsigned stride, bool by_rows) {
  const unsigned element = cuda_emulation::wmma_element(cuda_emulation::lane(), i);
  const std::size_t row = element / F::kColumns, column = element % F::kColumns;
  return by_rows ? row * stride + column : column * stride + row;
}

template <class F, class T>
void load(F& matrix, const T* p, unsigned stride, bool by_rows, const std::source_location& where) {
  check_matrix(p, stride);
  cuda_emulation::meet_warp();
  if (cuda_emulation::counting) {
    note_matrix<F>(p, stride, by_rows, [&](const T* piece) { cuda_emulation::note_load(piece, 16, where); });
  }
  for (unsigned i = 0; i < F::num_elements; ++i) matrix.x[i] = p[offset<F>(i, stride, by_rows)];
}

inline float value(float x) { return x; }
inline float value(__half x) { return __half2float(x); }
inline float value(__nv_bfloat16 x) { return __bfloat162float(x); }
inline int value(int x) { return x; }
inline int value(signed char x) { return x; }
inline int value(unsigned char x) { return x; }

// What the unit multiplies: it ignores the bits that a tf32 doesn't have, converted or not.
template <class T, class Number, class F>
void unpack(Number* numbers, const F& matrix) {
  for (int i = 0; i < F::num_elements; ++i) {
    numbers[i] = value(matrix.x[i]);
    if constexpr (std::is_same_v<T, precision::tf32>) {
      numbers[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(numbers[i]) & 0xffffe000u);
    }
  }
}

}  // namespace detail

template <class Use, int M, int N, int K, class T, class Layout>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& matrix, const typename storage<T>::type* p, unsigned stride,
                      std::source_location where = std::source_location::current()) {
  detail::load(matrix, p, stride, std::is_same_v<Layout, row_major>, where);
}
template <int M, int N, int K, class T>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& matrix, const T* p, unsigned stride, layout_t layout,
                      std::source_location where = std::source_location::current()) {
  detail::load(matrix, p, stride, layout == mem_row_major, where);
}

template <int M, int N, int K, class T>
void store_matrix_sync(T* p, const fragment<accumulator, M, N, K, T>& matrix, unsigned stride, layout_t layout,
                       std::source_location where = std::source_location::current()) {
  using F = fragment<accumulator, M, N, K, T>;
  detail::check_matrix(p, stride);
  cuda_emulation::meet_warp();
  const bool by_rows = layout == mem_row_major;
  if (cuda_emulation::counting) {
    detail::note_matrix<F>(p, stride, by_rows, [&](const T* piece) { cuda_emulation::note_store(piece, 16, where); });
  }
  for (unsigned i = 0; i < F::num_elements; ++i) p[detail::offset<F>(i, stride, by_rows)] = matrix.x[i];
}

template <int M, int N, int K, class TD, class TA, class LA, class TB, class LB, class TC>
void mma_sync(fragment<accumulator, M, N, K, TD>& d, const fragment<matrix_a, M, N, K, TA, LA>& a,
              const fragment<matrix_b, M, N, K, TB, LB>& b, const fragment<accumulator, M, N, K, TC>& c) {
  static_assert(std::is_same_v<TA, TB>, "both factors have one type");
  static_assert(K == (std::is_same_v<TA, precision::tf32> ? 8 : 16), "tf32 has a depth of 8, the others of 16");
  using Number = std::conditional_t<std::is_same_v<TD, int>, int, float>;
  Number factors_a[M * K / 32], factors_b[K * N / 32], sums[M * N / 32], results[M * N / 32];
  detail::unpack<TA>(factors_a, a);
  detail::unpack<TB>(factors_b, b);
  detail::unpack<TC>(sums, c);
  cuda_emulation::multiply(cuda_emulation::WarpProduct<Number>{M, N, K, factors_a, factors_b, sums, results});
  for (int i = 0; i < M * N / 32; ++i) d.x[i] = static_cast<TD>(results[i]);
}

}  // namespace nvcuda::wmma

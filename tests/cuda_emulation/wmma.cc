// The product of matrices that are dealt out over the lanes of a warp.
#include "tests/cuda_emulation/include/cuda_emulation/wmma.h"

#include <vector>

#include "tests/cuda_emulation/block.h"

namespace cuda_emulation {

namespace {

template <class T>
void collect(std::vector<T>& matrix, void* const* products, const T* WarpProduct<T>::*part, int elements) {
  matrix.resize(static_cast<std::size_t>(elements));
  for (unsigned lane = 0; lane < 32; ++lane) {
    const T* own = static_cast<const WarpProduct<T>*>(products[lane])->*part;
    for (unsigned i = 0; i < matrix.size() / 32; ++i) matrix[wmma_element(lane, i)] = own[i];
  }
}

template <class T>
void exchange_products(void* const* products, unsigned present) {
  if (present != 0xffffffffu) return;  // undefined for a part of a warp: the results stay poison
  const auto [m, n, k, a_part, b_part, c_part, d_part] = *static_cast<const WarpProduct<T>*>(products[0]);
  static thread_local std::vector<T> a, b, d;
  collect(a, products, &WarpProduct<T>::a, m * k);
  collect(b, products, &WarpProduct<T>::b, k * n);
  collect(d, products, &WarpProduct<T>::c, m * n);
  for (int row = 0; row < m; ++row) {
    T* sums = d.data() + static_cast<std::ptrdiff_t>(row) * n;
    for (int depth = 0; depth < k; ++depth) {
      const T factor = a[static_cast<std::size_t>(row * k + depth)];
      const T* others = b.data() + static_cast<std::ptrdiff_t>(depth) * n;
      for (int column = 0; column < n; ++column) sums[column] += factor * others[column];
    }
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    T* own = static_cast<const WarpProduct<T>*>(products[lane])->d;
    for (unsigned i = 0; i < d.size() / 32; ++i) own[i] = d[wmma_element(lane, i)];
  }
}

template <class T>
void multiply_of(WarpProduct<T> product) {
  for (int i = 0; i < product.m * product.n / 32; ++i) product.d[i] = std::bit_cast<T>(0xffffffffu);
  BlockRunner::current().sync_warp(0xffffffffu, &product, exchange_products<T>, false);
}

}  // namespace

void multiply(WarpProduct<float> product) { multiply_of(product); }
void multiply(WarpProduct<int> product) { multiply_of(product); }

}  // namespace cuda_emulation

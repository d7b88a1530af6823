// The products of matrices whose fragments are dealt out over the lanes of a warp as the PTX ISA documents.
#include "tests/cuda_emulation/include/cuda_emulation/fragments.h"

#include <cmath>

#include "tests/cuda_emulation/block.h"

namespace cuda_emulation {

namespace {

constexpr int kRows = 16, kColumns = 8, kMostDepth = 16;

float bfloat(std::uint32_t word, int half) { return std::bit_cast<float>(half == 0 ? word << 16 : word & 0xffff0000u); }
float tf32(std::uint32_t word) { return std::bit_cast<float>(word & 0xffffe000u); }

struct Factors {
  float a[kRows][kMostDepth], b[kMostDepth][kColumns];
};

// Word w of a lane: the row in its lower bit, the half of the depth in the upper one.
void collect_a(Factors& factors, void* const* products, int depth) {
  for (int lane = 0; lane < 32; ++lane) {
    const std::uint32_t* own = static_cast<const FragmentProduct*>(products[lane])->a;
    for (int w = 0; w < 4; ++w) {
      float* row = factors.a[lane / 4 + w % 2 * 8];
      const int half = w / 2 * (depth / 2);
      if (depth == 8) {
        row[half + lane % 4] = tf32(own[w]);
      } else {
        for (int i = 0; i < 2; ++i) row[half + lane % 4 * 2 + i] = bfloat(own[w], i);
      }
    }
  }
}

void collect_b(Factors& factors, void* const* products, int depth, int number) {
  for (int lane = 0; lane < 32; ++lane) {
    const std::uint32_t* own = static_cast<const FragmentProduct*>(products[lane])->b + number * 2;
    for (int w = 0; w < 2; ++w) {
      const int first = w * (depth / 2);
      if (depth == 8) {
        factors.b[first + lane % 4][lane / 4] = tf32(own[w]);
      } else {
        for (int i = 0; i < 2; ++i) factors.b[first + lane % 4 * 2 + i][lane / 4] = bfloat(own[w], i);
      }
    }
  }
}

void add_product(const Factors& factors, void* const* products, int depth, int number) {
  float sums[kRows][kColumns];
  const auto place = [&](int lane, int i) { return &sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]; };
  for (int lane = 0; lane < 32; ++lane) {
    const float* own = static_cast<const FragmentProduct*>(products[lane])->d + number * 4;
    for (int i = 0; i < 4; ++i) *place(lane, i) = own[i];
  }
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < depth; ++k) {
      const float factor = factors.a[row][k];
      for (int column = 0; column < kColumns; ++column) sums[row][column] += factor * factors.b[k][column];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    float* own = static_cast<const FragmentProduct*>(products[lane])->d + number * 4;
    for (int i = 0; i < 4; ++i) {  // GPUs have one pattern for what isn't a number
      own[i] = std::isnan(*place(lane, i)) ? std::bit_cast<float>(0x7fffffffu) : *place(lane, i);
    }
  }
}

void exchange_fragments(void* const* products, unsigned present) {
  bool agreed = present == 0xffffffffu;
  for (unsigned lane = 0; lane < 32 && agreed; ++lane) {
    const auto &own = *static_cast<const FragmentProduct*>(products[lane]),
               &first = *static_cast<const FragmentProduct*>(products[0]);
    agreed = own.depth == first.depth && own.count == first.count;
  }
  if (!agreed) {  // undefined
    for (unsigned lane = 0; lane < 32; ++lane) {
      if ((present >> lane & 1) == 0) continue;
      const auto& own = *static_cast<const FragmentProduct*>(products[lane]);
      for (int i = 0; i < own.count * 4; ++i) own.d[i] = std::bit_cast<float>(0xffffffffu);
    }
    return;
  }
  const auto& first = *static_cast<const FragmentProduct*>(products[0]);
  Factors factors;
  collect_a(factors, products, first.depth);
  for (int number = 0; number < first.count; ++number) {
    collect_b(factors, products, first.depth, number);
    add_product(factors, products, first.depth, number);
  }
}

struct Addresses {
  const void* own;
  RowAddresses all;
};

void spread_addresses(void* const* arguments, unsigned present) {
  RowAddresses all{};
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((present >> lane & 1) != 0) all.of[lane] = static_cast<const Addresses*>(arguments[lane])->own;
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((present >> lane & 1) != 0) static_cast<Addresses*>(arguments[lane])->all = all;
  }
}

}  // namespace

void multiply_fragments(FragmentProduct product) {
  BlockRunner::current().sync_warp(0xffffffffu, &product, exchange_fragments, false);
}

RowAddresses exchange_addresses(const void* own) {
  Addresses addresses{own, {}};
  BlockRunner::current().sync_warp(0xffffffffu, &addresses, spread_addresses, false);
  return addresses.all;
}

}  // namespace cuda_emulation

// Products of activations with weight matrices, several matrices in one parallel loop.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "backends/onednn/matrix.h"

namespace backplane::onednn {

// out = x W^T + bias, or with a residual: residual + alpha * that. Rows of out and residual are contiguous floats.
struct Product {
  const Matrix* weight;
  const float* bias = nullptr;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  const float* residual = nullptr;
  std::int64_t residual_stride = 0;
  float alpha = 1;
};

// All products of one x, in one loop where their weights have one format.
void multiply(const Device& device, Workspace workspace, Activations& x, std::span<const Product> products);

// out = f(gate) * up, both products of x; nothing of them is stored.
void multiply_gated(const Device& device, Workspace workspace, Activations& x, const Product& gate, const Product& up,
                    std::uint32_t kind);

// The number of the largest of each token's products, of equal ones the lowest, NaN after all else; and the product
// with its bias, or NaN where any of the token's is. No others are stored: `product` needs no `out`.
void multiply_best(const Device& device, Workspace workspace, Activations& x, const Product& product,
                   std::int32_t* rows, float* values);
std::uint64_t multiply_best_bytes(std::int64_t tokens);  // beside multiply_bytes

// What all of these take from a workspace for x and such weights, beside Activations.
std::uint64_t multiply_bytes(const bp_tensor& x, std::initializer_list<const bp_matrix*> weights);

}  // namespace backplane::onednn

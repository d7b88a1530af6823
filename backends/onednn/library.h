// Products of float weights by oneDNN, where that changes no bit and saves time.
//
// Law of this plugin: a token's bits depend on nothing but the token. A library orders its sums as it likes, and
// differently for other shapes, so it gets tiles of few fixed shapes, at most kDepth columns deep, and each shape is
// compared with our own kernel bit for bit before it is used. What differs is computed by our own kernel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "backends/onednn/kernels.h"
#include "backends/onednn/primitive.h"

namespace backplane::onednn {

class FloatLibrary {
 public:
  // Tiles have as many panels as that or kFewPanels, and powers of two of tokens.
  static constexpr std::int64_t kPanels = 24, kFewPanels = 8;
  static constexpr std::int64_t kTokens = 256, kFewTokens = 16;

  explicit FloatLibrary(const Kernels& kernels) : kernels_(kernels) {}

  // Whether it is faster than our own kernel here. The first call measures that, in a few milliseconds.
  bool is_faster();

  // What FloatKernels::multiply would put into `tile`, for kPanels or kFewPanels panels and a multiple of kFewTokens
  // tokens, at most kTokens. False where oneDNN hasn't the same bits; the tile is then undefined. `scratch` is
  // scratch_floats.
  bool multiply(bp_type type, const Panels& panels, const float* x, std::int64_t x_stride, std::int64_t columns,
                std::int64_t tokens, float* scratch, float* tile);
  static constexpr std::int64_t scratch_floats = (kDepth + kTokens) * kPanels * kLanes;

 private:
  // nullptr where there is none with our bits.
  const Primitive* find(const GemmShape& shape);
  bool has_our_bits(const Primitive& primitive, const GemmShape& shape) const;

  const Kernels& kernels_;
  std::shared_mutex mutex_;
  std::map<GemmShape, std::unique_ptr<Primitive>> primitives_;
  std::once_flag compared_;
  bool faster_ = false;
};

}  // namespace backplane::onednn

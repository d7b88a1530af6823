// Products of float weights, in panels [C][8], with rows of activations. Every result is one sum over the columns in
// their order, whatever else is computed beside it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/onednn/float_kernels.cc"
#include "hwy/foreach_target.h"  // keep before what follows

#include <algorithm>

#include "backends/onednn/kernels.h"
#include "backends/onednn/vec8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace backplane::onednn {
namespace HWY_NAMESPACE {
namespace {

struct LoadF32 {
  static constexpr int kBytes = 32;
  HWY_INLINE F8 operator()(const std::uint8_t* p) const { return load(reinterpret_cast<const float*>(p)); }
};
struct LoadF16 {
  static constexpr int kBytes = 16;
  HWY_INLINE F8 operator()(const std::uint8_t* p) const { return load_half(reinterpret_cast<const std::uint16_t*>(p)); }
};
struct LoadBF16 {
  static constexpr int kBytes = 16;
  HWY_INLINE F8 operator()(const std::uint8_t* p) const {
    return load_bfloat(reinterpret_cast<const std::uint16_t*>(p));
  }
};

// x as [T,C], rows `stride` apart.
struct FloatRows {
  const float* data;
  std::int64_t stride, columns;
};

// kPanels panels at once, so that enough sums are under way.
template <class Load, int kTokens, int kPanels>
void float_tokens(const std::uint8_t* panels, std::int64_t panel_stride, const FloatRows& x, float* tile,
                  std::int64_t tile_stride) {
  F8 sums[kPanels][kTokens];
  for (auto& panel : sums) {
    for (F8& sum : panel) sum = set(0);
  }
  for (std::int64_t c = 0; c < x.columns; ++c) {
    F8 w[kPanels];
    for (int p = 0; p < kPanels; ++p) w[p] = Load{}(panels + p * panel_stride + c * Load::kBytes);
    for (int t = 0; t < kTokens; ++t) {
      const F8 value = set(x.data[t * x.stride + c]);
      for (int p = 0; p < kPanels; ++p) sums[p][t] = fma(w[p], value, sums[p][t]);
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    for (int t = 0; t < kTokens; ++t) store(sums[p][t], tile + p * tile_stride + t * kLanes);
  }
}

template <class Load, int kPanels>
void float_panels(const std::uint8_t* panels, std::int64_t panel_stride, FloatRows x, std::int64_t tokens, float* tile,
                  std::int64_t tile_stride) {
  const auto step = [&](std::int64_t count) {
    tokens -= count;
    x.data += count * x.stride;
    tile += count * kLanes;
  };
  for (; tokens >= 6; step(6)) float_tokens<Load, 6, kPanels>(panels, panel_stride, x, tile, tile_stride);
  for (; tokens >= 4; step(4)) float_tokens<Load, 4, kPanels>(panels, panel_stride, x, tile, tile_stride);
  for (; tokens >= 2; step(2)) float_tokens<Load, 2, kPanels>(panels, panel_stride, x, tile, tile_stride);
  for (; tokens >= 1; step(1)) float_tokens<Load, 1, kPanels>(panels, panel_stride, x, tile, tile_stride);
}

template <class Load>
void float_format(const Panels& panels, const FloatRows& x, std::int64_t tokens, std::uint8_t* scratch, float* tile) {
  constexpr std::int64_t kExpandFrom = 12;  // tokens that are worth a copy as F32
  const std::int64_t tile_stride = tokens * kLanes;
  std::int64_t i = 0;
  const auto at = [&](std::int64_t panel) { return panels.data + panel * panels.stride; };
  if (tokens == 1) {
    for (; i + 4 <= panels.count; i += 4) {
      float_tokens<Load, 1, 4>(at(i), panels.stride, x, tile + i * tile_stride, tile_stride);
    }
  }
  for (; i < panels.count; i += 2) {
    const std::int64_t some = std::min<std::int64_t>(2, panels.count - i);
    const std::uint8_t* from = at(i);
    std::int64_t stride = panels.stride;
    float* to = tile + i * tile_stride;
    if (Load::kBytes == LoadF32::kBytes || tokens < kExpandFrom) {
      if (some == 2) {
        float_panels<Load, 2>(from, stride, x, tokens, to, tile_stride);
      } else {
        float_panels<Load, 1>(from, stride, x, tokens, to, tile_stride);
      }
      continue;
    }
    stride = x.columns * LoadF32::kBytes;
    for (std::int64_t p = 0; p < some; ++p) {
      for (std::int64_t c = 0; c < x.columns; ++c) {
        store(Load{}(from + p * panels.stride + c * Load::kBytes),
              reinterpret_cast<float*>(scratch + p * stride + c * LoadF32::kBytes));
      }
    }
    if (some == 2) {
      float_panels<LoadF32, 2>(scratch, stride, x, tokens, to, tile_stride);
    } else {
      float_panels<LoadF32, 1>(scratch, stride, x, tokens, to, tile_stride);
    }
  }
}

void multiply(bp_type type, const Panels& panels, const float* x, std::int64_t x_stride, std::int64_t columns,
              std::int64_t tokens, std::uint8_t* scratch, float* tile) {
  const FloatRows rows{x, x_stride, columns};
  switch (type) {
    case BP_TYPE_F16:
      return float_format<LoadF16>(panels, rows, tokens, scratch, tile);
    case BP_TYPE_BF16:
      return float_format<LoadBF16>(panels, rows, tokens, scratch, tile);
    default:
      return float_format<LoadF32>(panels, rows, tokens, scratch, tile);
  }
}

[[maybe_unused]] const bool kAdded = [] {
  kernels_for(HWY_TARGET).floats = {multiply};
  return true;
}();

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace backplane::onednn
HWY_AFTER_NAMESPACE();

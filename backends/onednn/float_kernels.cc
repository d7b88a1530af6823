// Products of float weights, in panels [C][8], with rows of activations. Whatever else is computed beside it, a result
// is the sum, in their order, of one sum for each kDepth columns, which in turn is taken in the order of the columns.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/onednn/float_kernels.cc"
#include "hwy/foreach_target.h"  // keep before what follows

#include <algorithm>
#include <type_traits>

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

// tile[panel][token] = the sums over `columns` columns, at most kDepth, or with `more` those added to it. kPanels
// panels at once, so that enough sums are under way.
template <class Load, int kTokens, int kPanels>
void float_tokens(const std::uint8_t* panels, std::int64_t panel_stride, const FloatRows& x, bool more, float* tile,
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
    for (int t = 0; t < kTokens; ++t) {
      float* to = tile + p * tile_stride + t * kLanes;
      store(more ? add(load(to), sums[p][t]) : sums[p][t], to);
    }
  }
}

template <class Load, int kPanels>
void float_panels(const std::uint8_t* panels, std::int64_t panel_stride, FloatRows x, std::int64_t tokens, bool more,
                  float* tile, std::int64_t tile_stride) {
  const auto step = [&](std::int64_t count) {
    tokens -= count;
    x.data += count * x.stride;
    tile += count * kLanes;
  };
  for (; tokens >= 6; step(6)) float_tokens<Load, 6, kPanels>(panels, panel_stride, x, more, tile, tile_stride);
  for (; tokens >= 4; step(4)) float_tokens<Load, 4, kPanels>(panels, panel_stride, x, more, tile, tile_stride);
  for (; tokens >= 2; step(2)) float_tokens<Load, 2, kPanels>(panels, panel_stride, x, more, tile, tile_stride);
  for (; tokens >= 1; step(1)) float_tokens<Load, 1, kPanels>(panels, panel_stride, x, more, tile, tile_stride);
}

// kPanels panels with all tokens, kDepth columns after kDepth columns: what is read again lies in the first-level
// cache.
template <class Load, int kPanels>
void float_columns(const std::uint8_t* panels, std::int64_t panel_stride, const FloatRows& x, std::int64_t tokens,
                   std::uint8_t* scratch, float* tile) {
  constexpr std::int64_t kExpandFrom = 12;  // tokens that are worth a copy as F32
  const std::int64_t tile_stride = tokens * kLanes;
  for (std::int64_t from = 0; from < x.columns; from += kDepth) {
    const FloatRows part{x.data + from, x.stride, std::min(kDepth, x.columns - from)};
    const std::uint8_t* w = panels + from * Load::kBytes;
    if (tokens == 1) {
      float_tokens<Load, 1, kPanels>(w, panel_stride, part, from > 0, tile, tile_stride);
    } else if (Load::kBytes == LoadF32::kBytes || tokens < kExpandFrom) {
      float_panels<Load, kPanels>(w, panel_stride, part, tokens, from > 0, tile, tile_stride);
    } else {
      const std::int64_t stride = part.columns * LoadF32::kBytes;
      for (std::int64_t p = 0; p < kPanels; ++p) {
        auto* to = reinterpret_cast<float*>(scratch + p * stride);
        for (std::int64_t c = 0; c < part.columns; ++c) {
          store(Load{}(w + p * panel_stride + c * Load::kBytes), to + c * kLanes);
        }
      }
      float_panels<LoadF32, kPanels>(scratch, stride, part, tokens, from > 0, tile, tile_stride);
    }
  }
}

template <class Load>
void float_format(const Panels& panels, const FloatRows& x, std::int64_t tokens, std::uint8_t* scratch, float* tile) {
  std::int64_t i = 0;
  const auto go = [&]<int kPanels>(std::integral_constant<int, kPanels>) {
    float_columns<Load, kPanels>(panels.data + i * panels.stride, panels.stride, x, tokens, scratch,
                                 tile + i * tokens * kLanes);
    i += kPanels;
  };
  while (tokens == 1 && i + 4 <= panels.count) go(std::integral_constant<int, 4>());
  while (i + 2 <= panels.count) go(std::integral_constant<int, 2>());
  if (i < panels.count) go(std::integral_constant<int, 1>());
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

template <class Load>
void expand_format(const Panels& panels, std::int64_t first, std::int64_t count, float* out) {
  for (std::int64_t c = first; c < first + count; ++c) {
    for (std::int64_t p = 0; p < panels.count; ++p, out += kLanes) {
      store(Load{}(panels.data + p * panels.stride + c * Load::kBytes), out);
    }
  }
}

void expand(bp_type type, const Panels& panels, std::int64_t first, std::int64_t count, float* out) {
  switch (type) {
    case BP_TYPE_F16:
      return expand_format<LoadF16>(panels, first, count, out);
    case BP_TYPE_BF16:
      return expand_format<LoadBF16>(panels, first, count, out);
    default:
      return expand_format<LoadF32>(panels, first, count, out);
  }
}

[[maybe_unused]] const bool kAdded = [] {
  kernels_for(HWY_TARGET).floats = {multiply, expand};
  return true;
}();

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace backplane::onednn
HWY_AFTER_NAMESPACE();

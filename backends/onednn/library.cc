#include "backends/onednn/library.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace backplane::onednn {
namespace {

// Numbers of very different sizes, so that sums in another order differ; whole rows of zeros and of tiny numbers, for
// zeros' signs and for what may be flushed to zero.
std::vector<float> unequal(std::int64_t rows, std::int64_t columns, unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<float> out(static_cast<std::size_t>(rows * columns));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto bits = static_cast<int>(random());
      const float part = std::ldexp(1.0f + static_cast<float>(bits & 0xffff) / 0x10000, (bits >> 16) % 12 - 6);
      const float value = (bits >> 28 & 1) != 0 ? -part : part;
      out[static_cast<std::size_t>(r * columns + c)] = r % 16 == 5 ? -0.0f : r % 16 == 9 ? value * 0x1p-130f : value;
    }
  }
  return out;
}

template <class Function>
double shortest(int times, Function&& function) {
  using Clock = std::chrono::steady_clock;
  auto best = Clock::duration::max();
  for (int i = 0; i < times; ++i) {
    const auto start = Clock::now();
    function();
    best = std::min(best, Clock::now() - start);
  }
  return std::chrono::duration<double>(best).count();
}

}  // namespace

bool FloatLibrary::has_our_bits(const Primitive& primitive, const GemmShape& shape) const {
  const std::int64_t panels = shape.rows / kLanes;
  const std::vector<float> values = unequal(shape.tokens, shape.columns, 1);
  const std::vector<float> packed = unequal(panels, shape.columns * kLanes, 2);
  std::vector<float> x(static_cast<std::size_t>((shape.tokens - 1) * shape.x_stride + shape.columns));
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    std::copy_n(values.begin() + t * shape.columns, shape.columns, x.begin() + t * shape.x_stride);
  }
  const Panels given{reinterpret_cast<const std::uint8_t*>(packed.data()),
                     shape.columns * kLanes * static_cast<std::int64_t>(sizeof(float)), panels};
  std::vector<std::uint8_t> scratch(static_cast<std::size_t>(expanded_bytes(shape.columns)));
  std::vector<float> tile(static_cast<std::size_t>(shape.tokens * shape.rows)), w(packed.size());
  kernels_.floats.multiply(BP_TYPE_F32, given, x.data(), shape.x_stride, shape.columns, shape.tokens, scratch.data(),
                           tile.data());
  std::vector<float> out = unequal(shape.tokens, shape.rows, 3);
  const std::vector<float> before = out;
  kernels_.floats.expand(BP_TYPE_F32, given, 0, shape.columns, w.data());
  primitive.run(x.data(), w.data(), out.data());
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      const auto at = static_cast<std::size_t>(t * shape.rows + r);
      const float sum = tile[static_cast<std::size_t>((r / kLanes * shape.tokens + t) * kLanes + r % kLanes)];
      const float ours = shape.more ? before[at] + sum : sum;
      if (std::bit_cast<std::uint32_t>(ours) != std::bit_cast<std::uint32_t>(out[at])) return false;
    }
  }
  return true;
}

const Primitive* FloatLibrary::find(const GemmShape& shape) {
  {
    const std::shared_lock lock(mutex_);
    const auto known = primitives_.find(shape);
    if (known != primitives_.end()) return known->second.get();
  }
  const std::unique_lock lock(mutex_);
  const auto [place, made] = primitives_.try_emplace(shape);
  if (made) {
    auto primitive = Primitive::make(shape);
    if (primitive != nullptr && has_our_bits(*primitive, shape)) place->second = std::move(primitive);
  }
  return place->second.get();
}

bool FloatLibrary::multiply(bp_type type, const Panels& panels, const float* x, std::int64_t x_stride,
                            std::int64_t columns, std::int64_t tokens, float* scratch, float* tile) {
  const std::int64_t rows = panels.count * kLanes;
  float *w = scratch, *out = scratch + kDepth * rows;
  for (std::int64_t from = 0; from < columns; from += kDepth) {
    const std::int64_t depth = std::min(kDepth, columns - from);
    kernels_.floats.expand(type, panels, from, depth, w);
    for (std::int64_t t = 0, some = 0; t < tokens; t += some) {
      some = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(tokens - t)));
      const Primitive* primitive = find({some, rows, depth, x_stride, from > 0});
      if (primitive == nullptr) return false;
      primitive->run(x + t * x_stride + from, w, out + t * rows);
    }
  }
  for (std::int64_t p = 0; p < panels.count; ++p) {
    for (std::int64_t t = 0; t < tokens; ++t, tile += kLanes) {
      std::memcpy(tile, out + t * rows + p * kLanes, kLanes * sizeof(float));
    }
  }
  return true;
}

bool FloatLibrary::is_faster() {
  std::call_once(compared_, [this] {
    constexpr std::int64_t kColumns = 2 * kDepth, kSome = 128;
    const std::vector<float> x = unequal(kSome, kColumns, 1), packed = unequal(kPanels, kColumns * kLanes, 2);
    const Panels panels{reinterpret_cast<const std::uint8_t*>(packed.data()), kColumns * kLanes * 4, kPanels};
    std::vector<float> tile(kSome * kPanels * kLanes), scratch(scratch_floats);
    std::vector<std::uint8_t> expanded(expanded_bytes(kColumns));
    bool usable = true;
    const auto ours = [&] {
      kernels_.floats.multiply(BP_TYPE_F32, panels, x.data(), kColumns, kColumns, kSome, expanded.data(), tile.data());
    };
    const auto theirs = [&] {
      usable =
          usable && multiply(BP_TYPE_F32, panels, x.data(), kColumns, kColumns, kSome, scratch.data(), tile.data());
    };
    constexpr int kTimes = 4;
    // Not for what a measurement may be wrong by.
    constexpr double kGain = 0.95;
    faster_ = shortest(kTimes, theirs) < kGain * shortest(kTimes, ours) && usable;
  });
  return faster_;
}

}  // namespace backplane::onednn

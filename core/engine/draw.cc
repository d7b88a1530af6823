#include "core/engine/draw.h"

#include <algorithm>

namespace backplane::engine {
namespace {

// Logits that keep a thread busy, even with the least that can be asked, for longer than another needs to wake: some 50
// microseconds (tools/bench/sample).
constexpr std::size_t kWorthWaking = std::size_t{1} << 17;

void draw(Draw& one) {
  try {
    if (one.sampler) {
      one.token = one.sampler->sample(one.logits);
    } else {
      sample::check_logits(one.logits);
    }
    if (one.top) one.report = sample::report_token(one.logits, one.token, *one.top);
  } catch (const Error& error) {
    one.error = error;
  }
}

}  // namespace

std::uint64_t RowDrawer::grain(std::size_t vocabulary) {
  return std::max<std::uint64_t>(1, kWorthWaking / std::max<std::size_t>(1, vocabulary));
}

void RowDrawer::run(std::span<Draw> draws) {
  if (draws.empty()) return;
  const std::uint64_t least = grain(draws.front().logits.size());
  if (draws.size() < 2 * least) {
    for (Draw& one : draws) draw(one);
    return;
  }
  if (!pool_) pool_ = (own_ = std::make_unique<ThreadPool>()).get();
  pool_->parallel_for(draws.size(), least, [draws](std::uint64_t begin, std::uint64_t end, unsigned) {
    for (std::uint64_t i = begin; i < end; ++i) draw(draws[i]);
  });
}

}  // namespace backplane::engine

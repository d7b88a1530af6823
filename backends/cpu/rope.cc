// ROPE: rotary position embedding in place.
#include <cmath>

#include "backends/cpu/ops.h"

namespace backplane::cpu {

template <class Real>
void run(const Call&, const bp_rope_args& args) {
  const View<Real> x(args.x, "x");
  const View<const std::int32_t> pos(args.pos, "pos"), row(args.row, "row");
  const View<const double> inv_freq(args.inv_freq, "inv_freq"), scale(args.scale, "scale");
  const std::int64_t tokens = x.shape(0), heads = x.shape(1), pairs = args.n_dims / 2;
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (row[t] < 0 || row[t] >= inv_freq.rows()) {
      throw plugin::Failure(BP_INVALID, "row " + std::to_string(row[t]) + " of token " + std::to_string(t) +
                                            " is outside tables of " + std::to_string(inv_freq.rows()));
    }
  }
  if (heads == 0 || pairs == 0) return;

  // The pair i is (x[i * step], x[i * step + gap]).
  const std::int64_t step = args.interleaved ? 2 : 1, gap = args.interleaved ? 1 : pairs;
  plugin::parallel_for(tokens, 1 + 4096 / (heads * pairs), [&](std::int64_t begin, std::int64_t end, unsigned) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double angle = pos[t] * inv_freq.at(row[t])[i];
        const Real c = static_cast<Real>(std::cos(angle) * scale[row[t]]);
        const Real s = static_cast<Real>(std::sin(angle) * scale[row[t]]);
        for (std::int64_t h = 0; h < heads; ++h) {
          Real* pair = x.at(t, h) + i * step;
          const Real a = pair[0], b = pair[gap];
          pair[0] = a * c - b * s;
          pair[gap] = a * s + b * c;
        }
      }
    }
  });
}

template void run<float>(const Call&, const bp_rope_args&);
template void run<double>(const Call&, const bp_rope_args&);

}  // namespace backplane::cpu

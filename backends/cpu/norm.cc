// NORM: RMS and layer norm over rows.
#include <cmath>

#include "backends/cpu/ops.h"
#include "backends/cpu/reduce.h"

namespace backplane::cpu {

template <class Real>
void run(const Call&, const bp_norm_args& args) {
  const View<const Real> x(args.x, "x");
  const Parameters weight(args.weight, "weight"), bias(args.bias, "bias");
  const View<Real> out(args.out, "out");
  const std::int64_t n = x.columns();
  if (n == 0) return;
  const Real eps = static_cast<Real>(args.eps), unit_offset = static_cast<Real>(args.unit_offset);

  plugin::parallel_for(x.rows(), 1 + 4096 / n, [&](std::int64_t begin, std::int64_t end, unsigned) {
    for (std::int64_t r = begin; r < end; ++r) {
      const Real* in = x.row(r);
      Real* to = out.row(r);
      Real mean = 0;
      if (args.kind == BP_NORM_LAYER) mean = sum_of<Real>(n, [&](auto i) { return in[i]; }) / static_cast<Real>(n);
      const Real squares = sum_of<Real>(n, [&](auto i) { return (in[i] - mean) * (in[i] - mean); });
      const Real root = std::sqrt(squares / static_cast<Real>(n) + eps);
      for (std::int64_t i = 0; i < n; ++i) {
        const Real w = weight.present() ? unit_offset + weight.get<Real>(i) : Real{1};
        const Real scaled = (in[i] - mean) / root * w;
        to[i] = bias.present() ? scaled + bias.get<Real>(i) : scaled;
      }
    }
  });
}

template void run<float>(const Call&, const bp_norm_args&);
template void run<double>(const Call&, const bp_norm_args&);

}  // namespace backplane::cpu

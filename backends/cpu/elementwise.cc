// Ops that compute each element by itself: ACT, GLU, ADD, MUL, SCALE, SOFTCAP.
#include <cmath>
#include <numbers>

#include "backends/cpu/loops.h"
#include "backends/cpu/ops.h"

namespace backplane::cpu {
namespace {

template <class Real>
Real activate(std::uint32_t kind, Real x) {
  switch (kind) {
    case BP_ACT_GELU_ERF:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<Real>));
    case BP_ACT_GELU_TANH: {
      const Real root = std::numbers::sqrt2_v<Real> * std::numbers::inv_sqrtpi_v<Real>;  // sqrt(2/pi)
      return x / 2 * (1 + std::tanh(root * (x + static_cast<Real>(0.044715) * x * x * x)));
    }
    case BP_ACT_SILU:
      return x / (1 + std::exp(-x));
    default:                 // RELU
      return x < 0 ? 0 : x;  // NaN stays NaN
  }
}

}  // namespace

template <class Real>
void run(const Call&, const bp_activation_args& args) {
  const View<const Real> x(args.x, "x");
  const View<Real> out(args.out, "out");
  for_rows(x.rows(), x.columns(), [&](std::int64_t r) {
    const Real* in = x.row(r);
    Real* to = out.row(r);
    for (std::int64_t i = 0; i < x.columns(); ++i) to[i] = activate(args.kind, in[i]);
  });
}

template <class Real>
void run(const Call&, const bp_glu_args& args) {
  const View<const Real> gate(args.gate, "gate"), up(args.up, "up");
  const View<Real> out(args.out, "out");
  for_rows(gate.rows(), gate.columns(), [&](std::int64_t r) {
    const Real *g = gate.row(r), *u = up.row(r);
    Real* to = out.row(r);
    for (std::int64_t i = 0; i < gate.columns(); ++i) to[i] = activate(args.kind, g[i]) * u[i];
  });
}

template <class Real>
void run(const Call& call, const bp_binary_args& args) {
  const View<const Real> a(args.a, "a"), b(args.b, "b");
  const View<Real> out(args.out, "out");
  const Real alpha = static_cast<Real>(args.alpha);
  for_rows(a.rows(), a.columns(), [&](std::int64_t r) {
    const Real *left = a.row(r), *right = b.row(b.rows() == 1 ? 0 : r);
    Real* to = out.row(r);
    if (call.code == BP_OP_ADD) {
      for (std::int64_t i = 0; i < a.columns(); ++i) to[i] = left[i] + alpha * right[i];
    } else {
      for (std::int64_t i = 0; i < a.columns(); ++i) to[i] = alpha * left[i] * right[i];
    }
  });
}

template <class Real>
void run(const Call& call, const bp_scalar_args& args) {
  if (call.code == BP_OP_FILL) return fill(args);
  const View<const Real> x(args.x, "x");
  const View<Real> out(args.out, "out");
  const Real value = static_cast<Real>(args.value);
  for_rows(x.rows(), x.columns(), [&](std::int64_t r) {
    const Real* in = x.row(r);
    Real* to = out.row(r);
    for (std::int64_t i = 0; i < x.columns(); ++i) {
      to[i] = call.code == BP_OP_SCALE ? value * in[i] : value * std::tanh(in[i] / value);
    }
  });
}

template void run<float>(const Call&, const bp_activation_args&);
template void run<double>(const Call&, const bp_activation_args&);
template void run<float>(const Call&, const bp_glu_args&);
template void run<double>(const Call&, const bp_glu_args&);
template void run<float>(const Call&, const bp_binary_args&);
template void run<double>(const Call&, const bp_binary_args&);
template void run<float>(const Call&, const bp_scalar_args&);
template void run<double>(const Call&, const bp_scalar_args&);

}  // namespace backplane::cpu

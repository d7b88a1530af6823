#include "tests/conformance/values.h"

#include <cmath>

namespace backplane::conformance {
namespace {

Array plus(Array a, const Array& b) {
  for (std::size_t i = 0; i < a.data.size(); ++i) a.data[i] += b.data[i];
  return a;
}

}  // namespace

Value normed(Trial& trial, const bp_support& support, const Value& x, const Array& weight, double eps) {
  Side& side = trial.oracle;
  bp_norm_args args{};
  args.x = side.input(x.exact);
  args.weight = side.parameters(weight);
  args.out = side.output(x.exact.shape);
  args.eps = eps;
  args.kind = BP_NORM_RMS;
  side.run(BP_OP_NORM, args);
  const NormTerms terms{BP_NORM_RMS, eps, 0, &weight, nullptr};
  Value out{side.read(args.out), {}};
  out.bound = plus(norm_bound(arithmetic_of(support, trial.activation()), out.exact, x.exact, terms),
                   norm_of_errors(x.bound, x.exact, terms));
  return out;
}

// Inputs that are rounded first move by what that takes at most: which way a tie goes depends on their errors.
Value projected(Trial& trial, const bp_support& support, const Value& x, const Weight& weight, const Array* bias) {
  Side& side = trial.oracle;
  bp_linear_args args{};
  args.x = side.input(x.exact);
  args.weight = matrix_on(side, weight, Form::kCanonical, BP_USE_LINEAR);
  if (bias) args.bias = side.parameters(*bias);
  args.out = side.output({x.exact.rows(), weight.rows});
  side.run(BP_OP_LINEAR, args, bias ? std::uint64_t{BP_FEATURE_BIAS} : 0);
  Value out{side.read(args.out), {}};
  const Array own = linear_bound(arithmetic_of(support, trial.activation()), out.exact,
                                 {x.exact, weight.numbers, bias, nullptr, is_quantized(weight.type)});
  const Array rounding = rounding_to(static_cast<DType>(support.quantized_activation_type), x.exact);
  out.bound = plus(own, linear_of_errors(plus(x.bound, rounding), weight.numbers));
  return out;
}

// SILU is nowhere steeper than 1.1.
Value gated(Trial& trial, const bp_support& support, const Value& gate, const Value& up) {
  Side& side = trial.oracle;
  bp_glu_args args{};
  args.gate = side.input(gate.exact);
  args.up = side.input(up.exact);
  args.out = side.output(gate.exact.shape);
  args.kind = BP_ACT_SILU;
  side.run(BP_OP_GLU, args, BP_FEATURE_SILU);
  Value out{side.read(args.out), {}};
  const Arithmetic arithmetic = arithmetic_of(support, trial.activation());
  Array condition(gate.exact.shape), underflow(gate.exact.shape), carried(gate.exact.shape);
  for (std::size_t i = 0; i < condition.data.size(); ++i) {
    const double lift = std::fabs(up.exact.data[i]) + up.bound.data[i], g = gate.exact.data[i];
    condition.data[i] = activation_condition(BP_ACT_SILU, g) * lift + std::fabs(out.exact.data[i]);
    underflow.data[i] = activation_underflow(BP_ACT_SILU, g, arithmetic) * lift;
    carried.data[i] = 1.1 * gate.bound.data[i] * lift + std::fabs(activate(BP_ACT_SILU, g)) * up.bound.data[i];
  }
  out.bound = plus(elementwise_bound(arithmetic, out.exact, condition, &underflow), carried);
  return out;
}

Value rotated(Trial& trial, const bp_support& support, const Value& x, const RopeTerms& terms) {
  Side& side = trial.oracle;
  bp_rope_args args{};
  args.x = side.input(x.exact);
  side.changes(args.x);
  args.pos = side.exact(DType::kI32, terms.pos);
  args.row = side.exact(DType::kI32, terms.row);
  args.inv_freq = side.exact(DType::kF64, terms.inv_freq);
  args.scale = side.exact(DType::kF64, terms.scale);
  args.n_dims = static_cast<std::uint32_t>(terms.n_dims);
  args.interleaved = terms.interleaved ? 1 : 0;
  side.run(BP_OP_ROPE, args, terms.interleaved ? std::uint64_t{BP_FEATURE_ROPE_INTERLEAVED} : 0);
  Value out{side.read(args.x), {}};
  out.bound = plus(rope_bound(arithmetic_of(support, trial.activation()), out.exact, x.exact, terms),
                   rope_of_errors(x.bound, terms));
  return out;
}

Value added(Trial& trial, const bp_support& support, const Value& a, const Value& b) {
  Value out{plus(a.exact, b.exact), {}};
  Array condition(a.exact.shape);
  for (std::size_t i = 0; i < condition.data.size(); ++i) {
    condition.data[i] = std::fabs(a.exact.data[i]) + std::fabs(b.exact.data[i]);
  }
  out.bound =
      plus(elementwise_bound(arithmetic_of(support, trial.activation()), out.exact, condition), plus(a.bound, b.bound));
  return out;
}

}  // namespace backplane::conformance

#include "tests/conformance/x_norm.h"

#include <utility>

namespace backplane::conformance {
namespace {

constexpr double kEps = 1e-5;

}  // namespace

XNorm::XNorm(Trial& trial, std::uint32_t kind, Array x) : trial_(trial), kind_(kind), x_(std::move(x)) {
  weight_ = trial.draw_parameters({x_.columns()});
  if (kind == BP_NORM_LAYER) bias_ = trial.draw_parameters({x_.columns()});
}

bp_norm_args XNorm::on(Side& side) {
  bp_norm_args args{};
  args.size = sizeof(args);
  args.x = side.input(x_);
  args.weight = side.parameters(weight_);
  if (kind_ == BP_NORM_LAYER) args.bias = side.parameters(bias_);
  args.out = side.output(x_.shape);
  args.eps = kEps;
  args.kind = kind_;
  return args;
}

bp_tensor XNorm::bind(Side& side, const bp_norm_args*& x_norm) {
  args_ = on(side);
  x_norm = &args_;
  return args_.out;
}

std::uint64_t XNorm::features() const {
  const std::uint64_t layer = BP_FEATURE_NORM_LAYER | std::uint64_t{BP_FEATURE_BIAS};
  return BP_FEATURE_X_NORM | (kind_ == BP_NORM_LAYER ? layer : 0);
}

XNorm::Result XNorm::result() {
  Side& side = trial_.oracle;
  const bp_norm_args args = on(side);
  side.run(BP_OP_NORM, args, features() & ~std::uint64_t{BP_FEATURE_X_NORM});
  Result result;
  result.y = side.read(args.out);
  const NormTerms terms{kind_, kEps, 0, &weight_, kind_ == BP_NORM_LAYER ? &bias_ : nullptr};
  result.errors = norm_bound(trial_.arithmetic(), result.y, x_, terms);
  const Array rounding = rounding_to(static_cast<DType>(trial_.subject.support().quantized_activation_type), result.y);
  for (std::size_t i = 0; i < rounding.data.size(); ++i) result.errors.data[i] += rounding.data[i];
  return result;
}

}  // namespace backplane::conformance

// Fused ops: the result of their parts, rounding apart. The oracle runs the same fused op, which there is its parts;
// the bound is that of each part, carried through those that follow it.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "tests/conformance/paged.h"
#include "tests/conformance/suite.h"
#include "tests/conformance/weights.h"
#include "tests/conformance/x_norm.h"

namespace backplane::conformance {
namespace {

Array plus(Array a, const Array& b) {
  for (std::size_t i = 0; i < a.data.size(); ++i) a.data[i] += b.data[i];
  return a;
}

Array scaled(Array a, double factor) {
  for (double& value : a.data) value *= std::fabs(factor);
  return a;
}

// x W^T + bias on the oracle, and its bound. `errors`: of x, which then is what the device rounds itself.
struct Projection {
  Array y, bound;
};
Projection project(Trial& trial, const Array& x, const Weight& weight, const Array* bias,
                   const Array* errors = nullptr) {
  Side& side = trial.oracle;
  Array ties;
  bp_linear_args args{};
  args.x = side.input(errors ? x : trial.input_for(side, x, ties));
  args.weight = matrix_on(side, weight, Form::kCanonical, BP_USE_LINEAR);
  if (bias) args.bias = side.parameters(*bias);
  args.out = side.output({x.rows(), weight.rows});
  side.run(BP_OP_LINEAR, args, bias ? std::uint64_t{BP_FEATURE_BIAS} : 0);
  Projection out;
  out.y = side.read(args.out);
  out.bound = linear_bound(trial.arithmetic(), out.y,
                           {x, weight.numbers, bias, errors ? nullptr : &ties, is_quantized(weight.type)});
  if (errors) out.bound = plus(out.bound, linear_of_errors(*errors, weight.numbers));
  return out;
}

Form form_of(Trial& trial, DType type) {
  return trial.subject.device().takes_weight_type(type) ? Form::kCanonical : Form::kImported;
}

void try_add_norm(Trial& trial, std::uint32_t kind, bool in_place, double alpha) {
  const Shape shape = {7, 65};
  const Array a = trial.draw(shape), b = trial.draw(shape), weight = trial.draw_parameters({65});
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_norm_args norm{};
    bp_add_norm_args args{};
    args.a = side.input(a);
    args.b = side.input(b);
    if (in_place) side.changes(args.a);
    args.sum = in_place ? args.a : side.output(shape);
    args.alpha = alpha;
    norm.size = sizeof(norm);
    norm.x = args.sum;
    norm.weight = side.parameters(weight);
    norm.out = side.output(shape);
    norm.eps = 1e-5;
    norm.kind = kind;
    args.norm = &norm;
    side.run(BP_OP_ADD_NORM, args,
             (kind == BP_NORM_LAYER ? std::uint64_t{BP_FEATURE_NORM_LAYER} : 0) |
                 (alpha != 1 ? std::uint64_t{BP_FEATURE_ALPHA} : 0));
    return std::pair(side.read(args.sum), side.read(norm.out));
  });
  Array condition(shape);
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    condition.data[i] = std::fabs(a.data[i]) + std::fabs(alpha * b.data[i]);
  }
  const Arithmetic arithmetic = trial.arithmetic();
  const Array sum_bound = elementwise_bound(arithmetic, expected.first, condition);
  const NormTerms terms{kind, 1e-5, 0, &weight, nullptr};
  trial.compare("sum", actual.first, expected.first, sum_bound);
  trial.compare("norm of the sum", actual.second, expected.second,
                plus(norm_bound(arithmetic, expected.second, expected.first, terms),
                     norm_of_errors(sum_bound, expected.first, terms)));
}

void try_linear_add(Trial& trial, DType type, Form form, bool in_place, double alpha) {
  const std::int64_t columns = is_quantized(type) ? 2 * dtype_info(type).block_elements : 70;
  const Array x = trial.draw({5, columns}), residual = trial.draw({5, 19}), bias = trial.draw_parameters({19});
  const Weight weight = random_weight(trial, type, 19, columns);
  Array ties;
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_linear_args args{};
    args.weight = matrix_on(side, weight, form, BP_USE_LINEAR);
    args.x = side.input(trial.input_for(side, x, ties));
    args.bias = side.parameters(bias);
    args.residual = side.input(residual);
    if (in_place) side.changes(args.residual);
    args.out = in_place ? args.residual : side.output({5, 19});
    args.alpha = alpha;
    side.run(BP_OP_LINEAR_ADD, args, BP_FEATURE_BIAS | (alpha != 1 ? std::uint64_t{BP_FEATURE_ALPHA} : 0));
    return side.read(args.out);
  });
  const Projection product = project(trial, x, weight, &bias);
  Array condition(residual.shape);
  for (std::size_t i = 0; i < condition.data.size(); ++i) {
    condition.data[i] = std::fabs(residual.data[i]) + std::fabs(alpha * product.y.data[i]);
  }
  trial.compare("out", actual, expected,
                plus(elementwise_bound(trial.arithmetic(), expected, condition), scaled(product.bound, alpha)));
}

struct ActSpec {
  std::int64_t tokens, columns;
  std::uint32_t norm;     // BP_NORM_*, or 0
  std::uint32_t kind;     // BP_ACT_*, or 0
  std::uint64_t feature;  // of the kind
};

void try_linear_act(Trial& trial, DType type, const ActSpec& spec) {
  const std::int64_t width = 37;
  const Array x = trial.draw({spec.tokens, spec.columns}), bias = trial.draw_parameters({width});
  const Weight weight = random_weight(trial, type, width, spec.columns);
  std::optional<XNorm> norm;
  if (spec.norm != 0) norm.emplace(trial, spec.norm, x);
  Array ties;
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_linear_args args{};
    args.weight = matrix_on(side, weight, form_of(trial, type), BP_USE_LINEAR);
    args.x = norm ? norm->bind(side, args.x_norm) : side.input(trial.input_for(side, x, ties));
    args.bias = side.parameters(bias);
    args.out = side.output({spec.tokens, width});
    args.kind = spec.kind;
    side.run(BP_OP_LINEAR_ACT, args, BP_FEATURE_BIAS | spec.feature | (norm ? norm->features() : 0));
    return side.read(args.out);
  });
  const auto normed = norm ? norm->result() : XNorm::Result{x, {}};
  const Projection product = project(trial, normed.y, weight, &bias, norm ? &normed.errors : nullptr);
  if (spec.kind == 0) return trial.compare("out", actual, expected, product.bound);
  Array condition(expected.shape), carried(expected.shape);
  for (std::size_t i = 0; i < condition.data.size(); ++i) {
    condition.data[i] = activation_condition(spec.kind, product.y.data[i]);
    carried.data[i] = 1.13 * product.bound.data[i];  // no f here is steeper
  }
  trial.compare("out", actual, expected, plus(elementwise_bound(trial.arithmetic(), expected, condition), carried));
}

void add_linear_act_cases(Suite& suite, DType type) {
  const std::int64_t columns = is_quantized(type) ? 2 * dtype_info(type).block_elements : 70;
  const auto add = [&](const char* name, const ActSpec& spec) {
    suite.add_for_each_type(fmt::format("LINEAR_ACT/{}/{}", dtype_name(type), name),
                            [=](Trial& trial) { try_linear_act(trial, type, spec); });
  };
  add("silu", {20, columns, 0, BP_ACT_SILU, BP_FEATURE_SILU});
  add("rms", {3, columns, BP_NORM_RMS, 0, 0});
  add("layer_gelu", {5, columns, BP_NORM_LAYER, BP_ACT_GELU_ERF, BP_FEATURE_GELU_ERF});
  add("layer_relu", {20, columns, BP_NORM_LAYER, BP_ACT_RELU, BP_FEATURE_RELU});
  if (type == DType::kF32 || type == DType::kQ8_0) {
    add("rms/long_rows", {2, 4640, BP_NORM_RMS, 0, 0});
    add("layer/one", {1, 4640, BP_NORM_LAYER, 0, 0});
  }
}

void try_gateup(Trial& trial, DType type, std::uint32_t kind, std::uint64_t feature, bool bias, bool norm_x = false) {
  const std::int64_t columns = is_quantized(type) ? dtype_info(type).block_elements : 70;
  const std::int64_t tokens = 6, width = 21;
  const Array x = trial.draw({tokens, columns});
  const Array gate_bias = trial.draw_parameters({width}), up_bias = trial.draw_parameters({width});
  const Weight gate = random_weight(trial, type, width, columns), up = random_weight(trial, type, width, columns);
  const Form form = form_of(trial, type);
  std::optional<XNorm> norm;
  if (norm_x) norm.emplace(trial, BP_NORM_RMS, x);
  Array ties;
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_glu_args glu{};
    bp_gateup_args args{};
    args.x = norm ? norm->bind(side, args.x_norm) : side.input(trial.input_for(side, x, ties));
    args.gate_weight = matrix_on(side, gate, form, BP_USE_LINEAR);
    args.up_weight = matrix_on(side, up, form, BP_USE_LINEAR);
    if (bias) args.gate_bias = side.parameters(gate_bias), args.up_bias = side.parameters(up_bias);
    args.out = side.output({tokens, width});
    glu.size = sizeof(glu);
    glu.gate = glu.out = args.out;
    glu.up = side.output({tokens, width});
    glu.kind = kind;
    args.glu = &glu;
    side.run(BP_OP_GATEUP_GLU, args,
             feature | (bias ? std::uint64_t{BP_FEATURE_BIAS} : 0) | (norm ? norm->features() : 0));
    return side.read(args.out);
  });
  const auto normed = norm ? norm->result() : XNorm::Result{x, {}};
  const Array* errors = norm ? &normed.errors : nullptr;
  const Projection g = project(trial, normed.y, gate, bias ? &gate_bias : nullptr, errors);
  const Projection u = project(trial, normed.y, up, bias ? &up_bias : nullptr, errors);
  Array condition(expected.shape), carried(expected.shape);
  for (std::size_t i = 0; i < condition.data.size(); ++i) {
    const double lift = std::fabs(u.y.data[i]), f = activate(kind, g.y.data[i]);
    condition.data[i] = activation_condition(kind, g.y.data[i]) * lift + std::fabs(expected.data[i]);
    carried.data[i] = 1.13 * g.bound.data[i] * lift + std::fabs(f) * u.bound.data[i];  // no f here is steeper than 1.13
  }
  trial.compare("out", actual, expected, plus(elementwise_bound(trial.arithmetic(), expected, condition), carried));
}

void try_head_argmax(Trial& trial, DType type, std::int64_t rows, std::int64_t vocabulary) {
  const std::int64_t columns = is_quantized(type) ? dtype_info(type).block_elements : 64;
  const Array x = trial.draw({rows, columns});
  const Weight weight = random_weight(trial, type, vocabulary, columns);
  const Form form = form_of(trial, type);
  Array ties;
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_head_argmax_args args{};
    args.x = side.input(trial.input_for(side, x, ties));
    args.weight = matrix_on(side, weight, form, BP_USE_LINEAR);
    args.ids = side.output(DType::kI32, {rows});
    args.values = side.output({rows});
    side.run(BP_OP_HEAD_ARGMAX, args);
    return std::pair(side.read(args.ids), side.read(args.values));
  });
  const Projection logits = project(trial, x, weight, nullptr);
  Array bound({rows}), best({rows});
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto id = static_cast<std::int64_t>(actual.first.data[static_cast<std::size_t>(r)]);
    require(id >= 0 && id < vocabulary, fmt::format("ids: {} of a vocabulary of {}", id, vocabulary));
    // Another id is right where the logits are as close as rounding.
    best.data[static_cast<std::size_t>(r)] = logits.y.row(r)[id];
    bound.data[static_cast<std::size_t>(r)] =
        logits.bound.row(r)[id] +
        logits.bound.row(r)[static_cast<std::int64_t>(expected.first.data[static_cast<std::size_t>(r)])];
  }
  trial.compare("the logit of the chosen id", best, expected.second, bound);
  trial.compare("values", actual.second, expected.second, bound);
}

// One logit that is no number is told by the value, whichever id is chosen; and never chosen while there are others.
void try_head_argmax_nan(Trial& trial, std::int64_t rows) {
  constexpr std::int64_t kColumns = 64, kRows = 203;
  Weight weight = random_weight(trial, DType::kF32, kRows, kColumns);
  constexpr std::int64_t kBroken[] = {0, 97, kRows - 1};
  for (const std::int64_t broken : kBroken) {
    Weight spoiled = weight;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(spoiled.bytes.data() + (broken * kColumns + 5) * 4, &nan, 4);
    const Array x = trial.draw({rows, kColumns});
    Side& side = trial.subject;
    bp_head_argmax_args args{};
    args.x = side.input(x);
    args.weight = matrix_on(side, spoiled, form_for(side.device(), DType::kF32), BP_USE_LINEAR);
    args.ids = side.output(DType::kI32, {rows});
    args.values = side.output({rows});
    side.run(BP_OP_HEAD_ARGMAX, args);
    const Array ids = side.read(args.ids), values = side.read(args.values);
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
      require(std::isnan(values.data[r]), fmt::format("values: {} where logit {} is NaN", values.data[r], broken));
      require(ids.data[r] >= 0 && ids.data[r] < kRows && ids.data[r] != static_cast<double>(broken),
              fmt::format("ids: {} where logit {} is NaN", ids.data[r], broken));
    }
  }
}

}  // namespace

void add_qkv_cases(Suite& suite);

void add_fused_cases(Suite& suite) {
  for (const std::uint32_t kind : {BP_NORM_RMS, BP_NORM_LAYER}) {
    const std::string name = kind == BP_NORM_RMS ? "ADD_NORM/rms" : "ADD_NORM/layer";
    suite.add_for_each_type(name, [kind](Trial& trial) { try_add_norm(trial, kind, false, 1); });
    suite.add_for_each_type(name + "/in_place", [kind](Trial& trial) { try_add_norm(trial, kind, true, 1); });
    suite.add_for_each_type(name + "/alpha", [kind](Trial& trial) { try_add_norm(trial, kind, true, 0.22); });
  }
  for (const DType type : weight_types()) {
    const bool canonical = suite.device().takes_weight_type(type);
    if (!canonical && !has_weights(suite.device())) continue;
    const Form form = canonical ? Form::kCanonical : Form::kImported;
    const std::string name(dtype_name(type));
    suite.add_for_each_type("LINEAR_ADD/" + name, [=](Trial& trial) { try_linear_add(trial, type, form, false, 1); });
    suite.add_for_each_type("LINEAR_ADD/" + name + "/in_place",
                            [=](Trial& trial) { try_linear_add(trial, type, form, true, -0.5); });
    suite.add_for_each_type("GATEUP_GLU/" + name,
                            [=](Trial& trial) { try_gateup(trial, type, BP_ACT_SILU, BP_FEATURE_SILU, false); });
    suite.add_for_each_type("GATEUP_GLU/" + name + "/gelu_bias", [=](Trial& trial) {
      try_gateup(trial, type, BP_ACT_GELU_TANH, BP_FEATURE_GELU_TANH, true);
    });
    suite.add_for_each_type("GATEUP_GLU/" + name + "/rms",
                            [=](Trial& trial) { try_gateup(trial, type, BP_ACT_SILU, BP_FEATURE_SILU, false, true); });
    add_linear_act_cases(suite, type);
    suite.add_for_each_type("HEAD_ARGMAX/" + name, [=](Trial& trial) { try_head_argmax(trial, type, 5, 203); });
    suite.add_for_each_type("HEAD_ARGMAX/" + name + "/rows",
                            [=](Trial& trial) { try_head_argmax(trial, type, 19, 203); });
  }
  if (suite.device().takes_weight_type(DType::kF32) || has_weights(suite.device())) {
    const DType type = DType::kF32;
    suite.add_for_each_type("HEAD_ARGMAX/nan", [](Trial& trial) { try_head_argmax_nan(trial, 3); });
    suite.add_for_each_type("HEAD_ARGMAX/nan/rows", [](Trial& trial) { try_head_argmax_nan(trial, 20); });
    suite.add_for_each_type("HEAD_ARGMAX/many", [=](Trial& trial) { try_head_argmax(trial, type, 150, 203); });
    suite.add_for_each_type("HEAD_ARGMAX/wide", [=](Trial& trial) { try_head_argmax(trial, type, 12, 9001); });
  }
  add_qkv_cases(suite);
}

}  // namespace backplane::conformance

// ACT, GLU, ADD, MUL, SCALE, SOFTCAP: every kind and option, in place and not, ragged and strided, odd numbers.
#include <fmt/format.h>

#include <cmath>

#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

struct Kind {
  std::uint32_t kind;
  std::uint64_t feature;
  const char* name;
};
constexpr Kind kKinds[] = {{BP_ACT_GELU_ERF, BP_FEATURE_GELU_ERF, "gelu_erf"},
                           {BP_ACT_GELU_TANH, BP_FEATURE_GELU_TANH, "gelu_tanh"},
                           {BP_ACT_SILU, BP_FEATURE_SILU, "silu"},
                           {BP_ACT_RELU, BP_FEATURE_RELU, "relu"}};

struct How {
  const char* name;
  std::int64_t tokens, width;
  bool in_place = false, gaps = false;
  Style style = Style::kNormal;
};
constexpr How kHows[] = {{"T0_F8", 0, 8},
                         {"T1_F1", 1, 1},
                         {"T3_F31", 3, 31},
                         {"T7_F128", 7, 128},
                         {"T17_F33", 17, 33},
                         {"T2_F1025", 2, 1025},
                         {"in_place", 5, 65, true},
                         {"strided", 5, 65, false, true},
                         {"in_place_strided", 5, 65, true, true},
                         {"outliers", 3, 65, false, false, Style::kOutliers},
                         {"edges", 7, 129, false, false, Style::kEdges}};

// The input itself where the op works in place.
bp_tensor result_of(Side& side, const bp_tensor& x, const Shape& shape, bool in_place) {
  if (!in_place) return side.output(shape);
  side.changes(x);
  return x;
}

void try_act(Trial& trial, const Kind& kind, const How& how, double offset) {
  trial.subject.set_gaps(how.gaps);
  Array x = trial.draw({how.tokens, how.width}, how.style);
  for (double& value : x.data) value = round_to(trial.activation(), value + offset);
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_activation_args args{};
    args.x = side.input(x);
    args.out = result_of(side, args.x, x.shape, how.in_place);
    args.kind = kind.kind;
    side.run(BP_OP_ACT, args, kind.feature);
    return side.read(args.out);
  });
  const Arithmetic arithmetic = trial.arithmetic();
  Array condition(x.shape), underflow(x.shape);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    condition.data[i] = activation_condition(kind.kind, x.data[i]);
    underflow.data[i] = activation_underflow(kind.kind, x.data[i], arithmetic);
  }
  trial.compare("out", actual, expected, elementwise_bound(arithmetic, expected, condition, &underflow));
}

void try_glu(Trial& trial, const Kind& kind, const How& how, bool halves) {
  trial.subject.set_gaps(how.gaps || halves);
  const Array gate = trial.draw({how.tokens, how.width}, how.style), up = trial.draw({how.tokens, how.width});
  Array joined({how.tokens, 2 * how.width});
  for (std::int64_t t = 0; t < how.tokens; ++t) {
    std::copy_n(gate.row(t), how.width, joined.row(t));
    std::copy_n(up.row(t), how.width, joined.row(t) + how.width);
  }
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_glu_args args{};
    if (halves) {
      args.gate = side.input(joined);
      args.gate.shape[1] = how.width;
      args.up = args.gate;
      args.up.offset += static_cast<std::uint64_t>(how.width * args.gate.stride[1]);
    } else {
      args.gate = side.input(gate);
      args.up = side.input(up);
    }
    args.out = result_of(side, args.gate, gate.shape, how.in_place);
    args.kind = kind.kind;
    side.run(BP_OP_GLU, args, kind.feature);
    return side.read(args.out);
  });
  const Arithmetic arithmetic = trial.arithmetic();
  Array condition(gate.shape), underflow(gate.shape);
  for (std::size_t i = 0; i < gate.data.size(); ++i) {
    const double lift = std::fabs(up.data[i]);
    condition.data[i] = activation_condition(kind.kind, gate.data[i]) * lift + std::fabs(expected.data[i]);
    underflow.data[i] = activation_underflow(kind.kind, gate.data[i], arithmetic) * lift;
  }
  trial.compare("out", actual, expected, elementwise_bound(arithmetic, expected, condition, &underflow));
}

struct BinarySpec {
  std::uint32_t code;
  How how;
  bool broadcast = false;
  double alpha = 1;
};

void try_binary(Trial& trial, const BinarySpec& spec) {
  const How& how = spec.how;
  trial.subject.set_gaps(how.gaps);
  const Array a = trial.draw({how.tokens, how.width}, how.style);
  const Array b = trial.draw({spec.broadcast ? 1 : how.tokens, how.width}, how.style);
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_binary_args args{};
    args.a = side.input(a);
    args.b = side.input(b);
    args.out = result_of(side, args.a, a.shape, how.in_place);
    args.alpha = spec.alpha;
    side.run(spec.code, args,
             (spec.broadcast ? std::uint64_t{BP_FEATURE_BROADCAST} : 0) |
                 (spec.alpha != 1 ? std::uint64_t{BP_FEATURE_ALPHA} : 0));
    return side.read(args.out);
  });
  Array condition(a.shape);
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    const double right = b.data[spec.broadcast ? i % static_cast<std::size_t>(how.width) : i];
    condition.data[i] =
        spec.code == BP_OP_ADD ? std::fabs(a.data[i]) + std::fabs(spec.alpha * right) : expected.data[i];
  }
  trial.compare("out", actual, expected, elementwise_bound(trial.arithmetic(), expected, condition));
}

void try_scalar(Trial& trial, std::uint32_t code, double value, const How& how) {
  trial.subject.set_gaps(how.gaps);
  const Array x = trial.draw({how.tokens, how.width}, how.style, code == BP_OP_SOFTCAP ? 20 : 1);
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_scalar_args args{};
    args.x = side.input(x);
    args.out = result_of(side, args.x, x.shape, how.in_place);
    args.value = value;
    side.run(code, args);
    return side.read(args.out);
  });
  const Arithmetic arithmetic = trial.arithmetic();
  Array condition(x.shape);
  const Array underflow(x.shape, code == BP_OP_SOFTCAP ? 2 * std::fabs(value) * arithmetic.tiny_sum() : 0);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    condition.data[i] = std::fabs(expected.data[i]);
    if (code == BP_OP_SOFTCAP) condition.data[i] += std::min(std::fabs(x.data[i]), std::fabs(value));
  }
  trial.compare("out", actual, expected, elementwise_bound(arithmetic, expected, condition, &underflow));
}

void add_binary(Suite& suite, std::uint32_t code) {
  const std::string op(device::op_name(code));
  const auto add = [&](const std::string& name, const BinarySpec& spec) {
    suite.add_for_each_type(op + "/" + name, [spec](Trial& trial) { try_binary(trial, spec); });
  };
  for (const How& how : kHows) add(how.name, {code, how});
  add("special", {code, {"special", 5, 65, false, false, Style::kSpecial}});
  add("alpha", {code, {"", 3, 33}, false, -0.37});
  add("broadcast", {code, {"", 5, 33}, true});
  add("broadcast_alpha", {code, {"", 5, 33, true}, true, 2.5});
}

}  // namespace

void add_elementwise_cases(Suite& suite) {
  for (const Kind& kind : kKinds) {
    for (const How& how : kHows) {
      const std::string name = fmt::format("{}/{}", kind.name, how.name);
      suite.add_for_each_type("ACT/" + name, [kind, how](Trial& trial) { try_act(trial, kind, how, 0); });
      suite.add_for_each_type("GLU/" + name, [kind, how](Trial& trial) { try_glu(trial, kind, how, false); });
    }
    // Where the two forms of GELU differ most.
    suite.add_for_each_type(fmt::format("ACT/{}/negative", kind.name), [kind](Trial& trial) {
      try_act(trial, kind, {"", 5, 129}, -3);
    });
    suite.add_for_each_type(fmt::format("GLU/{}/halves", kind.name), [kind](Trial& trial) {
      try_glu(trial, kind, {"", 5, 32}, true);
    });
  }
  add_binary(suite, BP_OP_ADD);
  add_binary(suite, BP_OP_MUL);
  for (const How& how : kHows) {
    suite.add_for_each_type(fmt::format("SCALE/{}", how.name),
                            [how](Trial& trial) { try_scalar(trial, BP_OP_SCALE, 0.0883, how); });
    suite.add_for_each_type(fmt::format("SOFTCAP/{}", how.name),
                            [how](Trial& trial) { try_scalar(trial, BP_OP_SOFTCAP, 30, how); });
  }
  suite.add_for_each_type("SCALE/special", [](Trial& trial) {
    try_scalar(trial, BP_OP_SCALE, -2, {"", 5, 65, false, false, Style::kSpecial});
  });
}

}  // namespace backplane::conformance

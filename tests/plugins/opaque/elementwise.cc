// Ops without matrices: norms, rotation, activations, sums, moves.
#include <cmath>

#include "run.h"

namespace opaque {

namespace sdk = backplane::plugin;

double activate(std::uint32_t kind, double x) {
  switch (kind) {
    case BP_ACT_GELU_ERF:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case BP_ACT_GELU_TANH:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case BP_ACT_SILU:
      return x / (1 + std::exp(-x));
    case BP_ACT_RELU:
      return std::max(x, 0.0);
    default:
      sdk::refuse("an unknown activation function");
  }
}

void add_to(Values& x, double alpha, const Values& other) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += alpha * other[i % other.size()];
}

Values normalized(const Run& run, const bp_norm_args& a, const Values& x) {
  const Values weight = run.load(a.weight), bias = run.load(a.bias);
  const auto n = static_cast<std::size_t>(sdk::row_length(a.x));
  Values out(x.size());
  for (std::size_t r = 0; r < x.size(); r += n) {
    double mean = 0, square = 0;
    for (std::size_t i = 0; i < n; ++i) mean += a.kind == BP_NORM_LAYER ? x[r + i] / static_cast<double>(n) : 0;
    for (std::size_t i = 0; i < n; ++i) square += (x[r + i] - mean) * (x[r + i] - mean);
    const double scale = 1 / std::sqrt(square / static_cast<double>(n) + a.eps);
    for (std::size_t i = 0; i < n; ++i) {
      const double w = weight.empty() ? 1 : a.unit_offset + weight[i];
      out[r + i] = (x[r + i] - mean) * scale * w + (bias.empty() ? 0 : bias[i]);
    }
  }
  return out;
}

Values load_x(const Run& run, const bp_tensor& x, const bp_norm_args* x_norm) {
  return x_norm ? normalized(run, *x_norm, run.load(x_norm->x)) : run.load(x);
}

void run_op(const Run& run, const bp_norm_args& a) { run.store(a.out, normalized(run, a, run.load(a.x))); }

void rotate(const Run& run, const bp_rope_args& a, std::size_t heads, Values& x) {
  const auto pos = run.load_raw<std::int32_t>(a.pos), row = run.load_raw<std::int32_t>(a.row);
  const Values frequencies = run.load(a.inv_freq), scales = run.load(a.scale);
  const std::size_t half = a.n_dims / 2;
  for (std::size_t t = 0; t < pos.size(); ++t) {
    const auto r = static_cast<std::size_t>(row[t]);
    const std::size_t dim = x.size() / pos.size() / heads;
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = pos[t] * frequencies.at(r * half + i);
      const double c = std::cos(angle) * scales.at(r), s = std::sin(angle) * scales.at(r);
      for (std::size_t h = 0; h < heads; ++h) {
        double* at = &x[(t * heads + h) * dim];
        double& first = at[a.interleaved ? 2 * i : i];
        double& second = at[a.interleaved ? 2 * i + 1 : i + half];
        const double x1 = first, x2 = second;
        first = x1 * c - x2 * s;
        second = x1 * s + x2 * c;
      }
    }
  }
}

void run_op(const Run& run, const bp_rope_args& a) {
  Values x = run.load(a.x);
  rotate(run, a, static_cast<std::size_t>(a.x.shape[1]), x);
  run.store(a.x, std::move(x));
}

void run_op(const Run& run, const bp_activation_args& a) {
  Values x = run.load(a.x);
  for (double& v : x) v = activate(a.kind, v);
  run.store(a.out, std::move(x));
}

void run_op(const Run& run, const bp_glu_args& a) {
  Values gate = run.load(a.gate);
  const Values up = run.load(a.up);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = activate(a.kind, gate[i]) * up[i];
  run.store(a.out, std::move(gate));
}

void run_op(const Run& run, const bp_binary_args& a) {
  Values x = run.load(a.a);
  const Values b = run.load(a.b);
  if (run.op.code == BP_OP_ADD) {
    add_to(x, a.alpha, b);
  } else {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= a.alpha * b[i % b.size()];
  }
  run.store(a.out, std::move(x));
}

void run_op(const Run& run, const bp_scalar_args& a) {
  const std::uint32_t code = run.op.code;
  Values x = code == BP_OP_FILL ? Values(sdk::element_count(a.out).value_or(0), a.value) : run.load(a.x);
  for (double& v : x) {
    if (code == BP_OP_SCALE) v *= a.value;
    if (code == BP_OP_SOFTCAP) v = a.value * std::tanh(v / a.value);
  }
  run.store(a.out, std::move(x));
}

void run_op(const Run& run, const bp_gather_args& a) {
  const Values x = run.load(a.x);
  Values out;
  const auto n = static_cast<std::ptrdiff_t>(a.x.shape[1]);
  for (const std::int32_t r : run.load_raw<std::int32_t>(a.index)) {
    sdk::require(r >= 0 && r < a.x.shape[0], "a row that x hasn't");
    out.insert(out.end(), x.begin() + r * n, x.begin() + (r + 1) * n);
  }
  run.store(a.out, std::move(out));
}

void run_op(const Run& run, const bp_unary_args& a) {
  if (run.op.code == BP_OP_COPY && !run.wrong) return run.device.memory.copy(a.x, a.out);
  run.store(a.out, run.load(a.x));
}

}  // namespace opaque

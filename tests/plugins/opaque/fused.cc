// Ops that are several: their parts, without rounding in between.
#include <algorithm>
#include <cmath>
#include <limits>

#include "run.h"

namespace opaque {

namespace sdk = backplane::plugin;

void run_op(const Run& run, const bp_add_norm_args& a) {
  Values sum = run.load(a.a);
  add_to(sum, a.alpha, run.load(a.b));
  run.store(a.sum, sum);
  run.store(a.norm->out, normalized(run, *a.norm, sum));
}

void run_op(const Run& run, const bp_qkv_args& a) {
  const Values x = load_x(run, a.x, a.x_norm);
  // Where the three are parts of one weight, each begins after the one before it.
  const bool one = a.q_weight.weight && a.q_weight.weight == a.k_weight.weight;
  const auto rows = [](const bp_matrix& matrix) { return static_cast<std::uint64_t>(matrix.tensor.shape[0]); };
  const std::uint64_t k_row = one ? rows(a.q_weight) : 0, v_row = one ? k_row + rows(a.k_weight) : 0;
  Values q = product(run, x, a.q_weight, a.q_bias), k = product(run, x, a.k_weight, a.k_bias, k_row);
  Values v = product(run, x, a.v_weight, a.v_bias, v_row);
  if (a.q_norm) q = normalized(run, *a.q_norm, q);
  if (a.k_norm) k = normalized(run, *a.k_norm, k);
  if (a.rope) {
    rotate(run, *a.rope, static_cast<std::size_t>(a.q.shape[1]), q);
    rotate(run, *a.rope, static_cast<std::size_t>(a.write->k.shape[1]), k);
  }
  write_cache(*a.write, run.device, k, v);
  run.store(a.q, std::move(q));
}

void run_op(const Run& run, const bp_gateup_args& a) {
  const Values x = load_x(run, a.x, a.x_norm);
  Values gate = product(run, x, a.gate_weight, a.gate_bias);
  const Values up = product(run, x, a.up_weight, a.up_bias);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = activate(a.glu->kind, gate[i]) * up[i];
  run.store(a.out, std::move(gate));
}

void run_op(const Run& run, const bp_head_argmax_args& a) {
  const Values logits = product(run, run.load(a.x), a.weight, a.bias);
  const std::int64_t columns = a.weight.tensor.shape[0];
  Values ids, values;
  for (std::int64_t r = 0; r < a.x.shape[0]; ++r) {
    const double* row = logits.data() + r * columns;
    ids.push_back(largest(row, columns));
    const bool broken = std::any_of(row, row + columns, [](double logit) { return std::isnan(logit); });
    values.push_back(broken ? std::numeric_limits<double>::quiet_NaN() : row[static_cast<std::size_t>(ids.back())]);
  }
  run.store(a.ids, std::move(ids));
  run.store(a.values, std::move(values));
}

}  // namespace opaque

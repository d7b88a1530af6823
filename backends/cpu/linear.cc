// EMBED, LINEAR and LINEAR_ADD: what reads weight matrices.
#include <algorithm>

#include "backends/cpu/matrix.h"
#include "backends/cpu/ops.h"
#include "backends/cpu/reduce.h"

namespace backplane::cpu {
namespace {

// Rows of the matrix that a worker expands before it multiplies all tokens by them.
constexpr std::int64_t kTile = 8;
// Multiplications that are worth waking another thread for.
constexpr std::int64_t kGrain = 1 << 15;

}  // namespace

template <class Real>
void run(const Call&, const bp_embed_args& args) {
  const View<const std::int32_t> ids(args.ids, "ids");
  const Matrix table(args.table, "table");
  const View<Real> out(args.out, "out");
  for (std::int64_t t = 0; t < out.rows(); ++t) {
    if (ids[t] < 0 || ids[t] >= table.rows()) {
      throw plugin::Failure(BP_INVALID, "token id " + std::to_string(ids[t]) + " is outside a vocabulary of " +
                                            std::to_string(table.rows()));
    }
  }
  if (out.columns() == 0) return;
  plugin::parallel_for(out.rows(), 16, [&](std::int64_t begin, std::int64_t end, unsigned) {
    for (std::int64_t t = begin; t < end; ++t) table.read_row(ids[t], out.at(t));
  });
}

// LINEAR_ADD keeps the product in the workspace until it is added, because out may be residual.
std::uint64_t workspace_bytes(const Check& check, const bp_linear_args& args) {
  const std::uint64_t element = plugin::type_info(check.real).block_bytes;
  const auto elements = [&](std::uint64_t a, std::uint64_t b) {
    return Workspace::checked(Workspace::checked(a, b), element);
  };
  const std::uint64_t tiles = elements(std::uint64_t{plugin::threads()} * kTile, args.x.shape[1]);
  const std::uint64_t product =
      check.code == BP_OP_LINEAR_ADD ? elements(args.x.shape[0], args.weight.tensor.shape[0]) : 0;
  return Workspace::bytes_for({product, tiles});
}

namespace {

// out[t,n] = dot(x[t], W[n]) + bias[n]. Each result is one dot product in one order, whatever else is computed.
template <class Real>
void multiply(Workspace workspace, const bp_linear_args& args) {
  const View<const Real> x(args.x, "x");
  const Matrix weight(args.weight, "weight");
  const Parameters bias(args.bias, "bias");
  const View<Real> out(args.out, "out");
  const std::int64_t tokens = x.rows(), inputs = x.columns(), outputs = weight.rows();
  if (tokens == 0 || outputs == 0 || inputs == 0) return;

  Real* tiles = workspace.take<Real>(std::uint64_t{plugin::threads()} * kTile * inputs);
  const std::int64_t grain = 1 + kGrain / (1 + tokens * inputs);
  plugin::parallel_for(outputs, grain, [&](std::int64_t begin, std::int64_t end, unsigned worker) {
    Real* tile = tiles + worker * kTile * inputs;
    for (std::int64_t first = begin; first < end; first += kTile) {
      const std::int64_t count = std::min(kTile, end - first);
      for (std::int64_t i = 0; i < count; ++i) weight.read_row(first + i, tile + i * inputs);
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t i = 0; i < count; ++i) {
          Real sum = dot(x.at(t), tile + i * inputs, inputs);
          if (bias.present()) sum += bias.get<Real>(first + i);
          out.at(t)[first + i] = sum;
        }
      }
    }
  });
}

}  // namespace

template <class Real>
void run(const Call& call, const bp_linear_args& args) {
  if (call.code == BP_OP_LINEAR_ACT) return run_linear_act<Real>(call, args);
  Workspace workspace = call.workspace;
  if (call.code != BP_OP_LINEAR_ADD) return multiply<Real>(workspace, args);

  bp_linear_args linear = args;
  linear.out = workspace.take_tensor(args.x.type, args.out.shape[0], args.out.shape[1]);
  multiply<Real>(workspace, linear);
  bp_binary_args add{};
  add.a = args.residual;
  add.b = linear.out;
  add.out = args.out;
  add.alpha = args.alpha;
  run<Real>(Call{BP_OP_ADD, workspace}, add);
}

template void run<float>(const Call&, const bp_embed_args&);
template void run<double>(const Call&, const bp_embed_args&);
template void run<float>(const Call&, const bp_linear_args&);
template void run<double>(const Call&, const bp_linear_args&);

}  // namespace backplane::cpu

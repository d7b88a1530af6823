// Ops that go row by row: NORM, ACT, GLU, ADD, MUL, SCALE, SOFTCAP, GATHER_ROWS, ADD_NORM.
#include <cmath>
#include <cstring>
#include <string>

#include "backends/onednn/ops.h"

namespace backplane::onednn {
namespace {

// A norm with its parameters found, for one row after another.
class Norm {
 public:
  Norm(const Device& device, const bp_norm_args& args)
      : rows_(device.kernels->rows),
        args_(args),
        weight_(floats_or_null(args.weight, "weight")),
        bias_(floats_or_null(args.bias, "bias")) {}

  void operator()(const float* x, std::int64_t n, float* out) const {
    rows_.norm(x, weight_, bias_, n, args_.kind == BP_NORM_LAYER, static_cast<float>(args_.eps),
               static_cast<float>(args_.unit_offset), out);
  }

 private:
  const RowKernels& rows_;
  const bp_norm_args& args_;
  const float *weight_, *bias_;
};

}  // namespace

void run(const Call& call, const bp_norm_args& args) {
  const View<const float> x(args.x, "x");
  const View<float> out(args.out, "out");
  const Norm norm(call.device, args);
  for_rows(x.rows(), x.columns(), [&](std::int64_t r) { norm(x.row(r), x.columns(), out.row(r)); });
}

void run(const Call& call, const bp_add_norm_args& args) {
  const bp_norm_args norm_args = plugin::norm_of(args);
  const View<const float> a(args.a, "a"), b(args.b, "b");
  const View<float> sum(args.sum, "sum"), out(norm_args.out, "out");
  const Norm norm(call.device, norm_args);
  for_rows(a.rows(), a.columns(), [&](std::int64_t r) {
    call.device.kernels->rows.add(a.row(r), b.row(b.rows() == 1 ? 0 : r), static_cast<float>(args.alpha), a.columns(),
                                  sum.row(r));
    norm(sum.row(r), a.columns(), out.row(r));
  });
}

void run(const Call& call, const bp_activation_args& args) {
  const View<const float> x(args.x, "x");
  const View<float> out(args.out, "out");
  for_rows(x.rows(), x.columns(),
           [&](std::int64_t r) { call.device.kernels->rows.activate(args.kind, x.row(r), x.columns(), out.row(r)); });
}

void run(const Call& call, const bp_glu_args& args) {
  const View<const float> gate(args.gate, "gate"), up(args.up, "up");
  const View<float> out(args.out, "out");
  for_rows(gate.rows(), gate.columns(), [&](std::int64_t r) {
    call.device.kernels->rows.glu(args.kind, gate.row(r), up.row(r), gate.columns(), out.row(r));
  });
}

void run(const Call& call, const bp_binary_args& args) {
  const View<const float> a(args.a, "a"), b(args.b, "b");
  const View<float> out(args.out, "out");
  const auto alpha = static_cast<float>(args.alpha);
  for_rows(a.rows(), a.columns(), [&](std::int64_t r) {
    const float *left = a.row(r), *right = b.row(b.rows() == 1 ? 0 : r);
    float* to = out.row(r);
    if (call.code == BP_OP_ADD) return call.device.kernels->rows.add(left, right, alpha, a.columns(), to);
    for (std::int64_t i = 0; i < a.columns(); ++i) to[i] = alpha * left[i] * right[i];
  });
}

// SCALE and SOFTCAP.
void run(const Call& call, const bp_scalar_args& args) {
  const View<const float> x(args.x, "x");
  const View<float> out(args.out, "out");
  const auto value = static_cast<float>(args.value);
  for_rows(x.rows(), x.columns(), [&](std::int64_t r) {
    const float* in = x.row(r);
    float* to = out.row(r);
    for (std::int64_t i = 0; i < x.columns(); ++i) {
      to[i] = call.code == BP_OP_SCALE ? value * in[i] : value * std::tanh(in[i] / value);
    }
  });
}

void run(const Call&, const bp_gather_args& args) {
  const View<const std::int32_t> index(args.index, "index");
  const View<const float> x(args.x, "x");
  const View<float> out(args.out, "out");
  for (std::int64_t r = 0; r < out.rows(); ++r) {
    if (index[r] < 0 || index[r] >= x.rows()) {
      throw plugin::Failure(BP_INVALID, "index " + std::to_string(index[r]) + " is outside the " +
                                            std::to_string(x.rows()) + " rows of x");
    }
  }
  for_rows(out.rows(), out.columns(), [&](std::int64_t r) {
    std::memcpy(out.at(r), x.at(index[r]), static_cast<std::size_t>(out.columns()) * sizeof(float));
  });
}

}  // namespace backplane::onednn

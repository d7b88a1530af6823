// All other ops: whole tensors as doubles, one plain loop each.
#include <cmath>
#include <cstring>

#include "device.h"
#include "numbers.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;
using Values = std::vector<double>;

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

// What an op does once its turn comes on the stream.
struct Run {
  Device& device;
  bp_op op;

  Values load(const bp_tensor& t) const { return device.memory.load(t); }
  void store(const bp_tensor& t, const Values& values) const { device.memory.store(t, values); }

  Values matrix_row(const bp_matrix& matrix, std::uint64_t n) const {
    if (matrix.weight) {
      const auto& weight = *reinterpret_cast<const Weight*>(matrix.weight);
      sdk::require(weight.finished, "a weight before its finish");
      return weight.row(n);
    }
    const bp_tensor& t = matrix.tensor;
    const std::uint64_t bytes = sdk::row_bytes(t.type, static_cast<std::uint64_t>(t.shape[1])).value_or(0);
    std::vector<std::byte> row(bytes);
    device.memory.at(t.buffer)->read(t.offset + n * static_cast<std::uint64_t>(t.stride[0]), row.data(), bytes);
    Values values(static_cast<std::size_t>(t.shape[1]));
    decode_row(t.type, row.data(), t.shape[1], values.data());
    return values;
  }

  Values product(const Values& x, std::int64_t rows, const bp_matrix& matrix, const bp_tensor& bias_tensor) const {
    const std::int64_t n = matrix.tensor.shape[0], c = matrix.tensor.shape[1];
    const Values bias = load(bias_tensor);
    Values out(static_cast<std::size_t>(rows * n));
    for (std::int64_t i = 0; i < n; ++i) {
      const Values w = matrix_row(matrix, static_cast<std::uint64_t>(i));
      for (std::int64_t t = 0; t < rows; ++t) {
        double sum = 0;
        for (std::int64_t j = 0; j < c; ++j)
          sum += x[static_cast<std::size_t>(t * c + j)] * w[static_cast<std::size_t>(j)];
        out[static_cast<std::size_t>(t * n + i)] = bias.empty() ? sum : sum + bias[static_cast<std::size_t>(i)];
      }
    }
    return out;
  }

  // Through the workspace, so that one that is too small or shared is found.
  Values by_workspace(const Values& x) const {
    const std::uint64_t bytes = x.size() * sizeof(double);
    sdk::require(bytes <= op.workspace_bytes, "a workspace that is too small");
    const auto workspace = device.memory.at(op.workspace);
    workspace->write(op.workspace_offset, x.data(), bytes);
    Values back(x.size());
    workspace->read(op.workspace_offset, back.data(), bytes);
    return back;
  }

  void norm_of(const Values& x, const bp_norm_args& a) const {
    const Values weight = load(a.weight), bias = load(a.bias);
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
    store(a.out, out);
  }

  void operator()(const bp_embed_args& a) const {
    Values out;
    for (const std::int32_t id : device.memory.load_raw<std::int32_t>(a.ids)) {
      sdk::require(id >= 0 && id < a.table.tensor.shape[0], "a token outside the vocabulary");
      const Values row = matrix_row(a.table, static_cast<std::uint64_t>(id));
      out.insert(out.end(), row.begin(), row.end());
    }
    store(a.out, out);
  }

  void operator()(const bp_norm_args& a) const { norm_of(load(a.x), a); }

  void operator()(const bp_linear_args& a) const {
    store(a.out, product(by_workspace(load(a.x)), a.x.shape[0], a.weight, a.bias));
  }

  void operator()(const bp_rope_args& a) const {
    Values x = load(a.x);
    const auto pos = device.memory.load_raw<std::int32_t>(a.pos), row = device.memory.load_raw<std::int32_t>(a.row);
    const Values frequencies = load(a.inv_freq), scales = load(a.scale);
    const auto heads = static_cast<std::size_t>(a.x.shape[1]), dim = static_cast<std::size_t>(a.x.shape[2]);
    const std::size_t half = a.n_dims / 2;
    for (std::size_t t = 0; t < pos.size(); ++t) {
      const auto r = static_cast<std::size_t>(row[t]);
      for (std::size_t h = 0; h < heads; ++h) {
        double* at = &x[(t * heads + h) * dim];
        for (std::size_t i = 0; i < half; ++i) {
          const double angle = pos[t] * frequencies.at(r * half + i);
          const double c = std::cos(angle) * scales.at(r), s = std::sin(angle) * scales.at(r);
          double& first = at[a.interleaved ? 2 * i : i];
          double& second = at[a.interleaved ? 2 * i + 1 : i + half];
          const double x1 = first, x2 = second;
          first = x1 * c - x2 * s;
          second = x1 * s + x2 * c;
        }
      }
    }
    store(a.x, x);
  }

  void operator()(const bp_kv_write_args& a) const { run_kv_write(device, *a.step, a); }
  void operator()(const bp_attention_args& a) const { run_attention(device, *a.step, a); }

  void operator()(const bp_activation_args& a) const {
    Values x = load(a.x);
    for (double& v : x) v = activate(a.kind, v);
    store(a.out, x);
  }

  void operator()(const bp_glu_args& a) const {
    Values gate = load(a.gate);
    const Values up = load(a.up);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = activate(a.kind, gate[i]) * up[i];
    store(a.out, gate);
  }

  void operator()(const bp_binary_args& a) const {
    Values x = load(a.a);
    const Values b = load(a.b);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double other = b[i % b.size()];
      x[i] = op.code == BP_OP_MUL ? a.alpha * x[i] * other : x[i] + a.alpha * other;
    }
    store(a.out, x);
  }

  void operator()(const bp_scalar_args& a) const {
    Values x = op.code == BP_OP_FILL ? Values(sdk::element_count(a.out).value_or(0)) : load(a.x);
    for (double& v : x) {
      v = op.code == BP_OP_FILL ? a.value : op.code == BP_OP_SCALE ? v * a.value : a.value * std::tanh(v / a.value);
    }
    store(a.out, x);
  }

  void operator()(const bp_gather_args& a) const {
    const Values x = load(a.x);
    Values out;
    const auto n = static_cast<std::ptrdiff_t>(a.x.shape[1]);
    for (const std::int32_t r : device.memory.load_raw<std::int32_t>(a.index)) {
      sdk::require(r >= 0 && r < a.x.shape[0], "a row that x hasn't");
      out.insert(out.end(), x.begin() + r * n, x.begin() + (r + 1) * n);
    }
    store(a.out, out);
  }

  void operator()(const bp_unary_args& a) const { store(a.out, load(a.x)); }
  void operator()(const bp_topk_args& a) const { run_topk(device, a); }
  void operator()(const bp_sample_args& a) const { run_sample(device, a); }

  void operator()(const bp_advance_args& a) const {
    const auto ids = device.memory.load_raw<std::int32_t>(a.ids),
               target = device.memory.load_raw<std::int32_t>(a.target);
    Values token = load(a.token);
    for (std::size_t r = 0; r < ids.size(); ++r) {
      if (target[r] >= 0) token.at(static_cast<std::size_t>(target[r])) = ids[r];
    }
    store(a.token, token);
  }

  void operator()(const bp_add_norm_args& a) const {
    Values sum = load(a.a);
    const Values b = load(a.b);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += a.alpha * b[i % b.size()];
    store(a.sum, sum);
    norm_of(load(a.sum), *a.norm);
  }

  void operator()(const bp_gateup_args& a) const {
    const Values x = load(a.x);
    Values gate = product(x, a.x.shape[0], a.gate_weight, a.gate_bias);
    const Values up = product(x, a.x.shape[0], a.up_weight, a.up_bias);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = activate(a.glu->kind, gate[i]) * up[i];
    store(a.out, gate);
  }

  template <class Other>
  void operator()(const Other&) const {
    sdk::refuse("an op that this plugin refused");
  }
};

// What an argument struct points to, copied: it is only valid during the call.
template <class Args>
struct Kept {
  Args args;
  bp_step step{};
  bp_norm_args norm{};
  bp_glu_args glu{};

  explicit Kept(const Args& given) : args(given) {
    if constexpr (requires { args.step; }) {
      step = sdk::read_struct(args.step);
      sdk::require(step.buffer != nullptr, "a step that is not on the device");
      step.token = step.pos = step.q_start = step.kv_len = step.page_table = step.rope_row = step.out_row = nullptr;
      step.slot = nullptr;
    }
    if constexpr (std::is_same_v<Args, bp_add_norm_args>) norm = sdk::read_struct(args.norm);
    if constexpr (std::is_same_v<Args, bp_gateup_args>) glu = sdk::read_struct(args.glu);
  }
  void link() {
    if constexpr (requires { args.step; }) args.step = &step;
    if constexpr (std::is_same_v<Args, bp_add_norm_args>) args.norm = &norm;
    if constexpr (std::is_same_v<Args, bp_gateup_args>) args.glu = &glu;
  }
};

}  // namespace

std::function<void()> op_work(Device& device, const bp_op& given) {
  return sdk::visit_args(given.code, given.args, [&]<class Args>(const Args& args) -> std::function<void()> {
    bp_op op = given;
    op.args = nullptr;
    op.name = nullptr;
    return [run = Run{device, op}, kept = Kept<Args>(args)]() mutable {
      kept.link();
      run(kept.args);
      if (run.device.options.report) ++run.device.options.report->runs;
    };
  });
}

}  // namespace opaque

#include "tests/conformance/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/abi_call.h"
#include "tests/conformance/values.h"

namespace backplane::conformance {
namespace {

constexpr double kEps = 1e-5;

}  // namespace

// ---- a list

void OpList::agree(const std::function<Side::Ready()>& ask) {
  Entry entry;
  try {
    entry.op = ask();
  } catch (const Retyped& wish) {
    if (entries_.empty()) throw;  // all of the list may work in that type
    throw Skipped{fmt::format("not all ops of this list take activations in {}", dtype_name(wish.activation))};
  }
  entry.support = side_.support();
  entries_.push_back(std::move(entry));
}

void OpList::need_capture_safe() const {
  for (const Entry& entry : entries_) {
    if ((entry.support.flags & BP_SUPPORT_CAPTURE_SAFE) != 0) continue;
    throw Skipped{fmt::format("{} is not declared safe to capture", device::op_name(entry.op.code))};
  }
}

OpList::Spaced::Spaced(const OpList& list) : ops(list.entries_.size()) {
  for (const Entry& entry : list.entries_) args.push_back(entry.args);
  std::memset(ops.data(), 0xff, ops.size() * sizeof(SpacedOp));
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i].op = list.side_.op(list.entries_[i].op, args[i].data());
}

OpList::Spaced::~Spaced() {
  for (auto& each : args) std::fill(each.begin(), each.end(), std::byte{0xff});
  std::memset(ops.data(), 0xff, ops.size() * sizeof(SpacedOp));
}

void OpList::enqueue() const {
  device::Device& device = side_.device();
  for (const Entry& entry : entries_) {
    std::vector<std::byte> args = entry.args;
    const bp_op op = side_.op(entry.op, args.data());
    AbiCall call;
    const bp_status status = device.tables().device->run(device.handle(), side_.stream(), call.context(), &op);
    std::fill(args.begin(), args.end(), std::byte{0xff});
    require(status == BP_OK, fmt::format("{} was agreed to and then failed with {}: {}", device::op_name(op.code),
                                         status_text(status), call.text()));
  }
}

// ---- x + down(silu(gate(n)) * up(n))

FeedForward::FeedForward(Trial& trial, std::int64_t tokens)
    : trial_(trial),
      tokens_(tokens),
      gate_(random_weight(trial, trial.subject.parameter_type(), kInner, kWidth)),
      up_(random_weight(trial, trial.subject.parameter_type(), kInner, kWidth)),
      down_(random_weight(trial, trial.subject.parameter_type(), kWidth, kInner)),
      norm_(trial.draw_parameters({kWidth})),
      bias_(trial.draw_parameters({kInner})),
      x_(trial.draw({tokens, kWidth})),
      list_(trial.subject) {
  Side& side = trial.subject;
  const Form form = form_for(side.device(), gate_.type);
  bp_norm_args norm{};
  norm.x = in_ = side.input(x_);
  norm.weight = side.parameters(norm_);
  norm.out = side.output({tokens, kWidth});
  norm.eps = kEps;
  norm.kind = BP_NORM_RMS;
  list_.add(BP_OP_NORM, norm);
  bp_linear_args gate{}, up{}, down{};
  gate.x = up.x = norm.out;
  gate.weight = matrix_on(side, gate_, form, BP_USE_LINEAR);
  gate.bias = side.parameters(bias_);
  gate.out = side.output({tokens, kInner});
  list_.add(BP_OP_LINEAR, gate, BP_FEATURE_BIAS);
  up.weight = matrix_on(side, up_, form, BP_USE_LINEAR);
  up.out = side.output({tokens, kInner});
  list_.add(BP_OP_LINEAR, up);
  bp_glu_args glu{};
  glu.gate = glu.out = gate.out;
  glu.up = up.out;
  glu.kind = BP_ACT_SILU;
  list_.add(BP_OP_GLU, glu, BP_FEATURE_SILU);
  down.x = glu.out;
  down.weight = matrix_on(side, down_, form, BP_USE_LINEAR);
  down.out = side.output({tokens, kWidth});
  list_.add(BP_OP_LINEAR, down);
  bp_binary_args add{};
  add.a = in_;
  add.b = down.out;
  add.out = out_ = side.output({tokens, kWidth});
  add.alpha = 1;
  list_.add(BP_OP_ADD, add);
}

void FeedForward::set(const Array& x) {
  x_ = x;
  list_.side().write(in_, encode(trial_.activation(), x));
}

void FeedForward::judge(const std::string& what) {
  const Value x = exactly(x_), n = normed(trial_, list_.support(0), x, norm_, kEps);
  const Value gate = projected(trial_, list_.support(1), n, gate_, &bias_);
  const Value up = projected(trial_, list_.support(2), n, up_, nullptr);
  const Value inner = gated(trial_, list_.support(3), gate, up);
  const Value down = projected(trial_, list_.support(4), inner, down_, nullptr);
  const Value out = added(trial_, list_.support(5), x, down);
  trial_.compare(what, list_.side().read(out_), out.exact, out.bound);
}

}  // namespace backplane::conformance

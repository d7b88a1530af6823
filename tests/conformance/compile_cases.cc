// Compiled lists: the same as their ops run singly, in their order, with what the memory holds at that time.
#include "tests/conformance/compiled.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/abi_call.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {

Compiled::Compiled(const OpList& list) : side_(list.side()) {
  device::Device& device = side_.device();
  if (!has_compile(device)) throw Skipped{"the plugin compiles no lists"};
  AbiCall call;
  bp_status status = BP_OK;
  list.with_ops([&](const bp_op* ops, std::uint64_t count, std::uint64_t stride) {
    status = device.tables().device->compile(device.handle(), call.context(), ops, count, stride, &compiled_);
  });
  if (status == BP_UNSUPPORTED && !call.text().empty()) throw Skipped{call.text()};
  call.check(status, "compile");
  require(compiled_ != nullptr, "compile: success without a handle");
}

Compiled::~Compiled() {
  if (compiled_) side_.device().tables().device->uncompile(side_.device().handle(), compiled_);
}

void Compiled::run() {
  AbiCall call;
  call.check(
      side_.device().tables().device->run_compiled(side_.device().handle(), side_.stream(), call.context(), compiled_),
      "run_compiled");
}

namespace {

// a = -2 (a + b), then a + b again: any other order, or an op that is left out, gives something else.
class Steps {
 public:
  Steps(Trial& trial, Side& side) : trial_(trial), side_(side), b_(trial.draw(kShape)), list_(side) {
    bp_binary_args add{};
    add.a = add.out = a_on_ = side.input(trial.draw(kShape));
    side.changes(a_on_);
    add.b = side.input(b_);
    add.alpha = 1;
    bp_scalar_args scale{};
    scale.x = scale.out = a_on_;
    scale.value = -2;
    list_.add(BP_OP_ADD, add);
    list_.add(BP_OP_SCALE, scale);
    list_.add(BP_OP_ADD, add);
  }
  const OpList& list() const { return list_; }
  void redraw() {
    exact_ = trial_.draw(kShape);
    bound_ = Array(kShape);
    side_.write(a_on_, encode(trial_.activation(), exact_));
  }
  // What another run adds to what is allowed for.
  void expect_run() {
    const double unit = precision_of(trial_.activation()).unit, eta = trial_.arithmetic().eta();
    for (std::size_t i = 0; i < exact_.data.size(); ++i) {
      double& a = exact_.data[i];
      double& bound = bound_.data[i];
      const auto round = [&] { bound += 2 * unit * std::fabs(a) + eta; };
      a += b_.data[i], round();
      a *= -2, bound *= 2, round();
      a += b_.data[i], round();
    }
  }
  void judge(const std::string& what) { trial_.compare(what, side_.read(a_on_), exact_, bound_); }

 private:
  static inline const Shape kShape = {5, 67};
  Trial& trial_;
  Side& side_;
  Array b_, exact_, bound_;
  bp_tensor a_on_{};
  OpList list_;
};

void try_order(Trial& trial) {
  Steps steps(trial, trial.subject);
  Compiled compiled(steps.list());
  const auto run = [&] {
    compiled.run();
    steps.expect_run();
  };
  for (int i = 0; i < 2; ++i) {
    steps.redraw();
    run();
    trial.subject.sync();
    steps.judge("after one run");
  }
  run();
  run();
  trial.subject.sync();
  steps.judge("after two more runs without waiting in between");
  steps.redraw();
  steps.list().enqueue();
  steps.expect_run();
  run();
  trial.subject.sync();
  steps.judge("after the ops run singly and then compiled");
}

// On a stream that was made later, and while another list is there.
void try_two(Trial& trial) {
  Side side(trial.subject.device().shared_from_this(), Side::Role::kSubject, trial.activation(), true);
  Steps one(trial, trial.subject), two(trial, side);
  auto first = std::make_unique<Compiled>(one.list());
  Compiled second(two.list());
  one.redraw();
  two.redraw();
  first->run();
  second.run();
  one.expect_run();
  two.expect_run();
  trial.subject.sync();
  first.reset();
  second.run();
  two.expect_run();
  side.sync();
  one.judge("the first list");
  two.judge("the second list, once more after the first was destroyed");
  side.check_guards();
}

}  // namespace

void add_compile_cases(Suite& suite) {
  if (!has_compile(suite.device())) {
    suite.add("compile", [](Trial&) { throw Skipped{"the plugin compiles no lists"}; });
    return;
  }
  suite.add_for_each_type("compile/order", try_order);
  suite.add("compile/two_lists", try_two);
}

}  // namespace backplane::conformance

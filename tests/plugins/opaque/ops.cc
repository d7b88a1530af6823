// From the arguments of a call to work that can wait, and be launched again.
#include "run.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

// An op's arguments with copies of the structs they point to, which are only valid during the call.
template <class Args>
struct Kept {
  Args args;
  bp_step step{};
  bp_norm_args norm{}, second_norm{}, x_norm{};
  bp_glu_args glu{};
  bp_rope_args rope{};
  bp_kv_write_args write{};

  explicit Kept(const Args& given) : args(given) {
    if constexpr (requires { args.step; }) keep_step(args.step);
    if constexpr (requires { args.x_norm; }) {
      if (args.x_norm) x_norm = sdk::read_struct(args.x_norm);
    }
    if constexpr (std::is_same_v<Args, bp_add_norm_args>) norm = sdk::read_struct(args.norm);
    if constexpr (std::is_same_v<Args, bp_gateup_args>) glu = sdk::read_struct(args.glu);
    if constexpr (std::is_same_v<Args, bp_qkv_args>) {
      if (args.q_norm) norm = sdk::read_struct(args.q_norm);
      if (args.k_norm) second_norm = sdk::read_struct(args.k_norm);
      if (args.rope) rope = sdk::read_struct(args.rope);
      write = sdk::read_struct(args.write);
      keep_step(write.step);
    }
  }

  // Only then do the arguments point to this object's copies.
  const Args& link() {
    if constexpr (requires { args.step; }) args.step = &step;
    if constexpr (requires { args.x_norm; }) {
      if (args.x_norm) args.x_norm = &x_norm;
    }
    if constexpr (std::is_same_v<Args, bp_add_norm_args>) args.norm = &norm;
    if constexpr (std::is_same_v<Args, bp_gateup_args>) args.glu = &glu;
    if constexpr (std::is_same_v<Args, bp_qkv_args>) {
      if (args.q_norm) args.q_norm = &norm;
      if (args.k_norm) args.k_norm = &second_norm;
      if (args.rope) args.rope = &rope;
      args.write = &write;
      write.step = &step;
    }
    return args;
  }

 private:
  // The host's arrays hold other steps by the time the work runs.
  void keep_step(const bp_step* from) {
    step = sdk::read_struct(from);
    sdk::require(step.buffer != nullptr, "a step that is not on the device");
    step.token = step.pos = step.q_start = step.kv_len = step.page_table = step.rope_row = step.out_row = nullptr;
    step.state_slot = nullptr;
    step.slot = nullptr;
  }
};

}  // namespace

Device::Work op_work(Device& device, const bp_op& given) {
  device.check_prepared(given);
  return sdk::visit_args(given.code, given.args, [&]<class Args>(const Args& args) -> Device::Work {
    bp_op op = given;
    op.args = nullptr;
    op.name = nullptr;
    return [&device, op, kept = Kept<Args>(args)] {
      Kept<Args> own = kept;
      run_op(Run{device, op, device.next_op_is_wrong()}, own.link());
      if (device.options.report) ++device.options.report->runs;
    };
  });
}

}  // namespace opaque

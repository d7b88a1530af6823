// A plugin built with the SDK against the later header (make_header.py), which does all that a later plugin may do:
// reads appended members, fills appended members, slots and a table, and offers types, ops and flags of its time.
// LINEAR in F32; its `later` argument, where there is one, is added to the result.
#include "backplane_plugin.hpp"

namespace {

using namespace backplane::plugin;

class LaterDevice : public SimpleDevice {
 public:
  void describe(bp_caps& caps) const override {
    copy_text(caps.description, "Built later");
    caps.flags |= BP_CAP_LATER | BP_CAP_DETERMINISTIC;
    caps.weight_types = type_set({BP_TYPE_F32, BP_TYPE_LATER});
    caps.later = 77;
  }

  void supports(const bp_op_query& query, bp_support& support) const override {
    if (query.code != BP_OP_LINEAR && query.code != BP_OP_LATER) refuse("only LINEAR and what came later");
    if (query.later != 0) refuse("nobody of this time asks that");
    const auto args = largest_of<bp_linear_args>(query);
    if (args.x.type != BP_TYPE_F32 || args.weight.tensor.type != BP_TYPE_F32) refuse("only F32");
    support.features = BP_FEATURE_STRIDED | BP_FEATURE_BIAS | BP_FEATURE_LATER;
    support.flags = BP_SUPPORT_DETERMINISTIC | BP_SUPPORT_LATER;
    support.accumulator_type = BP_TYPE_F32;
    support.later = 77;
  }

  void run(const bp_op& op) override {
    if (op.code != BP_OP_LINEAR && op.code != BP_OP_LATER) refuse("only LINEAR and what came later");
    require(op.later == 0, "a member of the op that this core hasn't");
    const auto args = args_of<bp_linear_args>(op);
    const bp_tensor& w = args.weight.tensor;
    const auto* x = data_of<const float>(args.x);
    const auto* weight = data_of<const float>(w);
    const auto* bias = is_absent(args.bias) ? nullptr : data_of<const float>(args.bias);
    auto* out = data_of<float>(args.out);
    for (std::int64_t t = 0; t < args.x.shape[0]; ++t) {
      for (std::int64_t n = 0; n < w.shape[0]; ++n) {
        float sum = bias ? bias[n] : 0;
        for (std::int64_t c = 0; c < w.shape[1]; ++c) {
          sum += x[t * args.x.stride[0] / 4 + c] * weight[n * w.stride[0] / 4 + c];
        }
        out[t * args.out.stride[0] / 4 + n] = sum + static_cast<float>(args.later);
      }
    }
  }
};

bp_status later_slot(bp_device, bp_context) { return BP_LATER; }
bp_status later_act(bp_device) { return BP_LATER; }

}  // namespace

extern "C" BP_EXPORT bp_status backplane_plugin_v1(const bp_host* from, bp_context context, bp_tables* tables) {
  using Plugin = SimplePlugin<LaterDevice>;
  const bp_status status = Plugin::query(from, tables, "later", "9");
  // A core that knows what came later says so by its sizes, and only then may it be touched.
  if (struct_has(host, &bp_host::later) && host->later(host->self) == 0) return fail(context, BP_INTERNAL, "no later");
  bp_device_table device{};
  device.caps = Plugin::caps;
  device.supports = Plugin::supports;
  device.run = Plugin::run;
  device.later = later_slot;
  fill_table(tables, &bp_tables::device, device);
  bp_later_table later{};
  later.act = later_act;
  fill_table(tables, &bp_tables::later, later);
  return status;
}

// The smallest plugin that runs a whole model: it multiplies matrices, and the core has everything else done elsewhere.
// Copy this folder, rename the class and the name, and add ops in the order in which the fallback ledger lists them.
#include "backplane_plugin.hpp"

namespace {

using namespace backplane::plugin;

// Sums in eight lanes, always in the same order: the same row and column give the same bits in every batch.
float dot(const float* a, const float* b, std::int64_t n) {
  float lanes[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int lane = 0; lane < 8; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += a[i] * b[i];
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

class TemplateDevice : public SimpleDevice {
 public:
  void describe(bp_caps& caps) const override {
    copy_text(caps.description, "Template plugin: LINEAR in F32");
    caps.flags |= BP_CAP_DETERMINISTIC | BP_CAP_BATCH_INVARIANT;
  }

  void supports(const bp_op_query& query, bp_support& support) const override {
    if (query.code != BP_OP_LINEAR) refuse("only LINEAR is implemented");
    const auto args = largest_of<bp_linear_args>(query);
    if (args.x.type != BP_TYPE_F32) refuse("activations must be F32");
    if (args.weight.tensor.type != BP_TYPE_F32) refuse("weights must be F32");
    support.features = BP_FEATURE_BIAS | BP_FEATURE_STRIDED;
    support.flags = BP_SUPPORT_DETERMINISTIC | BP_SUPPORT_BATCH_INVARIANT;
    support.accumulator_type = BP_TYPE_F32;
  }

  void run(const bp_op& op) override {
    if (op.code != BP_OP_LINEAR) refuse("only LINEAR is implemented");
    const auto args = args_of<bp_linear_args>(op);
    const bp_tensor& w = args.weight.tensor;
    if (is_empty(args.out)) return;
    const auto* x = data_of<const float>(args.x);
    const auto* weight = data_of<const float>(w);
    const auto* bias = is_absent(args.bias) ? nullptr : data_of<const float>(args.bias);
    auto* out = data_of<float>(args.out);
    const std::int64_t tokens = args.x.shape[0];
    const std::int64_t columns = w.shape[1];
    const auto step = [](const bp_tensor& tensor) { return tensor.stride[0] / std::int64_t{sizeof(float)}; };
    parallel_for(static_cast<std::uint64_t>(w.shape[0]), 16, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
      for (auto n = static_cast<std::int64_t>(begin); n < static_cast<std::int64_t>(end); ++n) {
        for (std::int64_t t = 0; t < tokens; ++t) {
          const float sum = dot(x + t * step(args.x), weight + n * step(w), columns);
          out[t * step(args.out) + n] = bias ? sum + bias[n] : sum;
        }
      }
    });
  }
};

}  // namespace

BACKPLANE_SIMPLE_PLUGIN("template", "1.0", TemplateDevice)

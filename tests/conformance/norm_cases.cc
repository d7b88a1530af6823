// NORM: both kinds, whole rows and heads, over sizes around those of vectors and warps.
#include <fmt/format.h>

#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

struct NormSpec {
  Shape shape;
  std::uint32_t kind = BP_NORM_RMS;
  bool weight = true, bias = false, in_place = false, gaps = false;
  double unit_offset = 0, eps = 1e-5, scale = 1;
  Style style = Style::kNormal;
};

std::uint64_t features_of(const NormSpec& spec) {
  std::uint64_t features = 0;
  if (spec.kind == BP_NORM_LAYER) features |= BP_FEATURE_NORM_LAYER;
  if (!spec.weight) features |= BP_FEATURE_NORM_NO_WEIGHT;
  if (spec.bias) features |= BP_FEATURE_BIAS;
  if (spec.unit_offset != 0) features |= BP_FEATURE_NORM_UNIT_OFFSET;
  return features;
}

void try_norm(Trial& trial, const NormSpec& spec) {
  trial.subject.set_gaps(spec.gaps);
  const Array x = trial.draw(spec.shape, spec.style, spec.scale);
  const Array weight = trial.draw_parameters({spec.shape.back()}), bias = trial.draw_parameters({spec.shape.back()});
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_norm_args args{};
    args.x = side.input(x);
    if (spec.weight) args.weight = side.parameters(weight);
    if (spec.bias) args.bias = side.parameters(bias);
    if (spec.in_place) side.changes(args.x);
    args.out = spec.in_place ? args.x : side.output(spec.shape);
    args.eps = spec.eps;
    args.unit_offset = spec.unit_offset;
    args.kind = spec.kind;
    side.run(BP_OP_NORM, args, features_of(spec));
    return side.read(args.out);
  });
  const NormTerms terms{spec.kind, spec.eps, spec.unit_offset, spec.weight ? &weight : nullptr,
                        spec.bias ? &bias : nullptr};
  trial.compare("out", actual, expected, norm_bound(trial.arithmetic(), expected, x, terms));
}

void add_norm(Suite& suite, const std::string& name, const NormSpec& spec) {
  suite.add_for_each_type("NORM/" + name, [spec](Trial& trial) { try_norm(trial, spec); });
}

}  // namespace

void add_norm_cases(Suite& suite) {
  for (const std::uint32_t kind : {BP_NORM_RMS, BP_NORM_LAYER}) {
    const std::string base = kind == BP_NORM_RMS ? "rms" : "layer";
    const bool bias = kind == BP_NORM_LAYER;
    struct Size {
      std::int64_t tokens, width;
    };
    for (const Size& size : {Size{0, 8},
                             {1, 1},
                             {2, 7},
                             {3, 31},
                             {5, 32},
                             {7, 33},
                             {9, 64},
                             {17, 127},
                             {2, 256},
                             {33, 65},
                             {3, 1023},
                             {1, 4096}}) {
      add_norm(suite, fmt::format("{}/T{}_H{}", base, size.tokens, size.width),
               {.shape = {size.tokens, size.width}, .kind = kind, .bias = bias});
    }
    add_norm(suite, base + "/no_weight", {.shape = {3, 40}, .kind = kind, .weight = false});
    add_norm(suite, base + "/other_bias", {.shape = {3, 40}, .kind = kind, .bias = !bias});
    add_norm(suite, base + "/unit_offset", {.shape = {3, 40}, .kind = kind, .unit_offset = 1});
    add_norm(suite, base + "/heads", {.shape = {5, 3, 64}, .kind = kind});
    add_norm(suite, base + "/heads_in_place", {.shape = {5, 3, 48}, .kind = kind, .in_place = true});
    add_norm(suite, base + "/in_place", {.shape = {7, 33}, .kind = kind, .in_place = true});
    add_norm(suite, base + "/strided", {.shape = {7, 33}, .kind = kind, .gaps = true});
    add_norm(suite, base + "/heads_strided", {.shape = {4, 2, 32}, .kind = kind, .in_place = true, .gaps = true});
    // Rows so small that eps decides.
    add_norm(suite, base + "/small_rows", {.shape = {5, 96}, .kind = kind, .scale = 0.003});
    add_norm(suite, base + "/eps_1e-6", {.shape = {5, 96}, .kind = kind, .eps = 1e-6, .scale = 0.001});
    add_norm(suite, base + "/eps_0.1", {.shape = {5, 96}, .kind = kind, .eps = 0.1});
    add_norm(suite, base + "/outliers", {.shape = {5, 96}, .kind = kind, .style = Style::kOutliers});
    add_norm(suite, base + "/edges", {.shape = {5, 96}, .kind = kind, .style = Style::kEdges});
  }
}

}  // namespace backplane::conformance

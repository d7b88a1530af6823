// LINEAR and EMBED: every weight format, in every form that the device declares, over ragged shapes.
#include <fmt/format.h>

#include "tests/conformance/suite.h"
#include "tests/conformance/weights.h"

namespace backplane::conformance {
namespace {

struct LinearSpec {
  DType type;
  Form form = Form::kCanonical;
  std::int64_t tokens, rows, columns;
  bool bias = false, gaps = false, zero_input = false;
  Style style = Style::kNormal;
};

std::string_view style_name(Style style) {
  constexpr std::string_view kNames[] = {"normal", "outliers", "edges", "special"};
  return kNames[static_cast<int>(style)];
}

void try_linear(Trial& trial, const LinearSpec& spec) {
  trial.subject.set_gaps(spec.gaps);
  Array x = trial.draw({spec.tokens, spec.columns}, spec.style);
  if (spec.zero_input) x = Array(x.shape);
  const Weight weight = random_weight(trial, spec.type, spec.rows, spec.columns);
  const Array bias = trial.draw_parameters({spec.rows});
  Array ties;
  const auto compute = [&](Side& side) {
    bp_linear_args args{};
    args.weight = matrix_on(side, weight, spec.form, BP_USE_LINEAR);
    args.x = side.input(trial.input_for(side, x, ties));
    if (spec.bias) args.bias = side.parameters(bias);
    args.out = side.output({spec.tokens, spec.rows});
    side.run(BP_OP_LINEAR, args, (spec.bias ? std::uint64_t{BP_FEATURE_BIAS} : 0) | form_features(spec.form));
    return side.read(args.out);
  };
  const auto [actual, expected] = trial.both(compute);
  const Product product{x, weight.numbers, spec.bias ? &bias : nullptr, &ties, is_quantized(spec.type)};
  trial.compare("out", actual, expected, linear_bound(trial.arithmetic(), expected, product));
}

void add_linear(Suite& suite, const LinearSpec& spec, bool named_options = false) {
  std::string name = fmt::format("LINEAR/{}/{}/T{}_N{}_C{}", dtype_name(spec.type), form_name(spec.form), spec.tokens,
                                 spec.rows, spec.columns);
  if (spec.bias) name += spec.zero_input ? "/bias_only" : "/bias";
  if (spec.gaps) name += "/strided";
  if (named_options) name += fmt::format("/{}", style_name(spec.style));
  suite.add_for_each_type(name, [spec](Trial& trial) { try_linear(trial, spec); });
}

// Tails of every length class around the sizes of tiles, no rows at all, one element.
void add_shapes(Suite& suite, DType type, Form form) {
  const std::int64_t block = dtype_info(type).block_elements;
  LinearSpec spec{.type = type, .form = form, .tokens = 0, .rows = 4, .columns = block * 3};
  add_linear(suite, spec);
  struct Size {
    std::int64_t tokens, rows, columns;
  };
  const std::vector<Size> plain = {{1, 1, 1},      {2, 3, 2},      {3, 5, 31},   {5, 16, 33},   {7, 17, 64},
                                   {8, 33, 65},    {9, 8, 127},    {16, 31, 96}, {17, 64, 129}, {33, 7, 257},
                                   {1, 130, 1023}, {70, 130, 100}, {12, 40, 200}};
  const std::vector<Size> blocked = {{1, 1, 1},   {2, 3, 2},  {5, 17, 3},  {9, 33, 1},
                                     {16, 15, 5}, {1, 65, 4}, {3, 530, 1}, {67, 129, 1}};
  bool bias = false;
  for (const Size& size : block > 1 ? blocked : plain) {
    spec.tokens = size.tokens;
    spec.rows = size.rows;
    spec.columns = size.columns * block;
    spec.bias = bias = !bias;
    add_linear(suite, spec);
  }
}

void add_options(Suite& suite, DType type, Form form) {
  const std::int64_t block = dtype_info(type).block_elements;
  LinearSpec spec{.type = type, .form = form, .tokens = 5, .rows = 19, .columns = block > 1 ? block : 37};
  spec.gaps = true;
  add_linear(suite, spec);
  spec.gaps = false;
  spec.bias = spec.zero_input = true;
  add_linear(suite, spec);
  spec.bias = spec.zero_input = false;
  for (const std::int64_t tokens : {5, 12, 66}) {  // few, some and many take different kernels
    spec.tokens = tokens;
    if (block == 1) spec.columns = tokens == 12 ? 40 : 37;  // whole vectors for those that want them
    for (const Style style : {Style::kOutliers, Style::kEdges, Style::kSpecial}) {
      spec.style = style;
      add_linear(suite, spec, true);
    }
  }
}

void try_embed(Trial& trial, DType type, Form form, std::int64_t tokens, bool gaps) {
  trial.subject.set_gaps(gaps);
  const std::int64_t vocabulary = 23;
  const std::int64_t columns = is_quantized(type) ? dtype_info(type).block_elements * 2 : 33;
  const Weight table = random_weight(trial, type, vocabulary, columns);
  Array ids({tokens});
  for (double& id : ids.data) id = static_cast<double>(trial.random.below(vocabulary));
  if (tokens > 2) ids.data[0] = vocabulary - 1, ids.data[1] = 0, ids.data[2] = 0;
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_embed_args args{};
    args.ids = side.exact(DType::kI32, ids);
    args.table = matrix_on(side, table, form, BP_USE_EMBED);
    args.out = side.output({tokens, columns});
    side.run(BP_OP_EMBED, args, form_features(form));
    return side.read(args.out);
  });
  Array rounded = expected;
  round_to(trial.activation(), rounded);
  trial.same("out", actual, rounded);
}

// One weight for both uses, as models with tied embeddings have it.
void try_tied(Trial& trial, DType type) {
  const std::int64_t columns = is_quantized(type) ? dtype_info(type).block_elements : 40;
  const Weight table = random_weight(trial, type, 9, columns);
  const Array ids = [] {
    Array a({3});
    a.data = {8, 0, 4};
    return a;
  }();
  const bp_matrix mine = matrix_on(trial.subject, table, Form::kImported, BP_USE_EMBED | BP_USE_LINEAR);
  const bp_matrix theirs = matrix_on(trial.oracle, table, Form::kCanonical, 0);
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_embed_args args{};
    args.ids = side.exact(DType::kI32, ids);
    args.table = side.is_oracle() ? theirs : mine;
    args.out = side.output({3, columns});
    side.run(BP_OP_EMBED, args);
    return side.read(args.out);
  });
  Array rounded = expected;
  round_to(trial.activation(), rounded);
  trial.same("EMBED", actual, rounded);
  Array ties;
  const auto [logits, expected_logits] = trial.both([&](Side& side) {
    bp_linear_args args{};
    args.weight = side.is_oracle() ? theirs : mine;
    args.x = side.input(trial.input_for(side, rounded, ties));
    args.out = side.output({3, 9});
    side.run(BP_OP_LINEAR, args);
    return side.read(args.out);
  });
  const Product product{rounded, table.numbers, nullptr, &ties, is_quantized(type)};
  trial.compare("LINEAR", logits, expected_logits, linear_bound(trial.arithmetic(), expected_logits, product));
}

void add_embed(Suite& suite, DType type, Form form) {
  const std::string base = fmt::format("EMBED/{}/{}", dtype_name(type), form_name(form));
  for (const std::int64_t tokens : {0, 1, 7, 33}) {
    suite.add_for_each_type(fmt::format("{}/T{}", base, tokens),
                            [=](Trial& trial) { try_embed(trial, type, form, tokens, false); });
  }
  suite.add_for_each_type(base + "/T5/strided", [=](Trial& trial) { try_embed(trial, type, form, 5, true); });
}

void add_forms(Suite& suite, DType type, Form form) {
  add_shapes(suite, type, form);
  add_options(suite, type, form);
  add_embed(suite, type, form);
}

}  // namespace

void add_linear_cases(Suite& suite) {
  for (const DType type : suite.canonical_weights()) {
    add_forms(suite, type, Form::kCanonical);
    if (!is_quantized(type)) add_options(suite, type, Form::kTransposed), add_embed(suite, type, Form::kTransposed);
  }
  if (!has_weights(suite.device())) return;
  for (const DType type : weight_types()) {
    add_forms(suite, type, Form::kImported);
    if (!is_quantized(type)) add_options(suite, type, Form::kImportedTransposed);
    suite.add_for_each_type(fmt::format("LINEAR/{}/imported/tied", dtype_name(type)),
                            [type](Trial& trial) { try_tied(trial, type); });
  }
}

}  // namespace backplane::conformance

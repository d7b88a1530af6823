// ROPE: both pairings, whole and part of a head, several table rows in one step, positions far out.
#include <fmt/format.h>

#include <cmath>

#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

struct RopeSpec {
  std::int64_t tokens, heads, dim, n_dims;
  bool interleaved = false, gaps = false;
  std::int64_t tables = 1;
  double base = 10000, last_position = 5000;
  Style style = Style::kNormal;
};

void try_rope(Trial& trial, const RopeSpec& spec) {
  trial.subject.set_gaps(spec.gaps);
  const Array x = trial.draw({spec.tokens, spec.heads, spec.dim}, spec.style);
  Array pos({spec.tokens}), row({spec.tokens}), inv_freq({spec.tables, spec.n_dims / 2}), scale({spec.tables});
  for (std::size_t t = 0; t < pos.data.size(); ++t) {
    pos.data[t] = t == 0 ? 0 : std::floor(trial.random.uniform() * spec.last_position);
    row.data[t] = static_cast<double>(trial.random.below(spec.tables));
  }
  for (std::int64_t f = 0; f < spec.tables; ++f) {
    scale.data[static_cast<std::size_t>(f)] = 1 + 0.1 * static_cast<double>(f);
    for (std::int64_t i = 0; i < spec.n_dims / 2; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(spec.n_dims);
      inv_freq.row(f)[i] = std::pow(spec.base, exponent) / (1 + static_cast<double>(f));
    }
  }
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_rope_args args{};
    args.x = side.input(x);
    side.changes(args.x);
    args.pos = side.exact(DType::kI32, pos);
    args.row = side.exact(DType::kI32, row);
    args.inv_freq = side.exact(DType::kF64, inv_freq);
    args.scale = side.exact(DType::kF64, scale);
    args.n_dims = static_cast<std::uint32_t>(spec.n_dims);
    args.interleaved = spec.interleaved ? 1 : 0;
    const std::uint64_t features = (spec.interleaved ? std::uint64_t{BP_FEATURE_ROPE_INTERLEAVED} : 0) |
                                   (spec.n_dims != spec.dim ? std::uint64_t{BP_FEATURE_ROPE_PARTIAL} : 0);
    side.run(BP_OP_ROPE, args, features);
    return side.read(args.x);
  });
  const RopeTerms terms{pos, row, inv_freq, scale, spec.n_dims, spec.interleaved};
  trial.compare("x", actual, expected, rope_bound(trial.arithmetic(), expected, x, terms));
}

void add_rope(Suite& suite, const std::string& name, const RopeSpec& spec) {
  suite.add_for_each_type("ROPE/" + name, [spec](Trial& trial) { try_rope(trial, spec); });
}

}  // namespace

void add_rope_cases(Suite& suite) {
  for (const bool interleaved : {false, true}) {
    const std::string base = interleaved ? "interleaved" : "halves";
    for (const std::int64_t dim : {32, 64, 80, 96, 128, 256}) {
      add_rope(suite, fmt::format("{}/D{}", base, dim),
               {.tokens = 5, .heads = 3, .dim = dim, .n_dims = dim, .interleaved = interleaved});
    }
    for (const std::int64_t tokens : {0, 1, 17, 33}) {
      add_rope(suite, fmt::format("{}/T{}", base, tokens),
               {.tokens = tokens, .heads = 2, .dim = 64, .n_dims = 64, .interleaved = interleaved});
    }
    for (const std::int64_t part : {2, 10, 32}) {
      add_rope(suite, fmt::format("{}/partial_{}_of_64", base, part),
               {.tokens = 7, .heads = 2, .dim = 64, .n_dims = part, .interleaved = interleaved});
    }
    add_rope(suite, base + "/several_tables",
             {.tokens = 9, .heads = 2, .dim = 48, .n_dims = 48, .interleaved = interleaved, .tables = 4});
    add_rope(suite, base + "/far_positions",
             {.tokens = 9, .heads = 1, .dim = 64, .n_dims = 64, .interleaved = interleaved, .last_position = 1e6});
    add_rope(suite, base + "/base_1e6",
             {.tokens = 9, .heads = 1, .dim = 64, .n_dims = 64, .interleaved = interleaved, .base = 1e6});
    add_rope(suite, base + "/strided",
             {.tokens = 5, .heads = 3, .dim = 32, .n_dims = 32, .interleaved = interleaved, .gaps = true});
    add_rope(suite, base + "/edges",
             {.tokens = 5, .heads = 3, .dim = 32, .n_dims = 32, .interleaved = interleaved, .style = Style::kEdges});
  }
}

}  // namespace backplane::conformance

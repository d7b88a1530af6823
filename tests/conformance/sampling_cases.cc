// TOPK, SAMPLE, ADVANCE: integers, so exact.
#include <fmt/format.h>

#include <limits>

#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

// Distinct numbers, ties, infinities and NaN: NaN is smaller than all.
Array logits_for(Trial& trial, std::int64_t rows, std::int64_t vocabulary) {
  Array x = trial.draw({rows, vocabulary}, Style::kNormal, 3);
  for (std::int64_t r = 0; r < rows; ++r) {
    if (vocabulary < 8) continue;
    double* row = x.row(r);
    const std::int64_t at = trial.random.below(vocabulary - 4);
    row[at] = row[at + 3] = row[0] = 9;  // the largest, three times
    if (r % 2 == 1) row[trial.random.below(vocabulary)] = -std::numeric_limits<double>::infinity();
    if (r % 3 == 2) row[trial.random.below(vocabulary)] = std::numeric_limits<double>::quiet_NaN();
  }
  return x;
}

void try_topk(Trial& trial, std::int64_t rows, std::int64_t vocabulary, std::int64_t k, bool gaps) {
  trial.subject.set_gaps(gaps);
  const Array x = logits_for(trial, rows, vocabulary);
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_topk_args args{};
    args.x = side.input(x);
    args.ids = side.output(DType::kI32, {rows, k}, side.gaps());
    args.values = side.output({rows, k});
    side.run(BP_OP_TOPK, args);
    return std::pair(side.read(args.ids), side.read(args.values));
  });
  trial.same("ids", actual.first, expected.first);
  trial.same("values", actual.second, expected.second);
}

enum class Draw { kGreedy, kPlain, kTopK, kTopP, kMinP, kMixed };

void try_sample(Trial& trial, Draw draw, std::int64_t rows, std::int64_t vocabulary) {
  const Array logits = logits_for(trial, rows, vocabulary);
  Array temperature({rows}, 0.8), top_p({rows}, 1), min_p({rows}), top_k({rows}), seed({rows}), counter({rows});
  for (std::size_t r = 0; r < seed.data.size(); ++r) {
    const bool every = draw == Draw::kMixed;
    if (draw == Draw::kGreedy || (every && r % 4 == 0)) temperature.data[r] = 0;
    if (draw == Draw::kTopK || (every && r % 4 == 1)) top_k.data[r] = static_cast<double>(1 + r % 7);
    if (draw == Draw::kTopP || (every && r % 4 == 2)) top_p.data[r] = 0.7;
    if (draw == Draw::kMinP || (every && r % 4 == 3)) min_p.data[r] = 0.05;
    seed.data[r] = static_cast<double>(trial.random.bits() >> 12);  // double holds them exactly
    counter.data[r] = static_cast<double>(trial.random.bits() >> 12);
  }
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_sample_args args{};
    args.logits = side.input(logits);
    args.temperature = side.exact(DType::kF64, temperature);
    args.top_p = side.exact(DType::kF64, top_p);
    args.min_p = side.exact(DType::kF64, min_p);
    args.top_k = side.exact(DType::kI32, top_k);
    args.seed = side.exact(DType::kU64, seed);
    args.counter = side.exact(DType::kU64, counter);
    args.ids = side.output(DType::kI32, {rows});
    side.run(BP_OP_SAMPLE, args);
    return side.read(args.ids);
  });
  trial.same("ids", actual, expected);
}

void try_advance(Trial& trial, std::int64_t rows, std::int64_t tokens) {
  Array ids({rows}), target({rows}, -1), token({tokens});
  std::vector<std::int64_t> places;
  for (std::int64_t t = 0; t < tokens; ++t) places.push_back(t);
  trial.random.shuffle(places);
  for (double& t : token.data) t = static_cast<double>(trial.random.below(1000));
  Array expected = token;
  for (std::size_t r = 0; r < ids.data.size(); ++r) {
    ids.data[r] = static_cast<double>(trial.random.below(50000));
    if (r % 3 == 2 || r >= places.size()) continue;
    target.data[r] = static_cast<double>(places[r]);
    expected.data[static_cast<std::size_t>(places[r])] = ids.data[r];
  }
  bp_advance_args args{};
  args.ids = trial.subject.exact(DType::kI32, ids);
  args.target = trial.subject.exact(DType::kI32, target);
  args.token = trial.subject.exact(DType::kI32, token);
  trial.subject.changes(args.token);
  trial.subject.run(BP_OP_ADVANCE, args);
  trial.same("token", trial.subject.read(args.token), expected);
}

}  // namespace

void add_sampling_cases(Suite& suite) {
  struct Size {
    std::int64_t rows, vocabulary, k;
  };
  for (const Size& s : {Size{1, 1, 1}, {1, 37, 1}, {3, 64, 8}, {5, 257, 20}, {2, 1000, 1}, {3, 9, 9}, {0, 9, 2}}) {
    suite.add_for_each_type(fmt::format("TOPK/R{}_V{}_k{}", s.rows, s.vocabulary, s.k),
                            [s](Trial& trial) { try_topk(trial, s.rows, s.vocabulary, s.k, false); });
  }
  suite.add_for_each_type("TOPK/strided", [](Trial& trial) { try_topk(trial, 4, 65, 3, true); });
  constexpr std::pair<Draw, const char*> kDraws[] = {{Draw::kGreedy, "greedy"}, {Draw::kPlain, "plain"},
                                                     {Draw::kTopK, "top_k"},    {Draw::kTopP, "top_p"},
                                                     {Draw::kMinP, "min_p"},    {Draw::kMixed, "mixed"}};
  for (const auto& [draw, name] : kDraws) {
    suite.add_for_each_type(fmt::format("SAMPLE/{}", name), [draw](Trial& trial) { try_sample(trial, draw, 13, 301); });
  }
  suite.add_for_each_type("SAMPLE/R1_V1", [](Trial& trial) { try_sample(trial, Draw::kPlain, 1, 1); });
  suite.add_for_each_type("SAMPLE/R0", [](Trial& trial) { try_sample(trial, Draw::kPlain, 0, 9); });
  suite.add("ADVANCE/R5_T9", [](Trial& trial) { try_advance(trial, 5, 9); });
  suite.add("ADVANCE/R1_T1", [](Trial& trial) { try_advance(trial, 1, 1); });
  suite.add("ADVANCE/R0_T4", [](Trial& trial) { try_advance(trial, 0, 4); });
}

}  // namespace backplane::conformance

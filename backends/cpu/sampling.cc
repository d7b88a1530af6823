// TOPK and SAMPLE: from logits to ids.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backends/cpu/ops.h"
#include "backends/cpu/philox.h"

namespace backplane::cpu {
namespace {

// The order of candidates: the largest first, of equal ones the lowest index, NaN after everything else.
template <class Real>
struct Better {
  const Real* x;
  bool operator()(std::int32_t a, std::int32_t b) const {
    const bool nan_a = std::isnan(x[a]), nan_b = std::isnan(x[b]);
    if (nan_a != nan_b) return nan_b;
    if (!nan_a && x[a] != x[b]) return x[a] > x[b];
    return a < b;
  }
};

// Puts the indices of the k best of n into order[0..k).
template <class Real>
void rank(const Real* x, std::int64_t n, std::int64_t k, std::int32_t* order) {
  std::iota(order, order + n, 0);
  std::partial_sort(order, order + k, order + n, Better<Real>{x});
}

}  // namespace

// For each worker: an index for each value.
std::uint64_t workspace_bytes(const Check&, const bp_topk_args& args) {
  const std::uint64_t indices = Workspace::checked(args.x.shape[1], sizeof(std::int32_t));
  return Workspace::bytes_for({Workspace::checked(plugin::threads(), indices)});
}

template <class Real>
void run(const Call& call, const bp_topk_args& args) {
  const View<const Real> x(args.x, "x");
  const View<std::int32_t> ids(args.ids, "ids");
  const View<Real> values(args.values, "values");
  const std::int64_t n = x.columns(), k = ids.columns();
  if (x.rows() == 0 || k == 0) return;
  Workspace workspace = call.workspace;
  auto* scratch = workspace.take<std::int32_t>(std::uint64_t{plugin::threads()} * n);
  plugin::parallel_for(x.rows(), 1, [&](std::int64_t begin, std::int64_t end, unsigned worker) {
    std::int32_t* order = scratch + worker * n;
    for (std::int64_t r = begin; r < end; ++r) {
      rank(x.at(r), n, k, order);
      for (std::int64_t i = 0; i < k; ++i) {
        ids.at(r)[i] = order[i];
        values.at(r)[i] = x.at(r)[order[i]];
      }
    }
  });
}

namespace {

// How one row is to be sampled.
struct Choice {
  double temperature, top_p, min_p;
  std::int64_t top_k;
  double u;
};

// p[i] is the probability of candidate order[i], of `count` of them. NaN and minus infinity have none.
template <class Real>
void softmax(const Real* logits, const std::int32_t* order, std::int64_t count, double temperature, double* p) {
  const double best = logits[order[0]];
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double logit = logits[order[i]];
    // The first test is for infinities, whose difference is NaN.
    p[i] = logit == best ? 1 : std::exp((logit - best) / temperature);
    if (std::isnan(p[i])) p[i] = 0;
    sum += p[i];
  }
  for (std::int64_t i = 0; i < count && sum > 0; ++i) p[i] /= sum;
}

template <class Real>
std::int32_t draw(const Real* logits, std::int64_t n, const Choice& choice, std::int32_t* order, double* p) {
  std::int64_t count = choice.top_k == 0 ? n : std::min(choice.top_k, n);
  if (choice.temperature == 0) count = 1;
  rank(logits, n, count, order);
  if (count == 1) return order[0];
  softmax(logits, order, count, choice.temperature, p);

  if (choice.top_p < 1) {
    double sum = 0;
    std::int64_t kept = 0;
    while (kept < count && (kept == 0 || sum < choice.top_p)) sum += p[kept++];
    count = kept;
  }
  const double least = choice.min_p * p[0];
  while (count > 1 && p[count - 1] < least) --count;  // they are sorted

  double left = 0;  // Z
  for (std::int64_t i = 0; i < count; ++i) left += p[i];
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += p[i];
    if (sum > choice.u * left) return order[i];
  }
  return order[0];  // all probabilities are zero: nothing but NaN
}

}  // namespace

// For each worker: an index and a probability for each logit.
std::uint64_t workspace_bytes(const Check&, const bp_sample_args& args) {
  const std::uint64_t all = Workspace::checked(plugin::threads(), args.logits.shape[1]);
  return Workspace::bytes_for({Workspace::checked(all, sizeof(std::int32_t)), Workspace::checked(all, sizeof(double))});
}

template <class Real>
void run(const Call& call, const bp_sample_args& args) {
  const View<const Real> logits(args.logits, "logits");
  const View<const double> temperature(args.temperature, "temperature"), top_p(args.top_p, "top_p"),
      min_p(args.min_p, "min_p");
  const View<const std::int32_t> top_k(args.top_k, "top_k");
  const View<const std::uint64_t> seed(args.seed, "seed"), counter(args.counter, "counter");
  const View<std::int32_t> ids(args.ids, "ids");
  const std::int64_t rows = logits.rows(), n = logits.columns();
  if (rows == 0 || n == 0) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    plugin::require(temperature[r] >= 0 && std::isfinite(temperature[r]), "a temperature is negative or not finite");
    plugin::require(top_p[r] >= 0 && top_p[r] <= 1, "a top_p is outside 0 to 1");
    plugin::require(min_p[r] >= 0 && min_p[r] <= 1, "a min_p is outside 0 to 1");
    plugin::require(top_k[r] >= 0, "a top_k is negative");
  }
  Workspace workspace = call.workspace;
  const std::uint64_t all = std::uint64_t{plugin::threads()} * n;
  auto* orders = workspace.take<std::int32_t>(all);
  auto* probabilities = workspace.take<double>(all);
  plugin::parallel_for(rows, 1, [&](std::int64_t begin, std::int64_t end, unsigned worker) {
    for (std::int64_t r = begin; r < end; ++r) {
      const Choice choice{temperature[r], top_p[r], min_p[r], top_k[r], uniform(seed[r], counter[r])};
      ids[r] = draw(logits.at(r), n, choice, orders + worker * n, probabilities + worker * n);
    }
  });
}

template void run<float>(const Call&, const bp_topk_args&);
template void run<double>(const Call&, const bp_topk_args&);
template void run<float>(const Call&, const bp_sample_args&);
template void run<double>(const Call&, const bp_sample_args&);

}  // namespace backplane::cpu

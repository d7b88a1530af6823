// TOPK, SAMPLE and ADVANCE, as the header describes them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "run.h"

namespace opaque {
namespace {

std::vector<std::int32_t> by_size(const double* row, std::int64_t count) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    if (std::isnan(row[a]) || std::isnan(row[b])) return !std::isnan(row[a]) && std::isnan(row[b]);
    return row[a] > row[b];
  });
  return order;
}

double uniform(std::uint64_t seed, std::uint64_t counter) {
  std::uint32_t c[4] = {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0};
  std::uint32_t k[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
    const std::uint32_t next[4] = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
                                   static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
    std::copy(next, next + 4, c);
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return static_cast<double>((std::uint64_t{c[1]} << 32 | c[0]) >> 11) / 9007199254740992.0;
}

struct Settings {
  double temperature, top_p, min_p;
  std::int32_t top_k;
  double u;
};

std::int32_t draw(const double* logits, std::int64_t count, const Settings& s) {
  std::vector<std::int32_t> order = by_size(logits, count);
  if (s.temperature == 0) return order[0];
  if (s.top_k > 0 && static_cast<std::size_t>(s.top_k) < order.size()) order.resize(static_cast<std::size_t>(s.top_k));
  std::vector<double> p;
  for (const std::int32_t id : order) {
    const double x = logits[id], best = logits[order[0]];
    p.push_back(x == best ? 1 : std::isnan(x) ? 0 : std::exp((x - best) / s.temperature));
  }
  const double all = std::accumulate(p.begin(), p.end(), 0.0);
  std::size_t kept = 0;
  double sum = 0;
  while (kept < p.size() && (s.top_p >= 1 || kept == 0 || sum < s.top_p * all)) sum += p[kept++];
  while (kept > 1 && p[kept - 1] < s.min_p * p[0]) --kept;
  const double target = s.u * std::accumulate(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
  double cumulated = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    cumulated += p[i];
    if (cumulated > target) return order[i];
  }
  return order[kept - 1];
}

}  // namespace

std::int32_t largest(const double* row, std::int64_t count) { return by_size(row, count)[0]; }

void run_op(const Run& run, const bp_topk_args& a) {
  const Values x = run.load(a.x);
  const std::int64_t rows = a.x.shape[0], columns = a.x.shape[1], k = a.ids.shape[1];
  Values ids, values;
  for (std::int64_t r = 0; r < rows; ++r) {
    const double* row = x.data() + r * columns;
    const auto order = by_size(row, columns);
    for (std::int64_t i = 0; i < k; ++i) {
      ids.push_back(order[static_cast<std::size_t>(i)]);
      values.push_back(row[order[static_cast<std::size_t>(i)]]);
    }
  }
  run.store(a.ids, std::move(ids));
  run.store(a.values, std::move(values));
}

void run_op(const Run& run, const bp_sample_args& a) {
  const Values logits = run.load(a.logits), temperature = run.load(a.temperature), top_p = run.load(a.top_p),
               min_p = run.load(a.min_p);
  const auto top_k = run.load_raw<std::int32_t>(a.top_k);
  const auto seed = run.load_raw<std::uint64_t>(a.seed), counter = run.load_raw<std::uint64_t>(a.counter);
  Values ids;
  for (std::size_t r = 0; r < temperature.size(); ++r) {
    const double* row = logits.data() + static_cast<std::int64_t>(r) * a.logits.shape[1];
    ids.push_back(
        draw(row, a.logits.shape[1], {temperature[r], top_p[r], min_p[r], top_k[r], uniform(seed[r], counter[r])}));
  }
  run.store(a.ids, std::move(ids));
}

void run_op(const Run& run, const bp_advance_args& a) {
  const auto ids = run.load_raw<std::int32_t>(a.ids), target = run.load_raw<std::int32_t>(a.target);
  Values token = run.load(a.token);
  for (std::size_t r = 0; r < ids.size(); ++r) {
    if (target[r] >= 0) token.at(static_cast<std::size_t>(target[r])) = ids[r];
  }
  run.store(a.token, std::move(token));
}

}  // namespace opaque

// TOPK and SAMPLE, as the header describes them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "device.h"

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
  for (const std::int32_t id : order) p.push_back(std::exp((logits[id] - logits[order[0]]) / s.temperature));
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

void run_topk(Device& device, const bp_topk_args& a) {
  const auto x = device.memory.load(a.x);
  const std::int64_t rows = a.x.shape[0], columns = a.x.shape[1], k = a.ids.shape[1];
  std::vector<double> ids, values;
  for (std::int64_t r = 0; r < rows; ++r) {
    const double* row = x.data() + r * columns;
    const auto order = by_size(row, columns);
    for (std::int64_t i = 0; i < k; ++i) {
      ids.push_back(order[static_cast<std::size_t>(i)]);
      values.push_back(row[order[static_cast<std::size_t>(i)]]);
    }
  }
  device.memory.store(a.ids, ids);
  device.memory.store(a.values, values);
}

void run_sample(Device& device, const bp_sample_args& a) {
  const Memory& m = device.memory;
  const auto logits = m.load(a.logits), temperature = m.load(a.temperature), top_p = m.load(a.top_p),
             min_p = m.load(a.min_p);
  const auto top_k = m.load_raw<std::int32_t>(a.top_k);
  const auto seed = m.load_raw<std::uint64_t>(a.seed), counter = m.load_raw<std::uint64_t>(a.counter);
  std::vector<double> ids;
  for (std::size_t r = 0; r < temperature.size(); ++r) {
    const double* row = logits.data() + static_cast<std::int64_t>(r) * a.logits.shape[1];
    ids.push_back(
        draw(row, a.logits.shape[1], {temperature[r], top_p[r], min_p[r], top_k[r], uniform(seed[r], counter[r])}));
  }
  device.memory.store(a.ids, ids);
}

}  // namespace opaque

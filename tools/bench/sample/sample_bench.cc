// How long it takes to draw a token on one core, and the tokens of a step on several:
//   bench_sample [VOCABULARY] [RUNS]
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/base/thread_pool.h"
#include "core/engine/draw.h"
#include "core/sample/logprobs.h"
#include "core/sample/sampler.h"

namespace {

using backplane::TokenId;
using backplane::sample::Sampler;
using backplane::sample::SamplingParams;
using Row = std::vector<double>;

constexpr std::size_t kRows = 8;  // that a measurement goes through in turn

// Logits as models give them: about normal, with a few tokens far above. `peak` 0 has none of these; `coarse` has the
// few significant bits of bfloat16, and so many ties.
std::vector<Row> make_rows(std::size_t vocabulary, double peak, bool coarse, std::size_t count = kRows) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal(0, 2.5);
  std::vector<Row> rows(count, Row(vocabulary));
  for (Row& row : rows) {
    for (double& logit : row) logit = normal(random);
    for (int i = 0; i < 30; ++i) row[random() % vocabulary] += peak / (1 + 0.2 * i);
    for (double& logit : row) {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(logit));
      logit = std::bit_cast<float>(coarse ? bits & 0xFFFF0000u : bits);
    }
  }
  return rows;
}

// In milliseconds, the median.
double median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

double milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double measure(int runs, const std::vector<Row>& rows, const std::function<TokenId(const Row&)>& work) {
  std::vector<double> times;
  TokenId sum = 0;
  for (const Row& row : rows) sum += work(row);  // pages, caches
  for (int i = 0; i < runs; ++i) {
    times.push_back(milliseconds([&] { sum += work(rows[static_cast<std::size_t>(i) % rows.size()]); }));
  }
  return sum < 0 ? -1 : median(times);
}

// A step's rows one after another and on all processors, in turn.
void measure_steps(std::size_t vocabulary, int runs, const std::string& name, const SamplingParams& params,
                   std::optional<std::uint32_t> top = {}) {
  static const std::vector<Row> rows = make_rows(vocabulary, 12, false, 64);
  static backplane::ThreadPool one(1), all;
  backplane::engine::RowDrawer alone(&one), together(&all);
  for (const std::size_t count : {1, 2, 4, 8, 16, 64}) {
    std::vector<Sampler> samplers;
    std::vector<backplane::engine::Draw> draws;
    for (std::size_t i = 0; i < count; ++i) samplers.emplace_back(params);
    for (std::size_t i = 0; i < count; ++i) draws.push_back({.logits = rows[i], .sampler = &samplers[i], .top = top});
    std::vector<double> serial, parallel;
    for (int i = 0; i < std::max(5, runs / 4); ++i) {
      serial.push_back(milliseconds([&] { alone.run(draws); }));
      parallel.push_back(milliseconds([&] { together.run(draws); }));
    }
    const double a = median(serial), b = median(parallel);
    std::puts(fmt::format("{:<34}{:>6}{:>12.3f}{:>12.3f}{:>8.2f}", name, count, a, b, a / b).c_str());
  }
}

// What it would take to sort the whole vocabulary, for comparison.
TokenId by_sorting(const Row& row, double top_p, double u) {
  std::vector<TokenId> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](TokenId id) { return row[static_cast<std::size_t>(id)]; };
  std::sort(order.begin(), order.end(),
            [&](TokenId a, TokenId b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  double total = 0;
  for (const TokenId id : order) total += std::exp(logit(id) - logit(order[0]));
  double sum = 0;
  for (const TokenId id : order) {
    sum += std::exp(logit(id) - logit(order[0]));
    if (sum > u * top_p * total) return id;
  }
  return order.back();
}

int run(std::size_t vocabulary, int runs) {
  const std::vector<std::vector<Row>> kinds{make_rows(vocabulary, 12, false), make_rows(vocabulary, 0, false),
                                            make_rows(vocabulary, 12, true)};
  std::vector<TokenId> prompt(2000);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i * 7919 % vocabulary);
  const auto line = [&](const std::string& name, const std::function<TokenId(const Row&)>& work) {
    std::string text = fmt::format("{:<34}", name);
    for (const auto& rows : kinds) text += fmt::format("{:>10.3f}", measure(runs, rows, work));
    std::puts(text.c_str());
  };
  const auto sampled = [&](const std::string& name, SamplingParams params) {
    params.seed = 1;
    Sampler sampler(params, {.prompt = prompt});
    line(name, [&](const Row& row) {
      const TokenId id = sampler.sample(row);
      sampler.accept(id);
      return id;
    });
  };
  std::printf("vocabulary %zu, one core, median of %d draws, ms\n", vocabulary, runs);
  std::puts(fmt::format("{:<34}{:>10}{:>10}{:>10}", "", "peaked", "flat", "bf16").c_str());
  sampled("greedy", {});
  sampled("all", {.temperature = 1});
  sampled("top-k 40", {.temperature = 1, .top_k = 40});
  sampled("top-p 0.95", {.temperature = 1, .top_p = 0.95});
  sampled("min-p 0.05", {.temperature = 1, .min_p = 0.05});
  sampled("typical 0.95", {.temperature = 1, .typical_p = 0.95});
  sampled("the defaults of run", {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05});
  sampled("top-p 0.95, penalties", {.temperature = 1, .top_p = 0.95, .repetition_penalty = 1.1, .presence_penalty = 1});
  line("20 log-probabilities",
       [](const Row& row) { return backplane::sample::report_token(row, 0, 20).top.front().id; });
  std::uint64_t n = 0;
  line("top-p 0.95 by sorting everything",
       [&](const Row& row) { return by_sorting(row, 0.95, std::fmod(static_cast<double>(++n) * 0.618, 1.0)); });
  std::puts(fmt::format("\n{:<34}{:>6}{:>12}{:>12}{:>8}", "a step's rows, ms", "rows", "1 thread",
                        fmt::format("{} threads", backplane::ThreadPool().threads()), "ratio")
                .c_str());
  measure_steps(vocabulary, runs, "greedy", {});
  measure_steps(vocabulary, runs, "the defaults of run",
                {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05});
  measure_steps(vocabulary, runs, "greedy, 20 log-probabilities", {}, 20);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int vocabulary = argc > 1 ? std::atoi(argv[1]) : 151936, runs = argc > 2 ? std::atoi(argv[2]) : 201;
  if (argc > 3 || vocabulary < 100 || runs < 1) {
    std::fprintf(stderr, "usage: bench_sample [VOCABULARY, at least 100] [RUNS]\n");
    return 2;
  }
  return run(static_cast<std::size_t>(vocabulary), runs);
}

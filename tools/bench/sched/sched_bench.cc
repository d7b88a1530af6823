// What a step costs beside the model: planning, the KV bookkeeping and the step's arrays, with many sequences.
//   bench_sched [RUNNING] [WAITING] [CONTEXT] [STEPS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/engine/engine.h"
#include "core/engine/step_builder.h"
#include "core/sched/scheduler.h"

namespace {

using namespace backplane;

using Clock = std::chrono::steady_clock;
constexpr std::uint32_t kPage = 16, kBudget = 2048, kVocabulary = 64;

struct Sizes {
  std::uint32_t running = 256, waiting = 1000, context = 1024, steps = 400;

  // The length of those that begin first: they decode until the last prompt is computed, too.
  std::uint32_t longest() const { return context + running * context / (kBudget - running) + steps + 64; }
};

// The times of one part of a step, in microseconds.
class Times {
 public:
  void add(Clock::duration time) { times_.push_back(std::chrono::duration<double, std::micro>(time).count()); }
  void add_seconds(double seconds) { times_.push_back(seconds * 1e6); }
  double at(double part) {
    if (times_.empty()) return 0;
    std::sort(times_.begin(), times_.end());
    return times_[static_cast<std::size_t>(part * static_cast<double>(times_.size() - 1))];
  }

 private:
  std::vector<double> times_;
};

void print_header() { std::printf("%-58s %10s %10s %10s\n", "microseconds a step", "p5", "median", "p99"); }
void print_row(const char* what, Times& times) {
  std::printf("%-58s %10.1f %10.1f %10.1f\n", what, times.at(0.05), times.at(0.5), times.at(0.99));
}

// Gives logits without computing anything.
class NullModel : public engine::Model {
 public:
  NullModel(const Sizes& sizes, std::vector<std::uint32_t> windows, std::uint32_t pages)
      : sizes_(sizes), pages_(pages) {
    shape_ = {.architecture = "none", .vocab_size = kVocabulary, .max_context = 1u << 20, .layers = 1, .groups = {}};
    for (const std::uint32_t window : windows) shape_.groups.push_back({window, 1});
  }
  const engine::ModelShape& shape() const override { return shape_; }
  std::uint32_t max_step_tokens() const override { return kBudget; }
  std::uint32_t max_step_sequences() const override { return sizes_.running; }
  std::uint32_t page_size() const override { return kPage; }
  std::uint32_t pages(std::uint32_t) const override { return pages_; }
  std::int32_t acquire_rope_row(std::uint64_t) override { return 0; }
  void release_rope_row(std::int32_t) noexcept override {}
  std::uint64_t rope_identity(std::uint64_t) const override { return 0; }
  void copy_pages(std::uint32_t, std::span<const std::int32_t>, std::span<const std::int32_t>) override {}
  engine::Logits forward(const sched::Step& step) override {
    engine::Logits logits{.vocab_size = kVocabulary, .type = DType::kF32, .values = {}};
    logits.values.resize(std::size_t{step.rows()} * kVocabulary);
    for (std::uint32_t row = 0; row < step.rows(); ++row) {
      logits.values[std::size_t{row} * kVocabulary + (++state_ * 2654435761u >> 7) % kVocabulary] = 1;
    }
    return logits;
  }

 private:
  Sizes sizes_;
  std::uint32_t pages_;
  engine::ModelShape shape_;
  std::uint32_t state_ = 0;
};

std::vector<TokenId> text(std::uint32_t length, std::uint32_t seed) {
  std::vector<TokenId> out(length);
  for (TokenId& token : out) token = static_cast<TokenId>((seed = seed * 1664525u + 1013904223u) >> 26);
  return out;
}

// The scheduler with its book, part by part, while all sequences decode.
void bench_parts(const Sizes& sizes, std::vector<kv::GroupConfig> groups) {
  kv::KvBook book(kPage, groups, kBudget);
  sched::Scheduler scheduler(book, {.token_budget = kBudget, .max_sequences = sizes.running, .max_rows = kBudget});
  std::vector<std::unique_ptr<sched::Sequence>> all;
  for (std::uint32_t i = 0; i < sizes.running + sizes.waiting; ++i) {
    auto sequence = std::make_unique<sched::Sequence>();
    sequence->tokens = text(sizes.context, i);
    sequence->planned_length = sizes.longest();
    sequence->kv = book.open(kv::PrefixIdentity{});
    sequence->order.arrival = i;
    scheduler.add(*sequence);
    all.push_back(std::move(sequence));
  }
  Times next, build, commit, sum;
  sched::Step step;
  for (std::uint32_t measured = 0; measured < sizes.steps;) {
    const auto start = Clock::now();
    const sched::Schedule& schedule = scheduler.next();
    const auto planned = Clock::now();
    std::vector<engine::StepPart> parts;
    for (const sched::Share& share : schedule.shares) {
      parts.push_back({.sequence = share.sequence, .tokens = share.tokens, .rows = {share.tokens - 1}});
    }
    engine::build_step(book, parts, schedule.n_decode, step);
    const auto built = Clock::now();
    for (const sched::Share& share : schedule.shares) scheduler.commit(share);
    const auto committed = Clock::now();
    for (const sched::Share& share : schedule.shares) {
      if (share.logits) share.sequence->tokens.push_back(1);
    }
    if (schedule.n_decode < sizes.running) continue;  // prompts are still being computed
    ++measured;
    next.add(planned - start);
    build.add(built - planned);
    commit.add(committed - built);
    sum.add(committed - start);
  }
  print_row("  snapshot, plan, pages", next);
  print_row("  step arrays", build);
  print_row("  pages that become known, windows", commit);
  print_row("  all of these", sum);
}

struct Load {
  const char* what;
  std::vector<std::uint32_t> windows;
  std::uint32_t pages;     // of each group
  std::uint32_t prompt;    // tokens
  std::uint32_t generate;  // tokens
  bool shared;             // all prompts begin alike
};

// The whole engine, sampling and events included, without the time in the model.
void bench_engine(const Sizes& sizes, const Load& load) {
  NullModel model(sizes, load.windows, load.pages);
  engine::Engine engine(model, {.max_sequences = sizes.running, .token_budget = kBudget});
  std::uint32_t made = 0;
  const auto submit = [&] {
    std::vector<TokenId> prompt = text(load.prompt, made++);
    if (load.shared) std::fill_n(prompt.begin(), prompt.size() / 2, 5);
    engine.submit({.prompt = std::move(prompt), .max_tokens = load.generate, .ignore_eos = true});
  };
  Times times;
  const std::uint32_t warm = sizes.running * load.prompt / kBudget + 20;
  for (std::uint32_t i = 0; i < warm + sizes.steps; ++i) {
    while (engine.requests() < sizes.running + sizes.waiting) submit();
    const std::uint64_t before = engine.steps().steps_run();
    const auto start = Clock::now();
    const std::vector<engine::Event> events = engine.step();
    const std::chrono::duration<double> took = Clock::now() - start;
    if (i < warm || engine.steps().steps_run() == before) continue;
    times.add_seconds(took.count() - engine.steps().records().back().seconds);
  }
  print_row(load.what, times);
  const engine::EngineStats stats = engine.stats();
  std::printf("%58s %zu running, %zu waiting, %llu preempted, %.0f%% found\n", "", stats.running, stats.waiting,
              static_cast<unsigned long long>(stats.preempted),
              100.0 * static_cast<double>(stats.prefix.found) /
                  static_cast<double>(std::max<std::uint64_t>(1, stats.prefix.queried)));
}

int run(const Sizes& sizes) {
  if (sizes.running >= kBudget) {
    throw Error(ErrorCode::kUsage, "more sequences than tokens in a step", "RUNNING", "give fewer");
  }
  const std::uint32_t whole = sizes.running * (sizes.longest() / kPage + 1);
  std::printf("%u sequences decode with %u tokens of context, %u wait; pages of %u\n", sizes.running, sizes.context,
              sizes.waiting, kPage);
  print_header();
  std::printf("scheduler, full attention\n");
  bench_parts(sizes, {{0, whole}});
  std::printf("scheduler, full attention and a window of 512\n");
  bench_parts(sizes, {{0, whole}, {512, whole}});
  std::printf("engine with sampling of %u logits and events\n", kVocabulary);
  const std::uint32_t all = sizes.steps + sizes.context;
  bench_engine(sizes, {"  all decode", {0}, whole + 100, sizes.context, all, false});
  bench_engine(sizes, {"  prompts of 512 tokens come and go", {0}, whole, 512, 128, false});
  bench_engine(sizes, {"  the same, half of each prompt shared", {0}, whole, 512, 128, true});
  bench_engine(sizes, {"  the same with a window, and pages for half of them", {0, 512}, whole / 4, 512, 512, true});
  return 0;
}

std::uint32_t number(const char* text_of) { return static_cast<std::uint32_t>(std::max(1, std::atoi(text_of))); }

}  // namespace

int main(int argc, char** argv) {
  if (argc > 5) {
    std::fprintf(stderr, "usage: bench_sched [RUNNING] [WAITING] [CONTEXT] [STEPS]\n");
    return static_cast<int>(backplane::ErrorCode::kUsage);
  }
  Sizes sizes;
  if (argc > 1) sizes.running = number(argv[1]);
  if (argc > 2) sizes.waiting = number(argv[2]);
  if (argc > 3) sizes.context = number(argv[3]);
  if (argc > 4) sizes.steps = number(argv[4]);
  try {
    return run(sizes);
  } catch (const backplane::Error& error) {
    std::fprintf(stderr, "bench_sched: %s\n", error.what());
    return error.exit_status();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_sched: %s\n", error.what());
    return 1;
  }
}

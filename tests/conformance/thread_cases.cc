// Several threads at once on one device, each with a stream of its own.
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "tests/conformance/suite.h"
#include "tests/conformance/weights.h"

namespace backplane::conformance {
namespace {

constexpr int kThreads = 4, kRounds = 8;

// Runs `work(thread)` on all threads at once and rethrows what the first one to fail threw.
template <class Work>
void on_threads(Work&& work) {
  std::mutex mutex;
  std::exception_ptr first;
  std::atomic<int> waiting{kThreads};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      try {
        for (--waiting; waiting > 0;) std::this_thread::yield();
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

// Each thread multiplies what is its own, over and over, in buffers that it allocates and frees.
void try_linear(Trial& trial) {
  const DType type = trial.subject.parameter_type();
  const bool canonical = trial.subject.device().takes_weight_type(type);
  const Form form = canonical ? Form::kCanonical : Form::kImported;
  const Weight weight = random_weight(trial, type, 29, 96);
  struct Share {
    Array x, ties, expected, bound;
  };
  const auto multiply = [&](Side& side, const Array& x, Array& ties) {
    bp_linear_args args{};
    args.weight = matrix_on(side, weight, form, BP_USE_LINEAR);
    args.x = side.input(trial.input_for(side, x, ties));
    args.out = side.output({x.shape[0], 29});
    side.run(BP_OP_LINEAR, args);
    return side.read(args.out);
  };
  std::vector<Share> shares(kThreads);
  for (Share& share : shares) {
    share.x = trial.draw({1 + trial.random.below(9), 96});
    multiply(trial.subject, share.x, share.ties);  // so that a refusal is known before threads start
    share.expected = multiply(trial.oracle, share.x, share.ties);
    share.bound =
        linear_bound(trial.arithmetic(), share.expected, {share.x, weight.numbers, nullptr, &share.ties, false});
  }
  std::mutex mutex;  // of the trial's own account
  on_threads([&](int thread) {
    const Share& share = shares[static_cast<std::size_t>(thread)];
    for (int round = 0; round < kRounds; ++round) {
      Side side(trial.subject.device().shared_from_this(), Side::Role::kSubject, trial.activation(), true);
      Array ties;
      const Array actual = multiply(side, share.x, ties);
      side.check_guards();
      const std::lock_guard lock(mutex);
      trial.compare("out on one of four threads", actual, share.expected, share.bound);
    }
  });
}

// Questions, allocations and copies at the same time.
void try_memory(Trial& trial) {
  device::Device& device = trial.subject.device();
  std::vector<Random> randoms;
  for (int i = 0; i < kThreads; ++i) randoms.emplace_back(trial.random.bits(), "thread");
  on_threads([&](int thread) {
    Random& random = randoms[static_cast<std::size_t>(thread)];
    for (int round = 0; round < 4 * kRounds; ++round) {
      Side side(device.shared_from_this(), Side::Role::kSubject, trial.activation(), true);
      const Array x = random.array({1 + random.below(20), 1 + random.below(200)}, trial.activation());
      const bp_tensor tensor = side.input(x);
      bp_binary_args add{};
      add.a = add.b = add.out = tensor;
      add.alpha = 1;
      try {
        side.ask(BP_OP_ADD, add);
      } catch (const Skipped&) {  // any answer will do, it only has to come
      } catch (const Retyped&) {
      }
      const std::vector<std::byte> bytes = side.bytes(tensor);
      require(bytes == encode(trial.activation(), x), "a buffer holds what another thread uploaded to its own");
    }
  });
}

}  // namespace

void add_thread_cases(Suite& suite) {
  suite.add_for_each_type("threads/LINEAR", try_linear);
  suite.add("threads/memory", try_memory);
}

}  // namespace backplane::conformance

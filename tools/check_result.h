// What a cross-check has found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "tests/conformance/numbers.h"

namespace backplane::tools::check {

// By E, the distance from the exact result over the bound of the declared arithmetic: at most 1, at most 4, more.
enum class Verdict { kNotCompared, kRounding, kSuspect, kBug };
Verdict verdict_of(double error);
const char* verdict_name(Verdict verdict);

// One op of the model over all steps. Relative errors are rms(error) / rms(value), the largest of a step; infinite
// where one side has NaN or infinity and the other hasn't.
struct OpResult {
  std::string name;  // layers.3.attention.q
  std::string op;    // LINEAR
  std::int64_t layer = -1;
  std::uint64_t compared = 0;       // runs
  std::uint64_t not_compared = 0;   // runs
  std::string reason;               // why not
  double error = 0;                 // the isolated E, the largest
  conformance::Shape shape, place;  // of the op's own rows, and in them, where that was
  double got = 0, want = 0, bound = 0;
  double accumulated = 0;  // relative error of the device's own chain
  double storage = 0;      // of the reference's chain with everything stored in the device's types

  Verdict verdict() const { return compared == 0 ? Verdict::kNotCompared : verdict_of(error); }
};

// The pages of a layer after the device's own chain.
struct KvResult {
  std::uint32_t layer = 0;
  double accumulated = 0, storage = 0;
};

struct Flip {
  std::uint64_t row = 0;  // of all rows of logits
  TokenId want = 0, got = 0;
  double margin = 0;  // of the reference's logits for the two
  bool explained = false;
};

struct LogitsResult {
  std::uint64_t rows = 0, values = 0;
  double largest_difference = 0;
  double kl_sum = 0, kl_largest = 0;
  double square_error = 0, storage_square_error = 0;  // sums
  double allowance = 1;      // how much coarser than what is stored the device declares its sums to be
  bool other_class = false;  // NaN or infinite on one side only
  bool changed_by_watching = false;
  bool deterministic = false;  // as the device declares
  std::vector<Flip> flips;

  double mean_kl() const { return rows ? kl_sum / static_cast<double>(rows) : 0; }
  // Error of the device's chain over that of storing alone; 0 where storing changes nothing.
  double ratio() const;
  Verdict verdict() const;
};

struct CheckResult {
  std::string model, device, against;
  bool fusion = false;
  std::uint64_t steps = 0, tokens = 0;
  std::vector<OpResult> ops;  // in the order of the model
  std::vector<KvResult> kv;
  LogitsResult logits;

  const OpResult* first(Verdict verdict) const;  // nullptr: none has it
  std::uint64_t count(Verdict verdict) const;    // of ops
  std::uint64_t runs_compared() const;
  std::uint64_t runs_not_compared() const;
  Verdict verdict() const;  // the worst; kNotCompared when nothing was
};

std::string table(const CheckResult& result, bool all);
// `error`: what the program ends with all the same, or nullptr.
std::string json(const CheckResult& result, const Error* error = nullptr);

}  // namespace backplane::tools::check

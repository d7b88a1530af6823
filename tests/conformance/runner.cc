// Runs the cases one after another, each with inputs of its own.
#include <algorithm>
#include <chrono>

#include "core/base/error.h"
#include "tests/conformance/conformance.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

// Pieces between the stars appear in the name in this order.
bool matches(const std::string& filter, const std::string& name) {
  std::size_t from = 0, at = 0;
  while (at <= filter.size()) {
    const std::size_t star = std::min(filter.find('*', at), filter.size());
    const std::size_t found = name.find(filter.substr(at, star - at), from);
    if (found == std::string::npos) return false;
    from = found + (star - at);
    at = star + 1;
  }
  return true;
}

// A name that is given in full means that case alone, even where others begin alike.
std::vector<const Case*> chosen(const Suite& suite, const std::string& filter) {
  std::vector<const Case*> out;
  for (const Case& each : suite.cases()) {
    if (each.name == filter) return {&each};
    if (matches(filter, each.name)) out.push_back(&each);
  }
  return out;
}

void add_all(Suite& suite) {
  for (const auto add :
       {add_table_cases,      add_memory_cases,   add_stream_cases,    add_refusal_cases,     add_refusal_object_cases,
        add_linear_cases,     add_norm_cases,     add_rope_cases,      add_elementwise_cases, add_move_cases,
        add_sampling_cases,   add_kv_write_cases, add_attention_cases, add_kv_table_cases,    add_weight_cases,
        add_ranged_cases,     add_graph_cases,    add_compile_cases,   add_chain_cases,       add_fused_cases,
        add_invariance_cases, add_thread_cases,   add_comm_cases}) {
    add(suite);
  }
}

void attempt(const Case& each, DType activation, const std::shared_ptr<device::Device>& device,
             const std::shared_ptr<device::Device>& oracle, std::uint64_t seed, Result& result) {
  Trial trial(device, oracle, activation, seed, each.name);
  try {
    each.body(trial);
    trial.subject.check_guards();
    trial.oracle.check_guards();
  } catch (...) {
    result.error = trial.error;
    throw;
  }
  result.error = trial.error;
}

Result run_case(const Case& each, const std::shared_ptr<device::Device>& device,
                const std::shared_ptr<device::Device>& oracle, std::uint64_t seed) {
  Result result;
  result.name = each.name;
  const auto start = std::chrono::steady_clock::now();
  try {
    try {
      attempt(each, each.activation, device, oracle, seed, result);
    } catch (const Retyped& wish) {
      attempt(each, wish.activation, device, oracle, seed, result);
    }
  } catch (const Skipped& skipped) {
    result.verdict = Verdict::kSkipped;
    result.text = skipped.reason;
  } catch (const Failed& failed) {
    result.verdict = Verdict::kFailed;
    result.text = failed.text;
  } catch (const Retyped&) {
    result.verdict = Verdict::kFailed;
    result.text = "the plugin asks for another activation type each time it is asked";
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    result.verdict = Verdict::kFailed;
    result.text = error.what();
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace

std::uint64_t Summary::count(Verdict verdict) const {
  return static_cast<std::uint64_t>(
      std::count_if(results.begin(), results.end(), [&](const Result& r) { return r.verdict == verdict; }));
}

bool Summary::failed() const { return count(Verdict::kFailed) > 0 || count(Verdict::kPassed) == 0; }

Summary run(const Target& subject, const Target& oracle, const Options& options) {
  auto device = subject.open();
  const auto reference = oracle.open();
  Suite suite(device, subject);
  add_all(suite);
  Summary summary;
  summary.device = device->name();
  summary.description = device->caps().description;
  summary.seed = options.seed;
  for (const Case* each : chosen(suite, options.filter)) {
    if (options.on_start) options.on_start(each->name);
    summary.results.push_back(run_case(*each, device, reference, options.seed));
    if (options.on_result) options.on_result(summary.results.back());
    // A failure may stay with the device's stream, and must not be told again by every case that follows.
    if (summary.results.back().verdict == Verdict::kFailed) device = subject.open();
  }
  return summary;
}

std::vector<std::string> list(const Target& subject, const Options& options) {
  Suite suite(subject.open(), subject);
  add_all(suite);
  std::vector<std::string> names;
  for (const Case* each : chosen(suite, options.filter)) names.push_back(each->name);
  return names;
}

}  // namespace backplane::conformance

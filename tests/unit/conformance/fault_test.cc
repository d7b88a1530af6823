// Each fault is found, the op or table that has it is named, and nothing else is blamed.
#include "tests/plugins/faulty/faulty.h"
#include "tests/unit/conformance/suite_runs.h"

namespace backplane::conformance_test {
namespace {

struct Fault {
  const char* name;
  std::set<std::string> must;  // named
  std::set<std::string> may;   // named too, since it shares the fault
};

const Fault kExpected[] = {
    {"head_map", {"ATTN_PREFILL", "ATTN_DECODE"}, {}},
    {"last_page", {"ATTN_PREFILL", "ATTN_DECODE"}, {}},
    {"window", {"ATTN_PREFILL", "ATTN_DECODE"}, {}},
    {"missing_bias", {"LINEAR"}, {}},
    {"transposed_v", {"ATTN_PREFILL", "ATTN_DECODE"}, {}},
    {"eps", {"NORM"}, {}},
    {"late_error", {"streams"}, {}},
    {"past_end", {"ADD"}, {"streams", "graphs"}},
    {"rope_pairing", {"ROPE"}, {}},
    {"f16_sums", {"LINEAR"}, {"threads"}},
    {"undeclared_q8", {"LINEAR"}, {"threads"}},
    {"stale_descriptor", {"graphs"}, {}},
    {"early_download", {"streams"}, {}},
};

TEST(Faults, AllAreExpected) {
  std::set<std::string> known(std::begin(faulty::kFaults), std::end(faulty::kFaults)), expected;
  for (const Fault& fault : kExpected) expected.insert(fault.name);
  EXPECT_EQ(expected, known);
}

class FaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultTest, IsFoundAndNamed) {
  const Fault& fault = GetParam();
  const conformance::Summary summary = run("faulty:0", {}, std::string("fault=") + fault.name);
  EXPECT_TRUE(summary.failed());
  const std::set<std::string> found = blamed(summary);
  for (const std::string& op : fault.must) EXPECT_TRUE(found.count(op)) << op << " is not blamed";
  for (const std::string& op : found) {
    EXPECT_TRUE(fault.must.count(op) || fault.may.count(op)) << op << " is blamed:\n" << failures(summary);
  }
  // Every failure can be replayed by itself.
  for (const conformance::Result& r : summary.results) {
    if (r.verdict != conformance::Verdict::kFailed) continue;
    const conformance::Summary again = run("faulty:0", r.name, std::string("fault=") + fault.name);
    ASSERT_EQ(again.results.size(), 1u);
    EXPECT_EQ(again.results[0].text, r.text);
    break;
  }
  std::printf("%s: %ju cases failed, first: %.200s\n", fault.name,
              static_cast<std::uintmax_t>(summary.count(conformance::Verdict::kFailed)), failures(summary).c_str());
}

INSTANTIATE_TEST_SUITE_P(All, FaultTest, ::testing::ValuesIn(kExpected),
                         [](const auto& fault) { return std::string(fault.param.name); });

}  // namespace
}  // namespace backplane::conformance_test

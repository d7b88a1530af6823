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

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

// Lists of ops that the faulty one is in.
const std::set<std::string> kLists = {"graphs", "compile"};
const std::set<std::string> kAttention = {"ATTN_PREFILL", "ATTN_DECODE"};

const Fault kExpected[] = {
    {"head_map", kAttention, kLists},
    {"last_page", kAttention, kLists},
    {"window", kAttention, {}},
    {"missing_bias", {"LINEAR"}, kLists},
    {"transposed_v", kAttention, kLists},
    {"eps", {"NORM"}, {}},
    {"late_error", {"streams"}, {"graphs"}},
    {"past_end", {"ADD"}, {"streams", "graphs", "compile"}},
    {"rope_pairing", {"ROPE"}, kLists},
    {"f16_sums", {"LINEAR"}, {"threads", "graphs", "compile"}},
    {"undeclared_q8", {"LINEAR"}, {"threads", "graphs", "compile"}},
    {"stale_descriptor", {"graphs"}, {}},
    {"early_download", {"streams"}, {}},
    {"any_feature", {"refusals"}, {}},
    {"any_kind", {"refusals"}, {}},
    {"any_flag", {"refusals"}, {}},
    {"small_workspace", {"LINEAR"}, {}},
    {"prepared_shape", {"LINEAR"}, {}},
    {"launch_once", {"graphs"}, {}},
    {"stuck_capture", {"graphs"}, {}},
    {"lost_event", {"streams"}, {}},
    {"list_order", {"compile"}, {}},
    {"list_contents", {"compile"}, {}},
    {"forgotten_rank", {"comm"}, {}},
    {"gather_order", {"comm"}, {}},
    {"scatter_part", {"comm"}, {}},
    {"short_message", {"comm"}, {}},
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
  std::printf("| %s | %s |\n", fault.name, counts(summary).c_str());
}

INSTANTIATE_TEST_SUITE_P(All, FaultTest, ::testing::ValuesIn(kExpected),
                         [](const auto& fault) { return std::string(fault.param.name); });

}  // namespace
}  // namespace backplane::conformance_test

// Every case runs to its end on some device here: one that all of them skip could be wrong without anybody noticing.
#include <regex>

#include "tests/unit/conformance/suite_runs.h"

namespace backplane::conformance_test {
namespace {

using conformance::Verdict;

// Without the page size and the activation type, which are the device's choice.
std::string kind_of(const std::string& name) {
  static const std::regex kPage("/S[0-9]+"), kActivation("/(F64|F32|F16|BF16)$");
  return std::regex_replace(std::regex_replace(name, kPage, ""), kActivation, "");
}

TEST(Coverage, NoCaseIsSkippedEverywhere) {
  std::map<std::string, std::string> skipped;  // with the reason of one device
  std::set<std::string> executed;
  for (const char* device : {"cpu:f32", "cpu:f64", "faulty:0", "opaque:f32", "opaque:f16", "template:0"}) {
    for (const conformance::Result& r : run(device).results) {
      if (r.verdict == Verdict::kSkipped) {
        skipped.emplace(kind_of(r.name), std::string(device) + ": " + r.text);
      } else {
        executed.insert(kind_of(r.name));
      }
    }
  }
  EXPECT_GT(executed.size(), 1000u);
  for (const auto& [name, reason] : skipped) {
    // A device without a table has one case of the table's name, to say so.
    if (name.find('/') == std::string::npos) continue;
    EXPECT_TRUE(executed.count(name)) << name << " is skipped by every device, " << reason;
  }
}

}  // namespace
}  // namespace backplane::conformance_test

// Sound devices pass, with as many cases as they should have; reports are what they claim to be.
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/device/device.h"
#include "tests/unit/conformance/suite_runs.h"

namespace backplane::conformance_test {
namespace {

using conformance::Summary;
using conformance::Verdict;

void expect_sound(const Summary& summary, std::uint64_t at_least) {
  EXPECT_EQ(failures(summary), "");
  EXPECT_FALSE(summary.failed());
  EXPECT_GE(summary.count(Verdict::kPassed), at_least);
  for (const conformance::Result& r : summary.results) {
    EXPECT_FALSE(conformance::is_suspect(r)) << r.name << ": E = " << r.error;
    if (r.verdict == Verdict::kSkipped) {
      EXPECT_NE(r.text, "") << r.name << " was skipped without a reason";
    }
  }
  std::printf("%s: %ju passed, %ju failed, %ju skipped\n", summary.device.c_str(),
              static_cast<std::uintmax_t>(summary.count(Verdict::kPassed)),
              static_cast<std::uintmax_t>(summary.count(Verdict::kFailed)),
              static_cast<std::uintmax_t>(summary.count(Verdict::kSkipped)));
}

TEST(Conformance, CpuF32) { expect_sound(run("cpu:f32"), 1250); }
TEST(Conformance, CpuF64) { expect_sound(run("cpu:f64"), 1250); }
TEST(Conformance, Template) { expect_sound(run("template:0"), 50); }
TEST(Conformance, CpuBehindAStream) { expect_sound(run("faulty:0"), 1250); }
TEST(Conformance, OpaqueF32) { expect_sound(run("opaque:f32"), 1950); }
TEST(Conformance, OpaqueF16) { expect_sound(run("opaque:f16"), 1950); }

// ---- The fast CPU, with every set of kernels that this processor can run

bool opens(const std::string& name, const std::string& options) {
  try {
    const conformance::Target on = target(name, options);
    return device::Device::open(on.plugin, on.index, false, options) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

class ConformanceOnednn : public testing::TestWithParam<const char*> {};

TEST_P(ConformanceOnednn, IsSound) {
  const std::string kernels = std::string("kernels=") + GetParam();
  if (!opens("onednn:0", kernels)) GTEST_SKIP() << "not built, or not for this processor";
  expect_sound(run("onednn:0", {}, kernels), 1250);
}
INSTANTIATE_TEST_SUITE_P(Kernels, ConformanceOnednn, testing::Values("AVX3_DL", "AVX3", "AVX2", "NEON", "SCALAR"),
                         [](const auto& set) { return std::string(set.param); });

TEST(Conformance, OnednnRefusesOptionsItHasNot) {
  if (!opens("onednn:0", {})) GTEST_SKIP() << "not built";
  EXPECT_FALSE(opens("onednn:0", "kernels=none"));
  EXPECT_FALSE(opens("onednn:0", "color=red"));
}

// ---- The CUDA backend on an emulated GPU

class ConformanceCuda : public testing::TestWithParam<const char*> {};

TEST_P(ConformanceCuda, IsSound) {
  const std::string device = std::string("cuda_emulated:") + GetParam();
  if (!opens(device, {})) GTEST_SKIP() << "not built";
#ifdef __SANITIZE_THREAD__  // which follows every emulated thread by itself: all of it would take an hour
  expect_sound(run(device, "NORM/"), 20);
#else
  expect_sound(run(device), 1580);
#endif
}
// Where results must not depend on the other tokens of a step, products and prompts take other kernels.
TEST_P(ConformanceCuda, IsBatchInvariantWhereItWasAskedToBe) {
  const std::string device = std::string("cuda_emulated:") + GetParam();
  if (!opens(device, {})) GTEST_SKIP() << "not built";
  conformance::Target deterministic = target(device);
  deterministic.deterministic = true;
  const Summary summary = run(deterministic, "batch_invariant");
  expect_sound(summary, 20);
  const auto of = [&](const char* op) {
    return std::any_of(summary.results.begin(), summary.results.end(), [&](const conformance::Result& result) {
      return result.name.starts_with(op) && result.verdict == Verdict::kPassed;
    });
  };
  for (const char* op : {"LINEAR/", "NORM/", "ATTN_DECODE/", "ATTN_PREFILL/"}) EXPECT_TRUE(of(op)) << op;
}
INSTANTIATE_TEST_SUITE_P(Devices, ConformanceCuda, testing::Values("0", "0-bf16"),
                         [](const auto& device) { return std::string(device.param) == "0" ? "F32" : "BF16"; });

TEST(Conformance, DeclaredRoundingOfActivationsIsAllowedFor) { expect_sound(run("faulty:0", "LINEAR/", "q8=1"), 100); }

TEST(Conformance, OtherSeedsGiveOtherInputs) {
  const Summary one = run("cpu:f32", "LINEAR/F32/canonical/T9_N8_C127", {}, 1);
  const Summary two = run("cpu:f32", "LINEAR/F32/canonical/T9_N8_C127", {}, 2);
  const Summary again = run("cpu:f32", "LINEAR/F32/canonical/T9_N8_C127", {}, 1);
  ASSERT_EQ(one.results.size(), 1u);
  EXPECT_NE(one.results[0].error, two.results[0].error);
  EXPECT_EQ(one.results[0].error, again.results[0].error);
}

TEST(Conformance, NoCaseIsAFailure) {
  const Summary nothing = run("cpu:f32", "no case has this name");
  EXPECT_TRUE(nothing.results.empty());
  EXPECT_TRUE(nothing.failed());
  const Summary skipped = run("template:0", "ROPE/");
  EXPECT_GT(skipped.count(Verdict::kSkipped), 0u);
  EXPECT_TRUE(skipped.failed());
}

TEST(Conformance, FiltersTakePartsAndStars) {
  conformance::Options how;
  const auto names = [&](const std::string& filter) {
    how.filter = filter;
    return conformance::list(target("cpu:f32"), how);
  };
  const auto all = names("");
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
  for (const auto& name : names("ATTN_*D128")) {
    EXPECT_TRUE(name.starts_with("ATTN_") && name.find("D128") != std::string::npos) << name;
  }
  EXPECT_EQ(names("ATTN_*D128").size(), 12u);  // two ops, six types of KV
  EXPECT_EQ(names("memory/round_trip/6"),
            (std::vector<std::string>{"memory/round_trip/63", "memory/round_trip/64", "memory/round_trip/65",
                                      "memory/round_trip/65537"}));
  EXPECT_EQ(names("memory/round_trip/65").size(), 1u);  // a whole name means that case alone
  EXPECT_EQ(names("D128*ATTN_").size(), 0u);
}

TEST(Conformance, ReportsAreWellFormed) {
  const Summary summary = run("faulty:0", "memory/*", "fault=eps");
  Summary failed = run("faulty:0", "NORM/rms/small_rows", "fault=eps");
  ASSERT_EQ(failed.count(Verdict::kFailed), 1u);
  failed.results.insert(failed.results.end(), summary.results.begin(), summary.results.end());
  failed.results.push_back({"x/<&\">", Verdict::kSkipped, "a \"reason\" <with> & \x01 and \xff", 0, 0});
  const auto json = nlohmann::json::parse(conformance::json_report(failed, "backplane conform x.so"));
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["passed"], summary.results.size());
  EXPECT_EQ(json["cases"].size(), failed.results.size());
  EXPECT_EQ(json["cases"][0]["op"], "NORM");
  EXPECT_EQ(json["cases"][0]["verdict"], "failed");
  EXPECT_EQ(json["cases"][0]["replay"], "backplane conform x.so --filter NORM/rms/small_rows/F32 --seed 1");
  const std::string xml = conformance::junit_report(failed, "backplane conform x.so");
  EXPECT_NE(xml.find("name=\"x/&lt;&amp;&quot;&gt;\""), std::string::npos);
  EXPECT_EQ(xml.find('\x01'), std::string::npos);
  std::ptrdiff_t cases = 0, closed = 0;
  for (std::size_t at = 0; (at = xml.find("<testcase ", at)) != std::string::npos; ++at) ++cases;
  for (std::size_t at = 0; (at = xml.find("</testcase>", at)) != std::string::npos; ++at) ++closed;
  EXPECT_EQ(cases, static_cast<std::ptrdiff_t>(failed.results.size()));
  EXPECT_EQ(closed, 2);
}

TEST(Conformance, CommandsAreQuotedForTheShell) {
  EXPECT_EQ(conformance::replay_command("backplane conform cpu:f32", "a b'c", 7),
            "backplane conform cpu:f32 --filter 'a b'\\''c' --seed 7");
}

}  // namespace
}  // namespace backplane::conformance_test

// Plugins are asked for more memory than there is, and a sanitizer would rather end the process than refuse.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

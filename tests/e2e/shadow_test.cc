// Steps that are run again on a second device while requests are answered.
#include <gtest/gtest.h>

#include "tests/e2e/batch_fixture.h"

namespace backplane::test {
namespace {

constexpr const char* kPlugins = BACKPLANE_FAKE_PLUGINS;

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Arguments kFaulty = {"--plugin", std::string(kPlugins) + "/faulty", "--fallback", "allow"};
const Arguments kOpaque = {"--plugin", std::string(kPlugins) + "/opaque", "--fallback", "allow"};

class ShadowProgram : public ProgramTest {
 protected:
  Arguments run(const Arguments& more) const {
    return Arguments{"run",       model_, "--json", "--temperature", "0", "--prompt-ids",
                     "72,105,33", "-n",   "12",     "--ignore-eos"} +
           more;
  }
};

TEST_F(ShadowProgram, ASoundOneAgrees) {
  const Json plain = backplane_json(run({}));
  EXPECT_FALSE(plain.contains("shadow"));
  const Json done = backplane_json(run({"--shadow", "cpu:f64", "--shadow-rate", "1"}));
  EXPECT_EQ(done["ids"], plain["ids"]);
  const Json& shadow = done["shadow"];
  EXPECT_EQ(shadow["device"], "cpu:f64");
  EXPECT_EQ(shadow["rate"], 1);
  EXPECT_EQ(shadow["steps"], 12);
  EXPECT_EQ(shadow["sampled"], 12);
  EXPECT_EQ(shadow["rows"], 12);
  EXPECT_EQ(shadow["disagreements"], 0);
  EXPECT_EQ(shadow["by_op"], Json::array());
  EXPECT_GT(shadow["largest_difference"], 0);
  EXPECT_EQ(shadow["failures"], 0);
  EXPECT_EQ(shadow["dropped"], false);
}

TEST_F(ShadowProgram, AFaultIsCountedAndNamesTheOp) {
  const ProgramInput wrong{.environment = {{"BACKPLANE_FAULTY", "fault=head_map"}}};
  const Arguments more = kFaulty + Arguments{"--device", "faulty:0"};
  const Arguments shadowed = more + Arguments{"--shadow", "cpu:f32", "--shadow-rate", "1"};
  const Json done = backplane_json(run(shadowed), wrong);
  EXPECT_EQ(done["ids"], backplane_json(run(more), wrong)["ids"]) << "answers are the device's own";
  const Json& shadow = done["shadow"];
  EXPECT_GT(shadow["disagreements"], 0);
  ASSERT_FALSE(shadow["by_op"].empty()) << shadow.dump();
  for (const Json& each : shadow["by_op"]) {
    EXPECT_NE(each["op"].get<std::string>().find(".attention."), std::string::npos) << each.dump();
    EXPECT_GT(each["count"], 0);
  }
  for (const Json& each : shadow["latest"]) EXPECT_GT(each["margin"], 0.02);
  const ProgramRun verbose = backplane(run(shadowed + Arguments{"-v"}), wrong);
  EXPECT_NE(verbose.err.find("backplane: shadow cpu:f32: 12 of 12 steps run again"), std::string::npos) << verbose.err;
  EXPECT_NE(verbose.err.find(" differs most, tokens by "), std::string::npos) << verbose.err;
}

TEST_F(ShadowProgram, OneThatDiesIsDropped) {
  const Json plain = backplane_json(run({}));
  std::size_t during_steps = 0, while_loading = 0;
  for (std::uint64_t n = 30; n < 3000; n += 97) {
    SCOPED_TRACE(n);
    const ProgramInput dying{.environment = {{"BACKPLANE_OPAQUE", "fail_at=" + std::to_string(n) + ":4"}}};
    const ProgramRun got = backplane(
        run(kOpaque + Arguments{"--device", "cpu:f32", "--shadow", "opaque:f32", "--shadow-rate", "1"}), dying);
    ASSERT_EQ(got.status, 0) << got.err;
    const Json done = Json::parse(got.out);
    EXPECT_EQ(done["ids"], plain["ids"]);
    const Json& shadow = done["shadow"];
    if (shadow["failures"] == 0) {
      EXPECT_EQ(shadow["sampled"], 12);
      break;
    }
    EXPECT_EQ(shadow["failures"], 1);
    EXPECT_EQ(shadow["dropped"], true);
    EXPECT_NE(shadow["failure"].get<std::string>().find("opaque"), std::string::npos) << shadow.dump();
    EXPECT_NE(got.err.find("going on without a shadow"), std::string::npos) << got.err;
    ++(shadow["steps"] == 0 ? while_loading : during_steps);
  }
  EXPECT_GT(while_loading, 0u);
  EXPECT_GT(during_steps, 1u);
}

// The device in use is lost: what the shadow found until then is told, and the answer goes on.
TEST_F(ShadowProgram, WhatWasFoundOutlivesAFailover) {
  const Json plain = backplane_json(run({}));
  const Arguments arguments = run(kOpaque + Arguments{"--device", "opaque:f32", "--failover", "cpu:f32", "--shadow",
                                                      "cpu:f64", "--shadow-rate", "1"});
  std::size_t before = 0, while_loading = 0;
  for (std::uint64_t n = 30; n < 3000; n += 47) {
    SCOPED_TRACE(n);
    const Json done =
        backplane_json(arguments, {.environment = {{"BACKPLANE_OPAQUE", "fail_at=" + std::to_string(n) + ":4"}}});
    EXPECT_EQ(done["ids"], plain["ids"]);
    EXPECT_EQ(done["device"], "opaque:f32");
    const Json& shadow = done["shadow"];
    EXPECT_EQ(shadow["disagreements"], 0);
    if (done["device_at_end"] == "opaque:f32") {
      EXPECT_EQ(shadow["sampled"], 12);
      break;
    }
    EXPECT_EQ(done["device_at_end"], "cpu:f32");
    EXPECT_LT(shadow["sampled"], 12);
    if (shadow["sampled"] > 0) ++before;
    if (shadow["steps"] == 0) ++while_loading;
  }
  EXPECT_GT(before, 0u);
  EXPECT_GT(while_loading, 0u);
}

TEST_F(ShadowProgram, WrongUseIsRefused) {
  const auto refused = [&](const Arguments& more, int status, const std::string& part) {
    SCOPED_TRACE(part);
    expect_refusal(run(more), status, part);
  };
  refused({"--shadow", "nosuch:0"}, 4, "nosuch");
  refused({"--shadow", "cpu:f33"}, 4, "cpu:f32");  // what there is
  refused({"--shadow-rate", "0.5"}, 2, "--shadow");
  for (const char* rate : {"0", "-0.5", "1.5", "nan"}) refused({"--shadow", "cpu:f64", "--shadow-rate", rate}, 2, rate);
  refused({"--shadow", "cpu:f64", "--shadow-rate", "often"}, 2, "often");
  refused({"--shadow", "cpu:f64", "--decode-device", "cpu:f32"}, 2, "--decode-device");
  refused({"--shadow", "cpu:f64=99,cpu:f32"}, 2, "layers");
  expect_refusal({"lab", model_, "--shadow", "cpu:f64"}, 2, "--shadow");
  expect_refusal({"check", model_, "--device", "cpu:f32", "--shadow", "cpu:f64"}, 2, "--against");
}

class ShadowBatch : public Batch {};

TEST_F(ShadowBatch, TheSummaryTells) {
  const std::string requests = many_requests(12, 8);
  const std::map<std::string, Json> plain = answers(run(requests));
  std::filesystem::remove(results_path());
  const Json summary = backplane_json(arguments(requests, {"--json", "--shadow", "cpu:f64", "--shadow-rate", "0.5"}));
  EXPECT_EQ(answers(results()), plain);
  EXPECT_EQ(summary["device_at_end"], summary["device"]);
  const Json& shadow = summary["shadow"];
  EXPECT_EQ(shadow["steps"], summary["steps"]);
  EXPECT_GT(shadow["sampled"], 0);
  EXPECT_LT(shadow["sampled"], shadow["steps"]);
  EXPECT_GT(shadow["rows"], shadow["sampled"]);
  EXPECT_EQ(shadow["disagreements"], 0);
}

}  // namespace
}  // namespace backplane::test

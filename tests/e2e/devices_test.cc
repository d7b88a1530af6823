#include <gtest/gtest.h>

#include "tests/e2e/program.h"

namespace backplane::test {
namespace {

Json find(const Json& devices, const std::string& name) {
  for (const Json& each : devices["devices"]) {
    if (each["name"] == name) return each;
  }
  ADD_FAILURE() << "no device " << name << " in " << devices.dump();
  return Json::object();
}

TEST(Devices, AreFoundWithoutAnySetting) {
  const Json devices = backplane_json({"devices", "--json"});
  for (const char* name : {"cpu:f32", "cpu:f64"}) {
    const Json cpu = find(devices, name);
    EXPECT_EQ(cpu["plugin"], "cpu");
    EXPECT_EQ(cpu["available"], true);
    EXPECT_EQ(cpu["reason"], nullptr);
    EXPECT_GT(cpu["memory"]["total"], 0);
    EXPECT_EQ(cpu["capabilities"]["activation_type"], name == std::string("cpu:f32") ? "F32" : "F64");
    EXPECT_TRUE(cpu["description"].is_string());
  }
  const ProgramRun table = backplane({"devices"});
  EXPECT_EQ(table.status, 0);
  EXPECT_NE(table.out.find("cpu:f64"), std::string::npos);
}

TEST(Devices, SayWhyAPluginCantBeUsed) {
  const std::string fakes = BACKPLANE_FAKE_PLUGINS;
  const std::string major = fakes + "/backplane_wrong_major.json", driver = fakes + "/backplane_no_driver.json";
  const Json devices = backplane_json({"devices", "--json", "--plugin", major, "--plugin", driver});
  for (const char* name : {"wrong_major", "no_driver"}) {
    const Json fake = find(devices, name);
    EXPECT_EQ(fake["available"], false);
    EXPECT_FALSE(fake["reason"].get<std::string>().empty());
    EXPECT_EQ(fake["capabilities"], nullptr);
  }
  EXPECT_EQ(find(devices, "cpu:f32")["available"], true);
  const ProgramRun table = backplane({"devices", "--plugin", major});
  EXPECT_NE(table.out.find("not available: "), std::string::npos) << table.out;
}

}  // namespace
}  // namespace backplane::test

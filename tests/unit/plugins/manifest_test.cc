// Manifests are files that anyone may have written.
#include "plugins/host/manifest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/base/error.h"

namespace backplane::plugins {
namespace {

namespace fs = std::filesystem;

class ManifestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Manifest read(const std::string& text) {
    const fs::path path = folder_ / "backplane_x.json";
    std::ofstream(path, std::ios::binary) << text;
    return read_manifest(path);
  }

  std::string problem(const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      return error.what();
    }
    return "none";
  }

  fs::path folder_;
};

TEST_F(ManifestTest, Reads) {
  const Manifest manifest =
      read(R"({"name": "my_npu-2", "abi_major": 1, "file": "x.so", "description": "a\nb\u001b[2J", "later": [1, {}]})");
  EXPECT_EQ(manifest.name, "my_npu-2");
  EXPECT_EQ(manifest.abi_major, 1u);
  EXPECT_EQ(manifest.library, folder_ / "x.so");
  EXPECT_EQ(manifest.description, "a b [2J");
  EXPECT_EQ(read(R"({"name": "x", "abi_major": 4294967295, "file": "x.so"})").description, "");
}

TEST_F(ManifestTest, ReadsWhatIsWorthTrying) {
  const auto with = [](const std::string& tune) {
    return R"({"name": "x", "abi_major": 1, "file": "x.so", "tune": )" + tune + "}";
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(read(R"({"name": "x", "abi_major": 1, "file": "x.so"})").tune, List());
  EXPECT_EQ(read(with("[]")).tune, List());
  EXPECT_EQ(read(with(R"(["threads", "kernels=A", "a=1,b=2"])")).tune, (List{"threads", "kernels=A", "a=1,b=2"}));
  for (const std::string& bad :
       {std::string(R"("threads")"), std::string("{}"), std::string("[1]"), std::string(R"(["x"])"),
        std::string(R"(["a=\n"])"), "[\"a=" + std::string(200, 'b') + "\"]",
        std::string(R"(["a=1","a=1","a=1","a=1","a=1","a=1","a=1","a=1","a=1"])")}) {
    EXPECT_NE(problem(with(bad)).find("\"tune\""), std::string::npos) << bad;
  }
}

TEST_F(ManifestTest, RefusesWhatIsNotAManifest) {
  EXPECT_NE(problem("").find("not JSON"), std::string::npos);
  EXPECT_NE(problem("{").find("not JSON"), std::string::npos);
  EXPECT_NE(problem("[]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(problem("{}").find("no \"name\""), std::string::npos);
  EXPECT_NE(problem(std::string(60000, '[')).find("not JSON"), std::string::npos);
  EXPECT_NE(problem(std::string(65 * 1024, ' ')).find("larger than 64 KiB"), std::string::npos);
  EXPECT_NE(problem("{\"name\": \"\xff\"}").find("not JSON"), std::string::npos);
  EXPECT_THROW(read_manifest(folder_), Error);
  EXPECT_THROW(read_manifest(folder_ / "absent.json"), Error);
}

TEST_F(ManifestTest, ChecksTypes) {
  EXPECT_NE(problem(R"({"name": 1, "abi_major": 1, "file": "x.so"})").find("\"name\""), std::string::npos);
  EXPECT_NE(problem(R"({"name": "x", "file": "x.so"})").find("no \"abi_major\""), std::string::npos);
  for (const char* major : {"-1", "1.5", "4294967296", "\"1\"", "null", "1e3"}) {
    EXPECT_NE(problem(std::string(R"({"name": "x", "abi_major": )") + major + R"(, "file": "x.so"})").find("abi_major"),
              std::string::npos)
        << major;
  }
  EXPECT_NE(problem(R"({"name": "x", "abi_major": 1, "file": ["x.so"]})").find("\"file\""), std::string::npos);
  EXPECT_NE(problem(R"({"name": "x", "abi_major": 1, "file": "x.so", "description": 1})").find("\"description\""),
            std::string::npos);
}

TEST_F(ManifestTest, KeepsToItsFolder) {
  for (const char* file : {"", ".", "..", "/lib/x.so", "../x.so", "a/b.so", "a\\\\b.so", "x\\u0000.so"}) {
    EXPECT_NE(problem(std::string(R"({"name": "x", "abi_major": 1, "file": ")") + file + "\"}").find("\"file\""),
              std::string::npos)
        << file;
  }
  EXPECT_NE(problem(R"({"name": "x", "abi_major": 1, "file": ")" + std::string(256, 'a') + "\"}").find("\"file\""),
            std::string::npos);
}

TEST_F(ManifestTest, ChecksNames) {
  for (const char* name : {"", "a:b", "a b", "a/b", "\\u00e4", "a.b"}) {
    EXPECT_NE(problem(std::string(R"({"abi_major": 1, "file": "x.so", "name": ")") + name + "\"}").find("\"name\""),
              std::string::npos)
        << name;
  }
  EXPECT_TRUE(is_plugin_name(std::string(32, 'a')));
  EXPECT_FALSE(is_plugin_name(std::string(33, 'a')));
  EXPECT_TRUE(is_device_name("f32.fast"));
  EXPECT_FALSE(is_device_name(std::string(32, 'a')));
  EXPECT_FALSE(is_device_name(""));
}

}  // namespace
}  // namespace backplane::plugins

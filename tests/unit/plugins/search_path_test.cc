// Where plugins are found, and which of two wins.
#include "plugins/host/search_path.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/base/log.h"

namespace backplane::plugins {
namespace {

namespace fs = std::filesystem;

class SearchPathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::weakly_canonical(fs::path(::testing::TempDir())) /
            (std::string("search ") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  // A folder with a plugin of that name in it.
  fs::path folder_with(const std::string& folder, const std::string& plugin) {
    fs::create_directories(root_ / folder);
    std::ofstream(root_ / folder / ("backplane_" + plugin + ".json"))
        << R"({"name": ")" << plugin << R"(", "abi_major": 1, "file": ")" << plugin << R"(.so", "description": "in )"
        << folder << "\"}";
    std::ofstream(root_ / folder / (plugin + ".so")) << "a library";
    return root_ / folder;
  }

  fs::path root_;
};

TEST_F(SearchPathTest, EarlierPlacesWin) {
  SearchOptions options;
  options.plugins = {folder_with("flag", "a")};
  options.environment = folder_with("env1", "b").string() + ":" + folder_with("env2", "c").string();
  options.folders = {folder_with("beside", "d"), root_ / "absent", folder_with("installed", "e")};
  for (const char* folder : {"env1", "env2", "beside", "installed"}) folder_with(folder, "a");
  for (const char* folder : {"env2", "beside", "installed"}) folder_with(folder, "b");
  for (const char* folder : {"beside", "installed"}) folder_with(folder, "c");
  folder_with("installed", "d");
  const auto found = find_plugins(options);
  ASSERT_EQ(found.size(), 5u);
  const char* expected[] = {"flag", "env1", "env2", "beside", "installed"};
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].name, std::string(1, static_cast<char>('a' + i)));
    EXPECT_EQ(found[i].description, std::string("in ") + expected[i]);
    EXPECT_EQ(found[i].library, root_ / expected[i] / (found[i].name + ".so"));
    EXPECT_EQ(found[i].problem, "");
  }
}

TEST_F(SearchPathTest, ShadowedPluginsAreLogged) {
  folder_with("one", "a");
  folder_with("two", "a");
  set_log_level(LogLevel::kDebug);
  ::testing::internal::CaptureStderr();
  find_plugins({.plugins = {}, .environment = {}, .folders = {root_ / "one", root_ / "two"}});
  const std::string text = ::testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::kWarning);
  EXPECT_NE(text.find((root_ / "two/a.so").string() + ": 'a' is hidden by " + (root_ / "one/a.so").string()),
            std::string::npos)
      << text;
}

TEST_F(SearchPathTest, RelativeEntriesOfTheEnvironmentAreRefused) {
  folder_with("here", "a");
  folder_with(".", "b");
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  ::testing::internal::CaptureStderr();
  const auto found =
      find_plugins({.plugins = {}, .environment = "here:.::./here:" + (root_ / "here").string() + ":", .folders = {}});
  const std::string text = ::testing::internal::GetCapturedStderr();
  fs::current_path(before);
  ASSERT_EQ(found.size(), 1u) << "only the absolute entry counts";
  EXPECT_EQ(found[0].name, "a");
  for (const char* entry : {"'here'", "'.'", "''", "'./here'"}) EXPECT_NE(text.find(entry), std::string::npos) << text;
}

TEST_F(SearchPathTest, OptionNamesLibraryManifestOrFolder) {
  folder_with("x", "a");
  folder_with("x", "b");
  fs::copy_file(root_ / "x/a.so", root_ / "x/libbackplane_bare.so");
  fs::copy_file(root_ / "x/backplane_b.json", root_ / "x/any name.json");
  const auto by_library =
      find_plugins({.plugins = {root_ / "x/libbackplane_bare.so"}, .environment = {}, .folders = {}});
  ASSERT_EQ(by_library.size(), 1u);
  EXPECT_EQ(by_library[0].name, "bare");
  EXPECT_EQ(by_library[0].abi_major, 0u);
  EXPECT_TRUE(by_library[0].manifest.empty());
  const auto by_manifest = find_plugins({.plugins = {root_ / "x/any name.json"}, .environment = {}, .folders = {}});
  ASSERT_EQ(by_manifest.size(), 1u);
  EXPECT_EQ(by_manifest[0].library, root_ / "x/b.so");
  const auto by_folder = find_plugins({.plugins = {root_ / "x"}, .environment = {}, .folders = {}});
  ASSERT_EQ(by_folder.size(), 2u) << "in a folder, manifests are called backplane_*.json";
  EXPECT_EQ(by_folder[0].name, "a");
}

TEST_F(SearchPathTest, LibraryTakesTheManifestBesideIt) {
  fs::create_directories(root_);
  std::ofstream(root_ / "backplane_y.so") << "a library";
  std::ofstream(root_ / "backplane_y.json") << R"({"name": "why", "abi_major": 1, "file": "backplane_y.so"})";
  const auto found = find_plugins({.plugins = {root_ / "backplane_y.so"}, .environment = {}, .folders = {}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "why");
  EXPECT_EQ(found[0].abi_major, 1u);
}

TEST_F(SearchPathTest, WhatTheOptionNamesMustBeThere) {
  fs::create_directories(root_ / "empty");
  for (const fs::path& path : {root_ / "absent.so", root_ / "empty", fs::path("absent.json")}) {
    try {
      find_plugins({.plugins = {path}, .environment = {}, .folders = {}});
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    }
  }
}

TEST_F(SearchPathTest, BrokenManifestIsFoundWithItsProblem) {
  std::ofstream(root_ / "backplane_broken.json") << "{";
  const auto found = find_plugins({.plugins = {}, .environment = {}, .folders = {root_}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "broken");
  EXPECT_NE(found[0].problem.find("not JSON"), std::string::npos);
}

TEST(DefaultSearch, IsAbsoluteAndReadsTheEnvironment) {
  ::setenv("BACKPLANE_PLUGIN_PATH", "/somewhere:/else", 1);
  const SearchOptions options = default_search({"x.so"});
  ::unsetenv("BACKPLANE_PLUGIN_PATH");
  EXPECT_EQ(options.environment, "/somewhere:/else");
  EXPECT_EQ(options.plugins.size(), 1u);
  ASSERT_EQ(options.folders.size(), 3u);
  for (const fs::path& folder : options.folders) EXPECT_TRUE(folder.is_absolute()) << folder;
  EXPECT_EQ(options.folders[1], fs::path(BACKPLANE_PLUGIN_OUTPUT_DIR)) << "the build tree mirrors an installation";
  EXPECT_EQ(default_search().environment, "");
}

}  // namespace
}  // namespace backplane::plugins

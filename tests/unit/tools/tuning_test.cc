#include "tools/tuning/tuning.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_chat_model.h"
#include "tests/support/temp_folder.h"
#include "tools/tuning/key.h"

namespace backplane::tuning {
namespace {

Tried found(unsigned threads, const std::string& why = "", bool disturbed = false) {
  Tried tried;
  tried.setting.threads = threads;
  tried.why = why;
  tried.disturbed = disturbed;
  return tried;
}

bool any(const Setting&) { return true; }

class StoreTest : public ::testing::Test {
 protected:
  std::string text() const {
    std::ifstream stream(file_);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  static Entry entry(const std::string& key, unsigned threads = 3) {
    return {.key = key, .build = "b", .setting = {threads, "kernels=X"}, .why = "because", .disturbed = 0};
  }

  test::TempFolder folder_;
  std::filesystem::path file_ = folder_.path() / "a cache" / "tuned.json";
  Store store_{file_};
};

TEST_F(StoreTest, KeepsAndFinds) {
  EXPECT_EQ(store_.find("one"), std::nullopt);
  EXPECT_TRUE(store_.writable());  // makes the folder
  EXPECT_TRUE(store_.keep(entry("one")));
  EXPECT_TRUE(store_.keep(entry("two", 0)));
  EXPECT_TRUE(store_.keep(entry("one", 5)));
  EXPECT_EQ(store_.find("one")->setting, (Setting{5, "kernels=X"}));
  EXPECT_EQ(store_.find("two")->setting, (Setting{0, "kernels=X"}));
  EXPECT_EQ(store_.find("two")->why, "because");
  EXPECT_EQ(store_.find("three"), std::nullopt);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file_.parent_path()), {}), 1) << "nothing else is left";
}

TEST_F(StoreTest, ForgetsTheOldest) {
  ASSERT_TRUE(store_.writable());
  for (int i = 0; i < 203; ++i) store_.keep(entry(std::to_string(i)));
  EXPECT_EQ(store_.find("2"), std::nullopt);
  EXPECT_TRUE(store_.find("3"));
  EXPECT_TRUE(store_.find("202"));
}

TEST_F(StoreTest, TakesADamagedFileForAnEmptyOne) {
  ASSERT_TRUE(store_.writable());
  store_.keep(entry("one"));
  const std::string whole = text();
  for (const std::string& damaged :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string(R"({"entries": {}})"),
        std::string(R"({"entries": 3})"), std::string("\xff\0\x01", 3), whole.substr(0, whole.size() / 2),
        std::string(100000, '['), std::string(2u << 20, ' ')}) {
    std::ofstream(file_, std::ios::binary) << damaged;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(store_.find("one"), std::nullopt);
    EXPECT_TRUE(store_.keep(entry("two")));
    const std::string said = ::testing::internal::GetCapturedStderr();
    const std::size_t at = said.find("damaged");
    EXPECT_NE(at, std::string::npos) << damaged.substr(0, 40);
    EXPECT_EQ(said.find("damaged", at + 1), std::string::npos) << "one warning";
    EXPECT_TRUE(store_.find("two"));
  }
}

// One that a hand has spoiled loses none of the others.
TEST_F(StoreTest, LeavesOutEntriesThatAreNotInOrder) {
  ASSERT_TRUE(store_.writable());
  store_.keep(entry("good"));
  const nlohmann::json good = nlohmann::json::parse(text())["entries"][0];
  for (const auto& [member, value] :
       std::vector<std::pair<std::string, nlohmann::json>>{{"threads", -1},
                                                           {"threads", 4000},
                                                           {"threads", "2"},
                                                           {"options", 3},
                                                           {"options", "a\nb"},
                                                           {"build", nullptr},
                                                           {"why", std::string(5000, 'x')},
                                                           {"disturbed", 1.5}}) {
    nlohmann::json bad = good;
    bad["key"] = "bad";
    bad[member] = value;
    std::ofstream(file_) << nlohmann::json{{"entries", {bad, good, 7}}}.dump();
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(store_.find("bad"), std::nullopt) << member;
    EXPECT_TRUE(store_.find("good"));
    ::testing::internal::GetCapturedStderr();
  }
}

TEST_F(StoreTest, SaysThatItCannotWrite) {
  folder_.write("a cache", "a file where the folder should be");
  EXPECT_FALSE(store_.writable());
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(store_.keep(entry("one")));
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("can't be written"), std::string::npos);
  int trials = 0;
  const Tuned tuned = remembered_or_tried(store_, "one", "b", any, [&] { return found(1, "", ++trials > 0); });
  EXPECT_EQ(trials, 0) << "every start would try";
  EXPECT_EQ(tuned.setting, Setting());
}

class RememberTest : public StoreTest {
 protected:
  Tuned ask(const Tried& tried, const std::string& build = "b") {
    return remembered_or_tried(store_, "key", build, any, [&] {
      ++trials_;
      return tried;
    });
  }
  int trials_ = 0;
};

TEST_F(RememberTest, TriesOnce) {
  const Tuned first = ask(found(4, "faster"));
  EXPECT_EQ(first.setting, (Setting{4, ""}));
  EXPECT_EQ(first.why, "tried: faster");
  const Tuned second = ask(found(7, "other"));
  EXPECT_EQ(second.setting, (Setting{4, ""}));
  EXPECT_EQ(second.why, "remembered: faster");
  EXPECT_EQ(trials_, 1);
}

TEST_F(RememberTest, RemembersTheDefaultToo) {
  ask(found(0, "nothing better"));
  EXPECT_EQ(ask(found(7, "")).setting, Setting());
  EXPECT_EQ(trials_, 1);
}

TEST_F(RememberTest, TriesAnotherBuildAgain) {
  ask(found(4, ""), "b");
  EXPECT_EQ(ask(found(5, ""), "c").setting, (Setting{5, ""}));
  EXPECT_EQ(ask(found(6, ""), "c").setting, (Setting{5, ""}));
  EXPECT_EQ(trials_, 2);
}

TEST_F(RememberTest, BelievesNoTrialThatWasDisturbed) {
  for (std::uint32_t i = 0; i < kMostDisturbed; ++i) {
    EXPECT_EQ(ask(found(4, "", true)).setting, Setting());
    EXPECT_EQ(trials_, static_cast<int>(i) + 1);
  }
  EXPECT_EQ(ask(found(4, "", false)).setting, Setting()) << "it isn't tried at every start";
  EXPECT_EQ(trials_, static_cast<int>(kMostDisturbed));
}

TEST_F(RememberTest, BelievesTheFirstTrialInPeace) {
  ask(found(4, "", true));
  EXPECT_EQ(ask(found(4, "", false)).setting, (Setting{4, ""}));
  EXPECT_EQ(ask(found(5, "", false)).setting, (Setting{4, ""}));
  EXPECT_EQ(trials_, 2);
}

TEST_F(RememberTest, KeepsNothingOfATrialThatFails) {
  const auto fail = []() -> Tried { throw Error(ErrorCode::kInterrupted, "stopped"); };
  EXPECT_ERROR(remembered_or_tried(store_, "key", "b", any, fail), ErrorCode::kInterrupted, "stopped");
  EXPECT_EQ(store_.find("key"), std::nullopt);
}

TEST_F(RememberTest, TriesAgainWhereTheFileSaysWhatCannotBe) {
  ask(found(40, ""));
  const auto possible = [](const Setting& setting) { return is_possible(setting, {}, 2); };
  const Tuned tuned = remembered_or_tried(store_, "key", "b", possible, [] { return found(1, "faster"); });
  EXPECT_EQ(tuned.setting, (Setting{1, ""}));
  EXPECT_EQ(store_.find("key")->setting, (Setting{1, ""}));
}

TEST(IsPossible, KnowsWhatTheManifestAndTheMachineAllow) {
  const std::vector<std::string> options = {"threads", "kernels=X"};
  EXPECT_TRUE(is_possible({}, options, 2));
  EXPECT_TRUE(is_possible({2, "kernels=X"}, options, 2));
  EXPECT_FALSE(is_possible({3, ""}, options, 2));
  EXPECT_FALSE(is_possible({0, "kernels=Y"}, options, 2));
  EXPECT_FALSE(is_possible({0, "kernels=X"}, {}, 2));
}

// The fields of proc(5): user nice system idle iowait irq softirq steal guest guest_nice.
TEST(Disturbance, CountsTheWorkOfOthers) {
  const std::string stat = "cpu  100 20 30 9999 7777 4 5 6 50 1\ncpu0 1 2 3 4\n";
  EXPECT_DOUBLE_EQ(others_seconds(stat, 100, 0.4), 1.65 - 0.4);
  EXPECT_DOUBLE_EQ(others_seconds("", 100, 0), 0);
  EXPECT_TRUE(was_disturbed(0.3, 1));
  EXPECT_FALSE(was_disturbed(0.1, 1));
}

class KeyTest : public ::testing::Test {
 protected:
  std::string key(const Place& place, const test::SmallChatModel& model = {}) {
    return key_of(place, models::ModelFile(folder_.write("model.gguf", test::small_chat_model(model))));
  }
  test::TempFolder folder_;
  Place place_{"A Processor", 8, "fast:0", "2"};
};

TEST_F(KeyTest, NamesThePlaceAndTheShape) {
  const std::string whole = key(place_);
  EXPECT_EQ(key(place_), whole);
  EXPECT_EQ(whole.find("8 x A Processor; fast:0 2; llama layers="), 0u) << whole;
  EXPECT_EQ(whole.find('\n'), std::string::npos);
  test::SmallChatModel other;
  other.chat_template = false;
  EXPECT_EQ(key(place_, other), whole) << "what a model says has no part in its speed";
}

TEST_F(KeyTest, DiffersByEachPartOfThePlace) {
  const std::string whole = key(place_);
  EXPECT_NE(key({"B Processor", 8, "fast:0", "2"}), whole);
  EXPECT_NE(key({"A Processor", 4, "fast:0", "2"}), whole);
  EXPECT_NE(key({"A Processor", 8, "fast:1", "2"}), whole);
  EXPECT_NE(key({"A Processor", 8, "fast:0", "3"}), whole);
}

TEST_F(KeyTest, DiffersByLayers) {
  const models::ModelFile file(folder_.write("model.gguf", test::small_chat_model({})));
  ASSERT_GT(file.spec().layers.size(), 1u);
  EXPECT_NE(key_of(place_, file.first_layers(1)), key_of(place_, file));
  EXPECT_EQ(file.first_layers(1).spec().layers.size(), 1u);
  EXPECT_EQ(file.first_layers(99).spec().layers.size(), file.spec().layers.size());
}

}  // namespace
}  // namespace backplane::tuning

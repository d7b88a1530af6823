// A device that answers one question with no, computes one NaN, or is slow: the tokens are those of a sound one, or the
// request they belong to ends with an error.
#include "tests/unit/faults/talk.h"

namespace backplane {
namespace {

using test::Answer;
using test::FaultModel;

class WrongAnswer : public testing::TestWithParam<FaultModel> {
 protected:
  WrongAnswer() : file_(GetParam()) {
    opaque::Report report;
    const auto model = file_.load(open(report, ""));
    const std::uint64_t loading = report.runs;
    want_ = test::talk(*model);
    runs_ = report.runs - loading;
    before_ = loading;
    want_later_ = test::ask(*model);
  }

  std::shared_ptr<device::Device> open(opaque::Report& report, const std::string& option) const {
    std::string all = report.option();
    for (const std::string& more : {std::string(GetParam().options), option}) {
      if (!more.empty()) all += "," + more;
    }
    return test::open_opaque("opaque:f32", all, file_.without());
  }

  static void expect_clean(const opaque::Report& report) {
    EXPECT_EQ(report.open, 0u);
    EXPECT_EQ(report.live, 0u);
    EXPECT_EQ(report.misuse, 0u);
  }

  // All tokens, or those before an error about NaN. Returns whether there was one.
  static bool expect_tokens_or_nan(const Answer& got, const Answer& want) {
    EXPECT_LE(got.tokens.size(), want.tokens.size());
    for (std::size_t t = 0; t < got.tokens.size(); ++t) {
      EXPECT_EQ(got.tokens[t], want.tokens[t]) << "garbage, token " << t;
      EXPECT_EQ(got.logprobs[t], want.logprobs[t]) << "token " << t;
    }
    if (!got.error) {
      EXPECT_EQ(got.tokens.size(), want.tokens.size());
      return false;
    }
    EXPECT_EQ(got.error->code(), ErrorCode::kDevice);
    EXPECT_NE(std::string(got.error->what()).find("NaN"), std::string::npos) << got.error->what();
    return true;
  }

  test::FaultFile file_;
  std::vector<Answer> want_, want_later_;
  std::uint64_t before_ = 0, runs_ = 0;  // ops that run while loading, and in a talk
};

TEST_P(WrongAnswer, EachQuestionAnsweredWithNo) {
  std::uint64_t changed = 0;
  for (std::uint64_t n = 1; !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    opaque::Report report;
    bool asked = false;
    {
      const auto model = file_.load(open(report, "refuse_at=" + std::to_string(n)));
      asked = report.questions >= n;
      const std::vector<Answer> got = test::talk(*model);
      for (std::size_t i = 0; i < want_.size(); ++i) {
        EXPECT_FALSE(got[i].error) << got[i].error->what();
        EXPECT_EQ(got[i].tokens, want_[i].tokens);
        for (std::size_t t = 0; t < got[i].logprobs.size(); ++t) {
          EXPECT_NEAR(got[i].logprobs[t], want_[i].logprobs[t], GetParam().rounding);
        }
      }
      if (!model->fallbacks().empty()) ++changed;
    }
    expect_clean(report);
    if (!asked) break;
    test::note_wrong("no to a question, " + std::string(GetParam().name), false);
  }
  EXPECT_GE(changed, 5u);
}

class NanAnswer : public WrongAnswer {};

// The first request's rows come first, and NaN begins a result: only that request can be hit, and those that come later
// get the pages it leaves behind.
TEST_P(NanAnswer, EachResultBeginsWithNan) {
  std::uint64_t told = 0;
  for (std::uint64_t n = before_ + 1; n <= before_ + runs_ && !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    opaque::Report report;
    {
      const auto model = file_.load(open(report, "nan_at=" + std::to_string(n)));
      engine::Engine engine(*model, {.max_sequences = 4, .token_budget = 5});
      const std::vector<Answer> got = test::talk(engine);
      const bool error = expect_tokens_or_nan(got[0], want_[0]);
      for (std::size_t i = 1; i < want_.size(); ++i) {
        EXPECT_FALSE(got[i].error) << "a neighbor";
        EXPECT_EQ(got[i].tokens, want_[i].tokens);
      }
      EXPECT_EQ(test::ask(engine)[0].tokens, want_later_[0].tokens) << "a later request";
      test::expect_no_page_held(engine);
      told += error;
      test::note_wrong("NaN in a result, " + std::string(GetParam().name), error);
    }
    expect_clean(report);
  }
  EXPECT_GT(told, runs_ / 3);
}

TEST_P(WrongAnswer, SlowWorkChangesNothing) {
  opaque::Report report;
  {
    const auto model = file_.load(open(report, "slow=50"));
    const std::vector<Answer> got = test::talk(*model);
    for (std::size_t i = 0; i < want_.size(); ++i) {
      EXPECT_FALSE(got[i].error);
      EXPECT_EQ(got[i].tokens, want_[i].tokens);
      EXPECT_EQ(got[i].logprobs, want_[i].logprobs);
    }
    test::note_wrong("slow, " + std::string(GetParam().name), false);
  }
  expect_clean(report);
}

INSTANTIATE_TEST_SUITE_P(Sweep, WrongAnswer,
                         testing::ValuesIn(test::fault_models().begin(), test::fault_models().end()),
                         [](const auto& each) { return std::string(each.param.name); });
// On the others NaN goes the same ways.
INSTANTIATE_TEST_SUITE_P(Sweep, NanAnswer,
                         testing::ValuesIn(test::fault_models({"llama", "gpt2", "qwen3", "qwen2", "no_kv"})),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace backplane

// A device dies at any of its calls, and the model goes on elsewhere: the same tokens come.
#include "models/failover_model.h"

#include <map>
#include <ostream>

#include "core/base/log.h"
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

using models::FailoverModel;

// Tokens and their log-probabilities of two requests, greedy and drawn, the second of which joins the first.
struct Told {
  std::vector<TokenId> tokens;
  std::vector<double> logprobs;

  bool operator==(const Told&) const = default;
};

Told generate(engine::Model& model) {
  engine::Engine engine(model, {.max_sequences = 4, .token_budget = 16});
  std::map<engine::RequestId, Told> told;
  const auto submit = [&](std::size_t n, std::uint64_t seed) {
    engine::Request request;
    request.prompt = test::tokens_of(n, seed);
    if (seed == 6) request.sampling = {.temperature = 0.8, .seed = 3};
    request.max_tokens = 4;
    request.ignore_eos = true;
    request.top_logprobs = 1;
    told[engine.submit(std::move(request))] = {};
  };
  submit(9, 5);
  for (int step = 0; !engine.idle(); ++step) {
    if (step == 1) submit(18, 6);
    for (const engine::Event& event : engine.step()) {
      if (event.error) throw *event.error;
      told[event.request].tokens.push_back(event.token);
      told[event.request].logprobs.push_back(event.logprob.value());
    }
  }
  Told all;
  for (const auto& [id, one] : told) {
    all.tokens.insert(all.tokens.end(), one.tokens.begin(), one.tokens.end());
    all.logprobs.insert(all.logprobs.end(), one.logprobs.begin(), one.logprobs.end());
  }
  return all;
}

struct Case {
  const char* name;
  bool same_kind;  // the backup's device is like the primary's
  bool late;
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

class FailoverTest : public testing::TestWithParam<Case> {
 protected:
  FailoverTest() : path_(test::write_tiny_llama(folder_, {.layers = 1, .window = 6, .tied = true})), file_(path_) {
    options_.max_sequences = 4;
    options_.max_step_tokens = 20;
    options_.executor = test::policy(device::FallbackPolicy::kAllow);
    options_ = models::resolve(options_, file_.spec(), {test::open_opaque(), reference_});
    set_log_level(LogLevel::kError);
  }
  ~FailoverTest() override { set_log_level(LogLevel::kWarning); }

  std::unique_ptr<models::LoadedModel> load(std::shared_ptr<device::Device> device) const {
    return models::load(file_, std::move(device), reference_, options_);
  }
  std::unique_ptr<models::LoadedModel> load_mortal(std::uint64_t n, bool late, opaque::Report& report) const {
    return load(test::open_opaque("opaque:f32", report.option() + ",fail_at=" + std::to_string(n) + ":" +
                                                    std::to_string(BP_DEVICE_LOST) + (late ? ",late=1" : "")));
  }
  models::Backup backup(bool same_kind) const {
    return {same_kind ? "opaque:f32" : "cpu:f32",
            [this, same_kind] { return load(same_kind ? test::open_opaque() : test::open_device("cpu:f32")); }};
  }

  test::TempFolder folder_;
  std::filesystem::path path_;
  models::ModelFile file_;
  std::shared_ptr<device::Device> reference_ = test::open_device("cpu:f32");
  models::LoadOptions options_;
};

TEST_P(FailoverTest, DyingAtAnyCallChangesNoToken) {
  Told want;
  std::uint64_t loading = 0, all = 0;
  {
    opaque::Report report;
    const auto model = load(test::open_opaque("opaque:f32", report.option()));
    loading = report.calls;
    want = generate(*model);
    all = report.calls;
  }
  ASSERT_EQ(want.tokens.size(), 8u);
  ASSERT_GT(all, loading + 50);
  for (std::uint64_t n = loading + 1; n <= all && !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    opaque::Report report;
    FailoverModel model(load_mortal(n, GetParam().late, report), backup(GetParam().same_kind));
    const Told got = generate(model);
    EXPECT_TRUE(model.failed_over());
    EXPECT_EQ(got.tokens, want.tokens);
    if (GetParam().same_kind) {
      EXPECT_EQ(got.logprobs, want.logprobs);
    }
    for (std::size_t i = 0; i < want.logprobs.size(); ++i) EXPECT_NEAR(got.logprobs[i], want.logprobs[i], 1e-4);
    EXPECT_EQ(report.open, 0u) << "what is lost is given up";
    EXPECT_EQ(report.live, 0u);
    EXPECT_EQ(report.misuse, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Sweep, FailoverTest,
                         testing::Values(Case{"ToTheSameKind", true, false}, Case{"ToCpu", false, false},
                                         Case{"ToTheSameKindLate", true, true}, Case{"ToCpuLate", false, true}),
                         [](const auto& each) { return each.param.name; });

class FailoverOnceTest : public FailoverTest {
 protected:
  std::uint64_t calls_to_load() const {
    opaque::Report report;
    load(test::open_opaque("opaque:f32", report.option()));
    return report.calls;
  }
};

TEST_F(FailoverOnceTest, LoadsNothingWhileAllIsWell) {
  int loads = 0;
  FailoverModel model(load(test::open_opaque()), {"cpu:f32", [&]() -> std::unique_ptr<models::LoadedModel> {
                                                    ++loads;
                                                    return nullptr;
                                                  }});
  EXPECT_EQ(generate(model), generate(*load(test::open_opaque())));
  EXPECT_EQ(loads, 0);
  EXPECT_FALSE(model.failed_over());
}

TEST_F(FailoverOnceTest, SaysSoOnce) {
  set_log_level(LogLevel::kWarning);
  opaque::Report report;
  const std::uint64_t n = calls_to_load() + 40;
  FailoverModel model(load_mortal(n, false, report), backup(false));
  testing::internal::CaptureStderr();
  generate(model);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  for (const std::string& part : {std::string("device lost"), "injected failure of call " + std::to_string(n),
                                  std::string("opaque:f32"), std::string("going on with cpu:f32")}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST_F(FailoverOnceTest, ScoresGoOn) {
  const test::Outputs want = test::run_all(*load(test::open_opaque()));
  const std::uint64_t loading = calls_to_load();
  for (const std::uint64_t n : {1u, 30u, 60u, 90u}) {
    opaque::Report report;
    FailoverModel model(load_mortal(loading + n, false, report), backup(true));
    EXPECT_EQ(test::run_all(model), want);
    EXPECT_TRUE(model.failed_over());
  }
}

TEST_F(FailoverOnceTest, ALossWhileLoadingIsTold) {
  opaque::Report report;
  EXPECT_THROW(load_mortal(calls_to_load() - 3, false, report), DeviceLost);
}

TEST_F(FailoverOnceTest, ABackupThatDoesNotLoadIsTriedOnceAndBothReasonsAreGiven) {
  opaque::Report report;
  int loads = 0;
  FailoverModel model(load_mortal(calls_to_load() + 30, false, report),
                      {"other:0", [&]() -> std::unique_ptr<models::LoadedModel> {
                         ++loads;
                         throw Error(ErrorCode::kCapacity, "no room at all");
                       }});
  EXPECT_ERROR(generate(model), ErrorCode::kDevice, "injected failure");
  EXPECT_ERROR(generate(model), ErrorCode::kDevice, "other:0 can't go on in its place: no room at all");
  EXPECT_EQ(loads, 1);
  EXPECT_FALSE(model.failed_over());
}

TEST_F(FailoverOnceTest, ABackupMustBeAlike) {
  opaque::Report report;
  FailoverModel model(load_mortal(calls_to_load() + 30, false, report), {"cpu:f32", [&] {
                                                                           models::LoadOptions other = options_;
                                                                           other.page_size = 16;
                                                                           return models::load(file_, reference_,
                                                                                               reference_, other);
                                                                         }});
  EXPECT_ERROR(generate(model), ErrorCode::kDevice, "can't have the same KV pages");
}

TEST_F(FailoverOnceTest, ASecondLossIsTheEnd) {
  const std::uint64_t n = calls_to_load() + 30;
  opaque::Report first, second;
  FailoverModel model(load_mortal(n, false, first), {"opaque:f32", [&] { return load_mortal(n, false, second); }});
  EXPECT_ERROR(generate(model), ErrorCode::kDevice, "device lost");
  EXPECT_TRUE(model.failed_over());
}

// Numbers its rope rows in its own way, and tells what it was asked to run.
class Numbered final : public models::LoadedModel {
 public:
  Numbered(std::int32_t first, bool dies) : next_(first), dies_(dies) { shape_.groups = {{0, 1}}; }

  const engine::ModelShape& shape() const override { return shape_; }
  std::uint32_t max_step_tokens() const override { return 8; }
  std::uint32_t max_step_sequences() const override { return 4; }
  std::uint32_t page_size() const override { return 4; }
  std::uint32_t pages(std::uint32_t) const override { return 2; }
  std::int32_t acquire_rope_row(std::uint64_t length) override {
    const auto [it, is_new] = rows.try_emplace(length, std::pair{next_, 0});
    if (is_new) --next_;
    ++it->second.second;
    return it->second.first;
  }
  void release_rope_row(std::int32_t row) noexcept override {
    for (auto& [length, entry] : rows) {
      if (entry.first == row) --entry.second;
    }
  }
  std::uint64_t rope_identity(std::uint64_t length) const override { return length; }
  void copy_pages(std::uint32_t, std::span<const std::int32_t>, std::span<const std::int32_t>) override {
    if (dies_) throw DeviceLost("gone", "here");
  }
  engine::Logits forward(const sched::Step& step) override {
    if (dies_) throw DeviceLost("gone", "here");
    ran = step.rope_row;
    return {};
  }
  std::vector<device::Executor*> executors() override { return {}; }
  DType kv_type() const override { return DType::kF32; }

  std::map<std::uint64_t, std::pair<std::int32_t, int>> rows;  // by length: row and users
  std::vector<std::int32_t> ran;

 private:
  std::int32_t next_;
  bool dies_;
  engine::ModelShape shape_;
};

TEST_F(FailoverOnceTest, RopeRowsKeepTheirMeaning) {
  Numbered* backup = nullptr;
  FailoverModel model(std::make_unique<Numbered>(7, true), {"other", [&] {
                                                              auto made = std::make_unique<Numbered>(90, false);
                                                              made->acquire_rope_row(3);  // takes its first row
                                                              backup = made.get();
                                                              return made;
                                                            }});
  const std::int32_t a = model.acquire_rope_row(10), b = model.acquire_rope_row(20), c = model.acquire_rope_row(30);
  EXPECT_EQ(model.acquire_rope_row(20), b) << "equal factors, equal rows";
  model.release_rope_row(c);
  sched::Step step;
  step.rope_row = {a, b, a};
  EXPECT_THROW(model.forward(step), engine::ModelReplaced);
  ASSERT_NE(backup, nullptr);
  EXPECT_EQ(backup->rows[10].second, 1);
  EXPECT_EQ(backup->rows[20].second, 2);
  EXPECT_EQ(backup->rows.count(30), 0u) << "nobody had it any more";
  model.forward(step);
  EXPECT_EQ(backup->ran, (std::vector{backup->rows[10].first, backup->rows[20].first, backup->rows[10].first}));
  EXPECT_EQ(model.acquire_rope_row(10), a);
  const std::int32_t d = model.acquire_rope_row(40);
  step.rope_row = {d, a};
  model.forward(step);
  EXPECT_EQ(backup->ran, (std::vector{backup->rows[40].first, backup->rows[10].first}));
  for (const std::int32_t row : {a, a, b, b, d}) model.release_rope_row(row);
  for (const auto& [length, entry] : backup->rows) EXPECT_EQ(entry.second, length == 3 ? 1 : 0);
}

}  // namespace
}  // namespace backplane

// The executor by itself: plans, steps, views that cover a part, ops against those of the reference.
#include "core/device/executor.h"

#include "core/device/ops.h"
#include "tests/unit/device/runs.h"

namespace backplane::device {
namespace {

StepLimits small_limits() {
  StepLimits limits;
  limits.tokens = 4;
  limits.sequences = limits.rows = 2;
  return limits;
}

// One sequence that begins.
sched::Step step_of(std::vector<TokenId> ids) {
  sched::Step step;
  const auto n = static_cast<std::int32_t>(ids.size());
  step.max_pages = n > 0 ? 1 : 0;
  step.max_q = step.max_kv = static_cast<std::uint32_t>(n);
  step.q_start = {0};
  if (n > 0) step.q_start.push_back(n), step.kv_len = {n}, step.page_table = {0};
  for (std::int32_t i = 0; i < n; ++i) step.pos.push_back(i), step.slot.push_back(i), step.rope_row.push_back(0);
  step.token = std::move(ids);
  return step;
}

// x = table[ids]; the second half of its columns becomes W h; all of it is doubled.
class PartsTest : public testing::TestWithParam<std::uint32_t> {
 protected:
  static constexpr std::int64_t kRows = 6, kWide = 8;

  explicit PartsTest() {
    for (std::size_t i = 0; i < table_.size(); ++i) table_[i] = static_cast<float>(i % 11) - 5;
    for (std::size_t i = 0; i < matrix_.size(); ++i) matrix_[i] = static_cast<float>(i % 7) - 3;
  }
  static WeightSource source(const std::vector<float>& values, std::uint64_t rows) {
    WeightSource made;
    made.stored = {std::as_bytes(std::span(values)), DType::kF32, rows, values.size() / rows};
    return made;
  }

  std::vector<float> table_ = std::vector<float>(kRows * kWide), matrix_ = std::vector<float>(4 * kWide);
};

TEST_P(PartsTest, TimesTheOpsOfAStep) {
  ExecutorOptions options;
  options.policy = FallbackPolicy::kAllow;
  options.allow = [off = GetParam()](std::uint32_t code) { return code != off; };
  Executor ex({test::open_opaque()}, test::open_device("cpu:f32"), options);
  const auto table = ex.weight(source(table_, kRows));
  const Tensor x = ex.scratch("x", {4, kWide});
  const auto ops = [&] {
    const Tensor rows = x.rows(0, ex.counts().tokens);
    embed(ex, {"x"}, StepIds::kTokens, table, rows);
    scale(ex, {"double"}, rows, 2);
    scale(ex, {"again"}, rows, 2);
  };
  ex.plan(small_limits(), ops);
  EXPECT_FALSE(ex.synchronous()) << "the opaque device has a stream";
  const sched::Step step = step_of({3, 1, 5});
  OpTimes times;
  for (OpTimes* to : {&times, static_cast<OpTimes*>(nullptr), &times}) {  // nobody looks at the second step
    ex.time_ops(to);
    ex.begin_step(step);
    ops();
    ex.end_step();
  }
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times.at(BP_OP_EMBED).count, 2u);
  EXPECT_EQ(times.at(BP_OP_SCALE).count, 4u);
  EXPECT_GT(times.at(BP_OP_SCALE).seconds, 0);
}

TEST_P(PartsTest, AnOutputThatCoversAPartKeepsTheRest) {
  ExecutorOptions options;
  options.policy = FallbackPolicy::kAllow;
  options.allow = [off = GetParam()](std::uint32_t code) { return code != off; };
  Executor ex({test::open_opaque()}, test::open_device("cpu:f32"), options);
  const auto table = ex.weight(source(table_, kRows)), matrix = ex.weight(source(matrix_, 4));
  const Tensor x = ex.scratch("x", {4, kWide}), h = ex.scratch("h", {4, kWide});
  const auto ops = [&] {
    const std::int64_t t = ex.counts().tokens;
    embed(ex, {"x"}, StepIds::kTokens, table, x.rows(0, t));
    embed(ex, {"h"}, StepIds::kTokens, table, h.rows(0, t));
    linear(ex, {"part"}, h.rows(0, t), {matrix, {}}, x.rows(0, t).columns(4, 4));
    scale(ex, {"double"}, x.rows(0, t), 2);
  };
  ex.plan(small_limits(), ops);
  const sched::Step step = step_of({3, 1, 5});
  ex.begin_step(step);
  ops();
  ex.end_step();
  std::vector<float> got(3 * kWide), want;
  x.storage->get_host(0, std::as_writable_bytes(std::span(got)));
  for (const TokenId id : step.token) {
    const float* row = &table_[static_cast<std::size_t>(id * kWide)];
    for (int c = 0; c < 4; ++c) want.push_back(2 * row[c]);
    for (std::size_t n = 0; n < 4; ++n) {
      float sum = 0;
      for (std::size_t c = 0; c < kWide; ++c) sum += row[c] * matrix_[n * kWide + c];
      want.push_back(2 * sum);
    }
  }
  EXPECT_EQ(got, want) << "whole numbers, exact in any order";
}

INSTANTIATE_TEST_SUITE_P(Off, PartsTest, testing::Values(0u, BP_OP_EMBED, BP_OP_LINEAR, BP_OP_SCALE));

TEST(ExecutorTest, OrderOfCalls) {
  Executor ex({test::open_opaque()}, test::open_device("cpu:f32"), {});
  const Tensor x = ex.scratch("x", {4, 8});
  const sched::Step step = step_of({1});
  EXPECT_ERROR(ex.begin_step(step), ErrorCode::kInternal, "before the plan");
  const auto ops = [&] { scale(ex, {"x"}, x.rows(0, ex.counts().tokens), 2); };
  ex.plan(small_limits(), ops);
  EXPECT_ERROR(ex.plan(small_limits(), ops), ErrorCode::kInternal, "once");
  ex.begin_step(step);
  EXPECT_ERROR(softcap(ex, {"y"}, x.rows(0, 1), 2), ErrorCode::kInternal, "SOFTCAP was not planned here");
  EXPECT_ERROR(ex.end_step(), ErrorCode::kInternal, "0 ops of 1");
  ex.abandon_step();
  ex.begin_step(step);
  ops();
  EXPECT_ERROR(ops(), ErrorCode::kInternal, "SCALE was not planned here");
  ex.end_step();
  EXPECT_ERROR(ex.begin_step(step_of({1, 1, 1, 1, 1})), ErrorCode::kInternal, "larger than planned");
}

TEST(ExecutorTest, TheReferenceMustBeVisible) {
  EXPECT_ERROR(Executor({test::open_device("cpu:f32")}, test::open_opaque(), {}), ErrorCode::kDevice, "host-visible");
}

TEST(ExecutorTest, NoTokensAndNoRows) {
  test::TempFolder folder;
  const auto path = write_tiny_llama(folder);
  for (const char* options : {"", "without=NORM", "no_kv=1", "want_f16=LINEAR+NORM"}) {
    const auto model =
        test::load_on(path, test::open_opaque("opaque:f32", options), test::policy(FallbackPolicy::kAllow));
    sched::Step step = step_of({});
    step.page_size = model->page_size();
    EXPECT_EQ(model->forward(step).rows(), 0u) << options;
    step = step_of({1, 2, 3});
    step.page_size = model->page_size();
    EXPECT_EQ(model->forward(step).rows(), 0u) << options;
    step.out_row = {2, 0, 2};
    EXPECT_EQ(model->forward(step).rows(), 3u) << options;
  }
}

TEST(ExecutorTest, StepsLargerThanTheContext) {
  test::TempFolder folder;
  const auto path = write_tiny_llama(folder);
  models::LoadOptions options;
  options.context = 8;
  options.max_sequences = 5;
  options.max_step_tokens = 4096;
  const auto model = models::load(models::ModelFile(path), test::open_opaque(), test::open_device("cpu:f32"), options);
  EXPECT_EQ(model->max_step_tokens(), 40u) << "five whole sequences";
  std::vector<engine::ScoreLine> lines(5, {test::tokens_of(8, 1), {}});
  std::vector<double> first;
  int rows = 0;
  engine::Scorer(*model).score(lines, {std::nullopt, true}, [&](const engine::ScoredRows& scored) {
    const auto row = scored.row(0);
    if (rows++ == 0) first.assign(row.begin(), row.end());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), first.begin()));
  });
  EXPECT_EQ(rows, 5);
}

// Ops that no model here uses, on the opaque device against the reference.
class SingleOpTest : public testing::Test {
 protected:
  template <class T>
  bp_tensor put(Device& device, const std::vector<T>& values, bp_type type, std::int64_t rows) {
    const auto columns = static_cast<std::int64_t>(values.size()) / rows;
    buffers_.push_back(device.alloc(values.size() * sizeof(T), "test"));
    device.upload(buffers_.back(), 0, std::as_bytes(std::span(values)));
    bp_tensor t = make_tensor(nullptr, static_cast<DType>(type), {rows, columns}).abi(buffers_.back().handle());
    return t;
  }
  template <class T>
  bp_tensor vector(Device& device, const std::vector<T>& values, bp_type type) {
    bp_tensor t = put(device, values, type, 1);
    t.rank = 1;
    t.shape[0] = t.shape[1];
    t.stride[0] = t.stride[1];
    t.shape[1] = 1;
    t.stride[1] = 0;
    return t;
  }
  template <class Args>
  void run(Device& device, std::uint32_t code, Args& args) {
    args.size = sizeof(args);
    bp_op op{};
    op.size = sizeof(op);
    op.code = code;
    op.args = &args;
    bp_op_query query{};
    query.size = sizeof(query);
    query.code = code;
    query.smallest = query.largest = &args;
    const Support support = device.supports(query);
    ASSERT_TRUE(support.yes) << support.reason;
    Buffer workspace;
    if (support.answer.workspace_bytes) workspace = device.alloc(support.answer.workspace_bytes, "test");
    op.workspace = workspace.handle();
    op.workspace_bytes = support.answer.workspace_bytes;
    device.run(op);
    device.sync();
  }
  template <class T>
  std::vector<T> get(Device& device, std::size_t buffer, std::size_t count) {
    std::vector<T> out(count);
    device.download(buffers_[buffer], 0, std::as_writable_bytes(std::span(out)));
    return out;
  }

  const std::shared_ptr<Device> both_[2] = {test::open_opaque(), test::open_device("cpu:f32")};
  std::vector<Buffer> buffers_;
};

TEST_F(SingleOpTest, TopKAndSampleAndAdvance) {
  constexpr std::size_t kTokens = 40, kRows = 3;
  test::TinyRandom random(3);
  std::vector<float> logits = test::tiny_values(random, kTokens * kRows, 4);
  logits[5] = logits[9];
  std::vector<std::int32_t> results[2], tops[2], advanced[2];
  for (int i = 0; i < 2; ++i) {
    Device& d = *both_[i];
    buffers_.clear();
    bp_topk_args top{};
    top.x = put(d, logits, BP_TYPE_F32, kRows);
    top.ids = put(d, std::vector<std::int32_t>(kRows * 4), BP_TYPE_I32, kRows);
    top.values = put(d, std::vector<float>(kRows * 4), BP_TYPE_F32, kRows);
    run(d, BP_OP_TOPK, top);
    tops[i] = get<std::int32_t>(d, 1, kRows * 4);
    for (std::uint64_t c = 0; c < 40; ++c) {
      buffers_.clear();
      bp_sample_args s{};
      s.ids = vector(d, std::vector<std::int32_t>(kRows), BP_TYPE_I32);
      s.logits = put(d, logits, BP_TYPE_F32, kRows);
      s.temperature = vector(d, std::vector<double>{0, 1.5, 0.8}, BP_TYPE_F64);
      s.top_p = vector(d, std::vector<double>{1, 0.9, 1}, BP_TYPE_F64);
      s.min_p = vector(d, std::vector<double>{0, 0, 0.05}, BP_TYPE_F64);
      s.top_k = vector(d, std::vector<std::int32_t>{0, 7, 0}, BP_TYPE_I32);
      s.seed = vector(d, std::vector<std::uint64_t>{1, 2, 0x123456789abcdef}, BP_TYPE_U64);
      s.counter = vector(d, std::vector<std::uint64_t>{c, c, c}, BP_TYPE_U64);
      run(d, BP_OP_SAMPLE, s);
      const auto ids = get<std::int32_t>(d, 0, kRows);
      results[i].insert(results[i].end(), ids.begin(), ids.end());
    }
    buffers_.clear();
    bp_advance_args a{};
    a.token = vector(d, std::vector<std::int32_t>{1, 2, 3}, BP_TYPE_I32);
    a.ids = vector(d, std::vector<std::int32_t>{7, 8}, BP_TYPE_I32);
    a.target = vector(d, std::vector<std::int32_t>{2, -1}, BP_TYPE_I32);
    run(d, BP_OP_ADVANCE, a);
    advanced[i] = get<std::int32_t>(d, 0, 3);
  }
  EXPECT_EQ(tops[0], tops[1]);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_GT(std::set<std::int32_t>(results[0].begin(), results[0].end()).size(), 5u);
  EXPECT_EQ(advanced[0], (std::vector<std::int32_t>{1, 2, 7}));
  EXPECT_EQ(advanced[1], advanced[0]);
}

TEST_F(SingleOpTest, ScalarsAndCopies) {
  const std::vector<float> x{1, -2, 3, -4, 5, -6};
  for (const std::uint32_t code : {BP_OP_SCALE, BP_OP_SOFTCAP, BP_OP_FILL, BP_OP_COPY, BP_OP_MUL}) {
    std::vector<float> results[2];
    for (int i = 0; i < 2; ++i) {
      Device& d = *both_[i];
      buffers_.clear();
      const bp_tensor out = put(d, std::vector<float>(6), BP_TYPE_F32, 2), in = put(d, x, BP_TYPE_F32, 2);
      bp_scalar_args scalar{0, in, out, 2.5};
      if (code == BP_OP_FILL) scalar.x = {};
      bp_unary_args unary{0, in, out};
      bp_binary_args binary{0, in, in, out, 0.5};
      if (code == BP_OP_COPY) {
        run(d, code, unary);
      } else if (code == BP_OP_MUL) {
        run(d, code, binary);
      } else {
        run(d, code, scalar);
      }
      results[i] = get<float>(d, 0, 6);
    }
    for (std::size_t n = 0; n < 6; ++n) EXPECT_NEAR(results[0][n], results[1][n], 1e-6) << code;
    EXPECT_NE(results[0], std::vector<float>(6)) << code;
  }
}

}  // namespace
}  // namespace backplane::device

// The template plugin, loaded as the program loads it.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/base/abi_call.h"
#include "plugins/host/registry.h"

namespace backplane::plugins {
namespace {

class TemplateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Registry registry(SearchOptions{.plugins = {}, .environment = {}, .folders = {BACKPLANE_PLUGIN_OUTPUT_DIR}});
    const DeviceRef found = registry.find_device("template");
    ASSERT_EQ(found.name, "template:0");
    plugin_ = found.plugin;
    AbiCall call;
    bp_open_params params{};
    params.size = sizeof(params);
    params.flags = BP_OPEN_DETERMINISTIC;
    ASSERT_EQ(tables().driver->open(call.context(), found.index, &params, &device_), BP_OK) << call.text();
  }

  void TearDown() override {
    for (bp_buffer buffer : buffers_) tables().buffer->free(device_, buffer);
    if (device_) tables().driver->close(device_);
  }

  const bp_tables& tables() const { return plugin_->tables(); }

  // A tensor [rows, columns] that holds `data`, whose rows are `row_stride` floats apart.
  bp_tensor put(std::vector<float> data, std::int64_t rows, std::int64_t columns, std::int64_t row_stride) {
    AbiCall call;
    bp_buffer buffer = nullptr;
    const std::uint64_t bytes = data.size() * sizeof(float);
    EXPECT_EQ(tables().buffer->alloc(device_, call.context(), bytes, BP_MEMORY_DEVICE, &buffer), BP_OK);
    buffers_.push_back(buffer);
    EXPECT_EQ(tables().buffer->upload(device_, nullptr, call.context(), buffer, 0, data.data(), bytes), BP_OK);
    return {buffer, 0, BP_TYPE_F32, 2, {rows, columns, 1, 1}, {row_stride * 4, 4, 0, 0}};
  }

  std::vector<float> get(const bp_tensor& tensor, std::size_t count) {
    AbiCall call;
    std::vector<float> data(count);
    EXPECT_EQ(tables().buffer->download(device_, nullptr, call.context(), tensor.buffer, 0, data.data(), count * 4),
              BP_OK);
    return data;
  }

  bp_status run(const bp_linear_args& args, std::string* text) {
    bp_op op{};
    op.size = sizeof(op);
    op.code = BP_OP_LINEAR;
    op.args = &args;
    AbiCall call;
    const bp_status status = tables().device->run(device_, nullptr, call.context(), &op);
    *text = call.text();
    return status;
  }

  std::shared_ptr<const Plugin> plugin_;
  bp_device device_ = nullptr;
  std::vector<bp_buffer> buffers_;
};

TEST_F(TemplateTest, SaysWhatItSupports) {
  AbiCall call;
  bp_caps caps{};
  caps.size = sizeof(caps);
  ASSERT_EQ(tables().device->caps(device_, call.context(), &caps), BP_OK);
  EXPECT_STREQ(caps.name, "0");
  EXPECT_EQ(caps.size, sizeof(caps));
  EXPECT_EQ(caps.activation_type, bp_type{BP_TYPE_F32});
  bp_linear_args args{};
  args.size = sizeof(args);
  args.x.type = args.out.type = args.weight.tensor.type = BP_TYPE_F32;
  bp_op_query query{};
  query.size = sizeof(query);
  query.smallest = query.largest = &args;
  bp_support support{};
  support.size = sizeof(support);
  query.code = BP_OP_NORM;
  EXPECT_EQ(tables().device->supports(device_, call.context(), &query, &support), BP_UNSUPPORTED);
  EXPECT_EQ(call.text(), "only LINEAR is implemented");
  query.code = BP_OP_LINEAR;
  EXPECT_EQ(tables().device->supports(device_, call.context(), &query, &support), BP_OK);
  EXPECT_EQ(support.accumulator_type, bp_type{BP_TYPE_F32});
  EXPECT_EQ(support.workspace_bytes, 0u);
  args.weight.tensor.type = BP_TYPE_Q4_0;
  AbiCall second;
  EXPECT_EQ(tables().device->supports(device_, second.context(), &query, &support), BP_UNSUPPORTED);
  EXPECT_EQ(second.text(), "weights must be F32");
}

TEST_F(TemplateTest, MultipliesStridedRows) {
  bp_linear_args args{};
  args.size = sizeof(args);
  args.x = put({1, 2, 3, -9, 4, 5, 6, -9}, 2, 3, 4);
  args.weight.tensor = put({1, 0, 0, 0, 1, 1}, 2, 3, 3);
  args.out = put({7, 7, 7, 7, 7, 7}, 2, 2, 3);
  std::string text;
  ASSERT_EQ(run(args, &text), BP_OK) << text;
  EXPECT_EQ(get(args.out, 6), (std::vector<float>{1, 5, 7, 4, 11, 7}));
  args.bias = put({10, 20}, 1, 2, 2);
  args.bias.rank = 1;
  args.bias.shape[0] = 2;
  args.bias.stride[0] = 4;
  ASSERT_EQ(run(args, &text), BP_OK) << text;
  EXPECT_EQ(get(args.out, 6), (std::vector<float>{11, 25, 7, 14, 31, 7}));
}

TEST_F(TemplateTest, LongRowsMatchIntegerSums) {
  constexpr int kRows = 33, kColumns = 1003;  // neither is a multiple of anything
  std::vector<float> x(kColumns), weight(std::size_t{kRows} * kColumns), expected(kRows);
  for (int c = 0; c < kColumns; ++c) x[c] = static_cast<float>(c % 7 - 3);
  for (int n = 0; n < kRows; ++n) {
    int sum = 0;
    for (int c = 0; c < kColumns; ++c) {
      const int w = (n * 31 + c * 17) % 11 - 5;
      weight[std::size_t(n) * kColumns + c] = static_cast<float>(w);
      sum += w * (c % 7 - 3);
    }
    expected[n] = static_cast<float>(sum);
  }
  bp_linear_args args{};
  args.size = sizeof(args);
  args.x = put(x, 1, kColumns, kColumns);
  args.weight.tensor = put(weight, kRows, kColumns, kColumns);
  args.out = put(std::vector<float>(kRows), 1, kRows, kRows);
  std::string text;
  ASSERT_EQ(run(args, &text), BP_OK) << text;
  EXPECT_EQ(get(args.out, kRows), expected) << "all sums are small integers, exact in any order";
}

TEST_F(TemplateTest, RefusesTensorsBeyondTheirBuffers) {
  bp_linear_args args{};
  args.size = sizeof(args);
  args.x = put({1, 2, 3}, 1, 3, 3);
  args.weight.tensor = put({1, 2, 3}, 1, 3, 3);
  args.out = put({0}, 1, 1, 1);
  args.weight.tensor.shape[0] = 1000;
  args.out.shape[1] = 1000;
  std::string text;
  EXPECT_EQ(run(args, &text), BP_INVALID);
  EXPECT_EQ(text, "a tensor reaches beyond its buffer");
}

TEST_F(TemplateTest, RefusesUnknownOptionsAndFlags) {
  AbiCall call;
  bp_device device = nullptr;
  bp_open_params params{};
  params.size = sizeof(params);
  params.options = "speed=ludicrous";
  EXPECT_EQ(tables().driver->open(call.context(), 0, &params, &device), BP_INVALID);
  EXPECT_EQ(call.text(), "unknown option 'speed'");
  params.options = nullptr;
  params.flags = 1 << 20;
  EXPECT_EQ(tables().driver->open(call.context(), 0, &params, &device), BP_UNSUPPORTED);
  params.flags = 0;
  EXPECT_EQ(tables().driver->open(call.context(), 5, &params, &device), BP_INVALID);
}

}  // namespace
}  // namespace backplane::plugins

// The SDK: failing, structs of other sizes, options, ops, host memory.
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/base/abi_call.h"
#include "plugins/host/host_table.h"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::plugin {
namespace {

class SdkTest : public ::testing::Test {
 protected:
  void SetUp() override { host = plugins::host_table(); }
  void TearDown() override { host = nullptr; }

  // Status and text of what a throwing function becomes.
  template <class Function>
  std::pair<bp_status, std::string> guarded(Function function) {
    AbiCall call;
    const bp_status status = guard(call.context(), function);
    return {status, call.text()};
  }
  using Result = std::pair<bp_status, std::string>;
};

TEST_F(SdkTest, GuardTurnsExceptionsIntoStatuses) {
  EXPECT_EQ(guarded([] {}), Result(BP_OK, ""));
  EXPECT_EQ(guarded([] { return bp_status{BP_UNAVAILABLE}; }), Result(BP_UNAVAILABLE, ""));
  EXPECT_EQ(guarded([] { throw Failure(BP_DEVICE_LOST, "gone"); }), Result(BP_DEVICE_LOST, "gone"));
  EXPECT_EQ(guarded([] { refuse("not today"); }), Result(BP_UNSUPPORTED, "not today"));
  EXPECT_EQ(guarded([] { require(false, "no"); }), Result(BP_INVALID, "no"));
  EXPECT_EQ(guarded([] { throw std::bad_alloc(); }), Result(BP_OUT_OF_MEMORY, "out of host memory"));
  EXPECT_EQ(guarded([] { throw std::runtime_error("oops"); }), Result(BP_INTERNAL, "oops"));
  EXPECT_EQ(guarded([] { throw 7; }).first, BP_INTERNAL);
  host = nullptr;
  EXPECT_EQ(guarded([] { throw 7; }), Result(BP_INTERNAL, "")) << "before the entry point there is no host";
}

TEST_F(SdkTest, StructsOfOtherSizes) {
  bp_support own{};
  own.size = sizeof(own);
  own.features = 1;
  own.workspace_bytes = 2;
  own.flags = 3;
  bp_support core{};
  core.size = 24;  // as if flags came in a later version
  core.flags = 99;
  fill_struct(&core, own);
  EXPECT_EQ(core.size, 24u);
  EXPECT_EQ(core.features, 1u);
  EXPECT_EQ(core.workspace_bytes, 2u);
  EXPECT_EQ(core.flags, 99u) << "beyond the core's size";
  EXPECT_TRUE(struct_has(&core, &bp_support::workspace_bytes));
  EXPECT_FALSE(struct_has(&core, &bp_support::flags));
  const bp_support read = read_struct(&core);
  EXPECT_EQ(read.workspace_bytes, 2u);
  EXPECT_EQ(read.flags, 0u);
  EXPECT_EQ(read.size, sizeof(bp_support));
  bp_support larger = own;
  larger.size = sizeof(bp_support) + 100;
  fill_struct(&larger, own);
  EXPECT_EQ(larger.size, sizeof(bp_support) + 100) << "the allocator's size stays";
}

TEST_F(SdkTest, TablesThatTheCoreDoesNotHave) {
  bp_kv_table kv{};
  kv.size = sizeof(kv);
  bp_tables tables{};
  tables.size = offsetof(bp_tables, kv);
  tables.kv = &kv;
  bp_kv_table own{};
  own.destroy = [](bp_device, bp_kv) {};
  fill_table(&tables, &bp_tables::kv, own);
  EXPECT_EQ(kv.destroy, nullptr) << "lies outside the core's bp_tables";
  tables.size = sizeof(tables);
  fill_table(&tables, &bp_tables::kv, own);
  EXPECT_EQ(kv.destroy, own.destroy);
  EXPECT_EQ(kv.size, sizeof(kv));
  tables.kv = nullptr;
  fill_table(&tables, &bp_tables::kv, own);
}

TEST_F(SdkTest, LoopRethrows) {
  std::vector<int> seen(100);
  parallel_for(seen.size(), 10, [&](std::uint64_t begin, std::uint64_t end, unsigned worker) {
    EXPECT_LT(worker, threads());
    for (std::uint64_t i = begin; i < end; ++i) ++seen[i];
  });
  EXPECT_EQ(seen, std::vector<int>(100, 1));
  const auto failing = [](std::uint64_t, std::uint64_t, unsigned) { throw Failure(BP_INVALID, "in the loop"); };
  EXPECT_THROW(parallel_for(100, 1, failing), Failure);
  parallel_for(0, 1, failing);
}

TEST_F(SdkTest, Options) {
  std::string seen;
  const auto note = [&](auto key, auto value) { seen += std::string(key) + "|" + std::string(value) + ";"; };
  for_each_option("a=1,b=,c=x=y", note);
  EXPECT_EQ(seen, "a|1;b|;c|x=y;");
  for_each_option(nullptr, note);
  for_each_option("", note);
  EXPECT_EQ(seen, "a|1;b|;c|x=y;");
  for (const char* bad : {"a", "=1", "a=1,,b=2", "a=1,b"}) EXPECT_THROW(for_each_option(bad, note), Failure) << bad;
}

TEST_F(SdkTest, TextIsCutToFit) {
  char text[4];
  copy_text(text, "abcdef");
  EXPECT_STREQ(text, "abc");
  copy_text(text, "x");
  EXPECT_EQ(std::memcmp(text, "x\0\0\0", 4), 0);
}

TEST_F(SdkTest, ArgumentsByCode) {
  bp_linear_args args{};
  args.size = offsetof(bp_linear_args, alpha);  // an older core
  args.alpha = 5;
  args.out.rank = 2;
  bp_op op{};
  op.code = BP_OP_LINEAR;
  EXPECT_THROW(args_of<bp_linear_args>(op), Failure);
  op.args = &args;
  EXPECT_EQ(args_of<bp_linear_args>(op).alpha, 0);
  EXPECT_EQ(args_of<bp_linear_args>(op).out.rank, 2u);
  const auto name = [](const auto& each) -> std::string {
    using Args = std::remove_cvref_t<decltype(each)>;
    if constexpr (std::is_same_v<Args, bp_linear_args>) return "linear";
    return "other";
  };
  EXPECT_EQ(visit_args(op.code, op.args, name), "linear");
  bp_unary_args unary{};
  unary.size = sizeof(unary);
  EXPECT_EQ(visit_args(BP_OP_COPY, &unary, name), "other");
  EXPECT_THROW(visit_args(999, &unary, name), Failure);
  EXPECT_STREQ(op_name(BP_OP_HEAD_ARGMAX), "HEAD_ARGMAX");
}

TEST_F(SdkTest, HostMemoryChecksRanges) {
  const bp_buffer_table table = host_memory_table();
  AbiCall call;
  bp_buffer buffer = nullptr;
  EXPECT_EQ(table.alloc(nullptr, call.context(), 100, BP_MEMORY_IMPORTED, &buffer), BP_UNSUPPORTED);
  EXPECT_EQ(table.alloc(nullptr, call.context(), 100, 77, &buffer), BP_UNSUPPORTED);
  EXPECT_EQ(table.alloc(nullptr, call.context(), 0, BP_MEMORY_DEVICE, &buffer), BP_INVALID);
  EXPECT_EQ(table.alloc(nullptr, call.context(), ~std::uint64_t{0}, BP_MEMORY_DEVICE, &buffer), BP_OUT_OF_MEMORY);
  ASSERT_EQ(table.alloc(nullptr, call.context(), 100, BP_MEMORY_DEVICE, &buffer), BP_OK);
  void* address = nullptr;
  ASSERT_EQ(table.map(nullptr, call.context(), buffer, &address), BP_OK);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % kHostAlignment, 0u);
  char data[100] = "text";
  EXPECT_EQ(table.upload(nullptr, nullptr, call.context(), buffer, 0, data, 100), BP_OK);
  EXPECT_EQ(table.upload(nullptr, nullptr, call.context(), buffer, 1, data, 100), BP_INVALID);
  EXPECT_EQ(table.upload(nullptr, nullptr, call.context(), buffer, ~std::uint64_t{0}, data, 2), BP_INVALID);
  EXPECT_EQ(table.copy(nullptr, nullptr, call.context(), buffer, 50, buffer, 0, 5), BP_OK);
  EXPECT_EQ(table.copy(nullptr, nullptr, call.context(), buffer, 96, buffer, 0, 5), BP_INVALID);
  EXPECT_EQ(table.download(nullptr, nullptr, call.context(), buffer, 50, data + 50, 5), BP_OK);
  EXPECT_STREQ(data + 50, "text");
  EXPECT_EQ(table.download(nullptr, nullptr, call.context(), nullptr, 50, data + 50, 5), BP_INVALID);
  table.free(nullptr, buffer);
}

TEST_F(SdkTest, ImportedMemoryKeepsItsOwnerAndItsRights) {
  const bp_buffer_table table = host_memory_table();
  AbiCall call;
  alignas(8) float data[4] = {1, 2, 3, 4};
  bp_buffer buffer = nullptr;
  ASSERT_EQ(table.import_host(nullptr, call.context(), data, sizeof(data), 0, &buffer), BP_OK);
  bp_tensor tensor{buffer, 4, BP_TYPE_F32, 1, {3, 1, 1, 1}, {4, 0, 0, 0}};
  EXPECT_EQ(data_of<const float>(tensor)[2], 4.0f);
  EXPECT_THROW(data_of<float>(tensor), Failure) << "read-only";
  EXPECT_THROW(data_of<const std::int32_t>(tensor), Failure) << "another type";
  EXPECT_NE(data_of<const std::byte>(tensor), nullptr);
  tensor.shape[0] = 4;
  EXPECT_THROW(data_of<const float>(tensor), Failure) << "beyond the end";
  tensor.shape[0] = 1;
  tensor.offset = 2;
  EXPECT_THROW(data_of<const float>(tensor), Failure) << "misaligned";
  EXPECT_EQ(table.upload(nullptr, nullptr, call.context(), buffer, 0, data, 4), BP_INVALID);
  EXPECT_EQ(table.import_host(nullptr, call.context(), nullptr, 4, 0, &buffer), BP_INVALID);
  table.free(nullptr, buffer);
  EXPECT_EQ(data[0], 1.0f);
}

}  // namespace
}  // namespace backplane::plugin

// The SDK's helpers, and the template plugin that is made of them, before what a later version may bring.
#include <gtest/gtest.h>

#include <vector>

#include "core/base/abi_call.h"
#include "plugins/host/registry.h"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::versions_test {
namespace {

constexpr bp_type kUnknownTypes[] = {7, 61, 255, 256, 300, 4000000000U};

template <class Function>
bp_status status_of(Function&& function) {
  return plugin::guard(nullptr, std::forward<Function>(function));
}

TEST(UnknownSdk, TypesHaveNoSize) {
  for (const bp_type type : kUnknownTypes) {
    EXPECT_EQ(plugin::type_info(type).block_elements, 0u);
    EXPECT_FALSE(plugin::is_float(type));
    EXPECT_FALSE(plugin::is_quantized(type));
    EXPECT_EQ(plugin::row_bytes(type, 32), std::nullopt);
    const bp_tensor tensor{nullptr, 0, type, 1, {4, 1, 1, 1}, {4, 0, 0, 0}};
    EXPECT_FALSE(plugin::is_well_formed(tensor));
    EXPECT_FALSE(plugin::has_contiguous_rows(tensor));
    EXPECT_FALSE(plugin::is_contiguous(tensor));
    EXPECT_EQ(plugin::extent_bytes(tensor), std::nullopt);
    EXPECT_EQ(plugin::element_count(tensor), std::nullopt);
  }
}

TEST(UnknownSdk, TypeSetsHoldNoOtherTypeInstead) {
  const bp_type_set set = plugin::type_set({BP_TYPE_F32, 61, 256 + BP_TYPE_F16, 4000000000U});
  EXPECT_EQ(set.bits[0], std::uint64_t{1} << BP_TYPE_F32 | std::uint64_t{1} << 61);
  EXPECT_EQ(set.bits[1] | set.bits[2] | set.bits[3], 0u);
  EXPECT_TRUE(plugin::has_type(set, 61)) << "a later type is held as any other";
  EXPECT_FALSE(plugin::has_type(set, 256 + BP_TYPE_F32));
}

TEST(UnknownSdk, TensorsOfUnknownTypeAreNo) {
  std::byte memory[64];
  plugin::HostBuffer buffer{memory, sizeof(memory), false, true};
  for (const bp_type type : kUnknownTypes) {
    const bp_tensor tensor{reinterpret_cast<bp_buffer>(&buffer), 0, type, 1, {4, 1, 1, 1}, {4, 0, 0, 0}};
    EXPECT_EQ(status_of([&] { plugin::data_of<const float>(tensor); }), BP_UNSUPPORTED);
    EXPECT_EQ(status_of([&] { plugin::data_of<std::byte>(tensor); }), BP_UNSUPPORTED);
  }
  const bp_tensor absent{reinterpret_cast<bp_buffer>(&buffer), 0, BP_TYPE_NONE, 1, {4, 1, 1, 1}, {4, 0, 0, 0}};
  EXPECT_EQ(status_of([&] { plugin::data_of<const float>(absent); }), BP_INVALID) << "absent is not unknown";
}

TEST(UnknownSdk, OpCodesAreNo) {
  const bp_unary_args args{sizeof(bp_unary_args), {}, {}};
  for (const std::uint32_t code : {0U, 21U, 70U, 0xffffffffU}) {
    EXPECT_STREQ(plugin::op_name(code), "op");
    bool called = false;
    EXPECT_EQ(status_of([&] { plugin::visit_args(code, &args, [&](const auto&) { called = true; }); }), BP_UNSUPPORTED);
    EXPECT_FALSE(called);
  }
}

TEST(UnknownSdk, KindsOfMemoryAreNo) {
  for (const bp_memory kind : {3U, 4U, 0xffffffffU}) {
    bp_buffer buffer = nullptr;
    EXPECT_EQ(plugin::host_memory::alloc(nullptr, nullptr, 64, kind, &buffer), BP_UNSUPPORTED);
    EXPECT_EQ(buffer, nullptr);
  }
}

class UnknownTemplate : public ::testing::Test {
 protected:
  UnknownTemplate()
      : found_(plugins::Registry({.plugins = {}, .environment = {}, .folders = {BACKPLANE_PLUGIN_OUTPUT_DIR}})
                   .find_device("template")) {
    bp_open_params params{};
    params.size = sizeof(params);
    EXPECT_EQ(tables().driver->open(nullptr, found_.index, &params, &device_), BP_OK);
  }
  ~UnknownTemplate() override { tables().driver->close(device_); }

  const bp_tables& tables() const { return found_.plugin->tables(); }

  bp_status ask(std::uint32_t code, const bp_linear_args& args) {
    bp_op_query query{};
    query.size = sizeof(query);
    query.code = code;
    query.smallest = query.largest = &args;
    bp_support support{};
    support.size = sizeof(support);
    return tables().device->supports(device_, nullptr, &query, &support);
  }
  bp_status run(std::uint32_t code, const bp_linear_args& args) {
    bp_op op{};
    op.size = sizeof(op);
    op.code = code;
    op.args = &args;
    return tables().device->run(device_, nullptr, nullptr, &op);
  }

  plugins::DeviceRef found_;
  bp_device device_ = nullptr;
};

TEST_F(UnknownTemplate, SaysNo) {
  float memory[4] = {1, 2, 3, 4};
  bp_buffer buffer = nullptr;
  ASSERT_EQ(tables().buffer->import_host(device_, nullptr, memory, sizeof(memory), 1, &buffer), BP_OK);
  const auto at = [&](std::uint64_t offset, std::int64_t columns) {
    return bp_tensor{buffer, offset, BP_TYPE_F32, 2, {1, columns, 1, 1}, {4 * columns, 4, 0, 0}};
  };
  bp_linear_args args{};
  args.size = sizeof(args);
  args.x = at(0, 1);
  args.weight.tensor = at(4, 1);
  args.out = at(8, 1);
  ASSERT_EQ(ask(BP_OP_LINEAR, args), BP_OK);
  ASSERT_EQ(run(BP_OP_LINEAR, args), BP_OK);
  EXPECT_EQ(memory[2], 2);
  for (const std::uint32_t code : {0U, 21U, 69U, 0xffffffffU}) {
    EXPECT_EQ(ask(code, args), BP_UNSUPPORTED) << code;
    EXPECT_EQ(run(code, args), BP_UNSUPPORTED) << code;
  }
  for (bp_tensor* tensor : {&args.x, &args.weight.tensor}) {
    for (const bp_type type : kUnknownTypes) {
      const bp_type known = std::exchange(tensor->type, type);
      EXPECT_EQ(ask(BP_OP_LINEAR, args), BP_UNSUPPORTED) << type;
      EXPECT_EQ(run(BP_OP_LINEAR, args), BP_UNSUPPORTED) << type;
      tensor->type = known;
    }
  }
  tables().buffer->free(device_, buffer);
}

}  // namespace
}  // namespace backplane::versions_test

// The SDK's arithmetic on types and tensors.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/dtype.h"
#include "plugins/sdk/backplane_tensor.hpp"

namespace backplane::plugin {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

bp_tensor tensor(bp_type type, std::vector<std::int64_t> shape, std::vector<std::int64_t> stride,
                 std::uint64_t offset = 0) {
  bp_tensor made{};
  made.offset = offset;
  made.type = type;
  made.rank = static_cast<std::uint32_t>(shape.size());
  for (int i = 0; i < 4; ++i) made.shape[i] = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    made.shape[i] = shape[i];
    made.stride[i] = stride[i];
  }
  return made;
}

TEST(SdkTypes, AgreeWithTheCore) {
  int known = 0;
  for (bp_type type = 0; type < 300; ++type) {
    const DTypeInfo& core = dtype_info(static_cast<DType>(type));
    const TypeInfo info = type_info(type);
    EXPECT_EQ(info.block_elements, core.block_elements) << type;
    EXPECT_EQ(info.block_bytes, core.block_bytes) << type;
    known += info.block_elements > 0;
    EXPECT_EQ(is_float(type), backplane::is_float(static_cast<DType>(type))) << type;
  }
  EXPECT_EQ(known, 28);
}

TEST(SdkTypes, Sets) {
  constexpr bp_type_set set = type_set({BP_TYPE_F64, BP_TYPE_MXFP4, 64, 255});
  EXPECT_EQ(set.bits[0], (std::uint64_t{1} << 1) | (std::uint64_t{1} << 60));
  EXPECT_EQ(set.bits[1], 1u);
  EXPECT_EQ(set.bits[3], std::uint64_t{1} << 63);
  EXPECT_TRUE(has_type(set, BP_TYPE_MXFP4));
  EXPECT_FALSE(has_type(set, BP_TYPE_F32));
  EXPECT_FALSE(has_type(set, 256 + BP_TYPE_F64));
}

TEST(SdkTensors, RowBytes) {
  EXPECT_EQ(row_bytes(BP_TYPE_F16, 3), 6u);
  EXPECT_EQ(row_bytes(BP_TYPE_Q4_K, 512), 288u);
  EXPECT_EQ(row_bytes(BP_TYPE_Q4_K, 500), std::nullopt);
  EXPECT_EQ(row_bytes(BP_TYPE_F64, std::numeric_limits<std::uint64_t>::max() / 8 + 1), std::nullopt);
  EXPECT_EQ(row_bytes(99, 1), std::nullopt);
}

TEST(SdkTensors, Extent) {
  EXPECT_EQ(extent_bytes(tensor(BP_TYPE_F32, {3, 5}, {20, 4})), 60u);
  EXPECT_EQ(extent_bytes(tensor(BP_TYPE_F32, {3, 5}, {32, 4})), 84u) << "the last row has no gap after it";
  EXPECT_EQ(extent_bytes(tensor(BP_TYPE_F32, {3, 5}, {4, 12})), 60u) << "transposed";
  EXPECT_EQ(extent_bytes(tensor(BP_TYPE_Q4_0, {2, 64}, {36, 18})), 72u);
  EXPECT_EQ(extent_bytes(tensor(BP_TYPE_Q4_0, {2, 63}, {36, 18})), std::nullopt);
  EXPECT_EQ(extent_bytes(tensor(BP_TYPE_F32, {0, kHuge}, {kHuge, 4})), 0u);
  EXPECT_EQ(extent_bytes(tensor(BP_TYPE_F32, {-1}, {4})), std::nullopt);
  EXPECT_EQ(extent_bytes(tensor(BP_TYPE_F32, {2}, {-4})), std::nullopt);
  EXPECT_EQ(extent_bytes(tensor(BP_TYPE_F32, {kHuge}, {4})), std::nullopt);
  EXPECT_EQ(extent_bytes(tensor(BP_TYPE_F32, {3, 3}, {kHuge, kHuge})), std::nullopt);
  bp_tensor bad = tensor(BP_TYPE_F32, {2}, {4});
  bad.rank = 5;
  EXPECT_EQ(extent_bytes(bad), std::nullopt);
  bad.rank = 0;
  EXPECT_EQ(extent_bytes(bad), std::nullopt);
}

TEST(SdkTensors, Fits) {
  EXPECT_TRUE(fits(tensor(BP_TYPE_F32, {3, 5}, {20, 4}, 4), 64));
  EXPECT_FALSE(fits(tensor(BP_TYPE_F32, {3, 5}, {20, 4}, 8), 64));
  EXPECT_FALSE(fits(tensor(BP_TYPE_F32, {1}, {4}, std::numeric_limits<std::uint64_t>::max() - 1), 64));
  EXPECT_FALSE(fits(tensor(BP_TYPE_F32, {0}, {4}, 65), 64)) << "even an empty view begins inside";
}

TEST(SdkTensors, Contiguity) {
  EXPECT_TRUE(is_contiguous(tensor(BP_TYPE_F32, {3, 5}, {20, 4})));
  EXPECT_FALSE(is_contiguous(tensor(BP_TYPE_F32, {3, 5}, {24, 4})));
  EXPECT_TRUE(has_contiguous_rows(tensor(BP_TYPE_F32, {3, 5}, {24, 4})));
  EXPECT_FALSE(has_contiguous_rows(tensor(BP_TYPE_F32, {3, 5}, {4, 12})));
  EXPECT_TRUE(is_contiguous(tensor(BP_TYPE_F32, {1, 5}, {999, 4}))) << "one row: its stride means nothing";
  EXPECT_TRUE(is_contiguous(tensor(BP_TYPE_Q8_0, {2, 3, 64}, {204, 68, 34})));
  EXPECT_FALSE(is_contiguous(tensor(BP_TYPE_Q8_0, {2, 3, 64}, {208, 68, 34})));
  EXPECT_TRUE(is_contiguous(tensor(BP_TYPE_F32, {0, 5}, {1, 1})));
}

TEST(SdkTensors, Counts) {
  const bp_tensor t = tensor(BP_TYPE_F32, {2, 3, 4}, {48, 16, 4});
  EXPECT_EQ(element_count(t), 24u);
  EXPECT_EQ(row_length(t), 4);
  EXPECT_EQ(row_count(t), 6);
  EXPECT_EQ(element_count(tensor(BP_TYPE_F32, {kHuge, kHuge}, {4, 4})), std::nullopt);
  bp_tensor absent{};
  EXPECT_TRUE(is_absent(absent));
  EXPECT_FALSE(is_absent(t));
}

}  // namespace
}  // namespace backplane::plugin

// HEAD_ARGMAX against LINEAR: the same numbers, and of these the one that TOPK would take.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/unit/onednn/ops.h"

namespace backplane {
namespace {

using test::Onednn;

// Rows enough to be taken for a head, no whole number of panels; every row comes twice.
constexpr std::int64_t kColumns = 64, kRows = 16 * kColumns + 13, kOnce = 600;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class OnednnHead : public testing::TestWithParam<bp_type> {
 protected:
  static std::vector<std::byte> weights() {
    test::TinyRandom random(1);
    const auto row = *plugin::row_bytes(GetParam(), kColumns);
    const auto type = GetParam() == BP_TYPE_F32   ? test::TinyType::kF32
                      : GetParam() == BP_TYPE_F16 ? test::TinyType::kF16
                                                  : test::TinyType::kQ8_0;
    std::string data = test::tiny_data(random, type, kOnce * kColumns);
    data += data.substr(0, (kRows - kOnce) * row);
    const auto bytes = std::as_bytes(std::span(data));
    return {bytes.begin(), bytes.end()};
  }

  // What TOPK says of a row of logits.
  static std::int64_t best_of(const float* logits) {
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < kRows; ++i) {
      if (std::isnan(logits[i])) continue;
      if (std::isnan(logits[best]) || logits[i] > logits[best]) best = i;
    }
    return best;
  }
};

TEST_P(OnednnHead, IsTheBestOfTheLogits) {
  for (const char* floats : {"own", "onednn"}) {
    auto device = Onednn::open(std::string("floats=") + floats);
    if (!device) continue;
    const bp_matrix weight = device->matrix(GetParam(), kRows, kColumns, weights());
    for (const std::int64_t tokens : {1, 3, 21}) {
      test::TinyRandom random(2);
      const bp_tensor x = device->floats(test::tiny_values(random, tokens * kColumns, 1), tokens, 5);
      if (tokens > 1) device->row<float>(x, 1)[7] = kNan;
      bp_tensor bias = device->floats(std::vector<float>(kRows), 1);
      bias.rank = 1;
      bias.shape[0] = kRows;
      bias.shape[1] = 1;
      bias.stride[0] = sizeof(float);
      device->row<float>(bias, 0)[0] = kNan;
      device->row<float>(bias, 0)[kRows - 1] = kNan;
      bp_linear_args linear{};
      linear.x = x;
      linear.weight = weight;
      linear.bias = bias;
      linear.out = device->tensor(BP_TYPE_F32, tokens, kRows);
      device->run(BP_OP_LINEAR, linear);
      bp_head_argmax_args head{};
      head.x = x;
      head.weight = weight;
      head.bias = bias;
      head.ids = device->tensor(BP_TYPE_I32, tokens, 1);
      head.values = device->tensor(BP_TYPE_F32, tokens, 1);
      head.ids.rank = head.values.rank = 1;
      device->run(BP_OP_HEAD_ARGMAX, head);
      for (std::int64_t t = 0; t < tokens; ++t) {
        const float* logits = device->row<float>(linear.out, t);
        const std::int64_t best = best_of(logits);
        EXPECT_EQ(*device->row<std::int32_t>(head.ids, t), best) << "token " << t << " of " << tokens;
        const bool broken = std::any_of(logits, logits + kRows, [](float logit) { return std::isnan(logit); });
        if (broken) {
          EXPECT_TRUE(std::isnan(*device->row<float>(head.values, t))) << "token " << t;
        } else {
          EXPECT_EQ(std::memcmp(device->row<float>(head.values, t), logits + best, sizeof(float)), 0);
        }
        EXPECT_EQ(std::isnan(logits[best]), t == 1) << "which has nothing but NaN";
        EXPECT_LT(best, kOnce) << "the first of two that are equal";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, OnednnHead, testing::Values(BP_TYPE_F32, BP_TYPE_F16, BP_TYPE_Q8_0),
                         [](const auto& each) { return std::string(plugin::type_info(each.param).name); });

}  // namespace
}  // namespace backplane

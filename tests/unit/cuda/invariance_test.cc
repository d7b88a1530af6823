// A deterministic device gives a token the same bits among any others.
#include <random>

#include "tests/unit/cuda/imported.h"

namespace backplane::test {
namespace {

std::vector<float> numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random()) / 4e9f - 0.5f;
  return values;
}

// The products of all tokens and of groups of them.
void expect_one_order_of_sums(const std::shared_ptr<device::Device>& device, const bp_matrix& matrix) {
  constexpr std::int64_t kTokens = 21;
  const std::int64_t rows = matrix.tensor.shape[0], columns = matrix.tensor.shape[1];
  const std::vector<float> x = numbers(static_cast<std::size_t>(kTokens * columns), 1);
  const auto product = [&](std::int64_t first, std::int64_t tokens) {
    const Tensor in(device, tokens, {x.begin() + first * columns, x.begin() + (first + tokens) * columns});
    const Tensor out(device, BP_TYPE_F32, tokens, rows);
    bp_linear_args args{};
    args.x = in.view;
    args.weight = matrix;
    args.out = out.view;
    enqueue(*device, BP_OP_LINEAR, args);
    return out.read(*device);
  };
  const std::vector<float> all = product(0, kTokens);
  for (const std::int64_t tokens : {1, 2, 3, 4, 5, 8, 9}) {
    for (std::int64_t first = 0; first + tokens <= kTokens; first += tokens) {
      const std::vector<float> want(all.begin() + first * rows, all.begin() + (first + tokens) * rows);
      EXPECT_EQ(product(first, tokens), want) << tokens << " tokens from " << first;
    }
  }
}

TEST(CudaDeterministic, AProductHasOneOrderOfSumsForEveryNumberOfTokens) {
  constexpr std::int64_t kRows = 19;
  const auto device = open_emulated(0, true);
  EXPECT_NE(device->caps().flags & BP_CAP_BATCH_INVARIANT, 0u);
  EXPECT_EQ(open_emulated()->caps().flags & BP_CAP_BATCH_INVARIANT, 0u);
  for (const std::int64_t columns : {300, 301}) {  // read as vectors, and one by one
    SCOPED_TRACE(columns);
    const Tensor weight(device, kRows, numbers(static_cast<std::size_t>(kRows * columns), 2));
    expect_one_order_of_sums(device, {nullptr, weight.view});
  }
}

// As there are other orders of sums for quantized weights, whose scales are applied to whole spans of columns.
TEST(CudaDeterministic, AProductWithQuantizedWeightsHasToo) {
  const auto device = open_emulated(0, true);
  for (const bp_type type : {BP_TYPE_Q4_0, BP_TYPE_Q8_0, BP_TYPE_Q4_K, BP_TYPE_Q6_K}) {
    SCOPED_TRACE(plugin::type_info(type).name);
    expect_one_order_of_sums(device, Imported(device, type, {19, 512}, 3).matrix);
  }
}

}  // namespace
}  // namespace backplane::test

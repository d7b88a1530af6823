// A deterministic device gives a token the same bits among any others.
#include <random>

#include "tests/unit/cuda/emulated.h"

namespace backplane::test {
namespace {

std::vector<float> numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random()) / 4e9f - 0.5f;
  return values;
}

TEST(CudaDeterministic, AProductHasOneOrderOfSumsForEveryNumberOfTokens) {
  constexpr std::int64_t kRows = 19, kColumns = 300, kTokens = 21;
  const auto device = open_emulated(0, true);
  EXPECT_NE(device->caps().flags & BP_CAP_BATCH_INVARIANT, 0u);
  EXPECT_EQ(open_emulated()->caps().flags & BP_CAP_BATCH_INVARIANT, 0u);
  const std::vector<float> x = numbers(kTokens * kColumns, 1);
  const Tensor weight(device, kRows, numbers(kRows * kColumns, 2));
  const auto product = [&](std::int64_t first, std::int64_t tokens) {
    const Tensor in(device, tokens, {x.begin() + first * kColumns, x.begin() + (first + tokens) * kColumns});
    const Tensor out(device, BP_TYPE_F32, tokens, kRows);
    bp_linear_args args{};
    args.x = in.view;
    args.weight.tensor = weight.view;
    args.out = out.view;
    enqueue(*device, BP_OP_LINEAR, args);
    return out.read(*device);
  };
  const std::vector<float> all = product(0, kTokens);
  for (const std::int64_t tokens : {1, 2, 8, 9}) {
    for (std::int64_t first = 0; first + tokens <= kTokens; first += tokens) {
      const std::vector<float> want(all.begin() + first * kRows, all.begin() + (first + tokens) * kRows);
      EXPECT_EQ(product(first, tokens), want) << tokens << " tokens from " << first;
    }
  }
}

}  // namespace
}  // namespace backplane::test

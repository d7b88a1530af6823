// A bound is worth something only between two walls: round-off stays inside, a small fault does not.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/conformance/bounds.h"
#include "tests/conformance/random.h"

namespace backplane::conformance_test {
namespace {

using namespace conformance;

Arithmetic single() {
  bp_support support{};
  support.accumulator_type = BP_TYPE_F32;
  return arithmetic_of(support, DType::kF32);
}

// Sums in order, in float: the longest chain of roundings that a plugin may have.
TEST(Bounds, SumsInOrderStayInside) {
  for (const std::int64_t columns : {7, 100, 4096}) {
    Random random(5, "bounds");
    const Array x = random.array({3, columns}, DType::kF32), w = random.array({5, columns}, DType::kF32);
    Array exact({3, 5}), inexact({3, 5});
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t n = 0; n < 5; ++n) {
        float sum = 0;
        for (std::int64_t c = 0; c < columns; ++c) {
          exact.row(t)[n] += x.row(t)[c] * w.row(n)[c];
          sum += static_cast<float>(x.row(t)[c]) * static_cast<float>(w.row(n)[c]);
        }
        inexact.row(t)[n] = sum;
      }
    }
    const Array bound = linear_bound(single(), exact, {x, w, nullptr, nullptr, false});
    const Worst worst = worst_error(inexact, exact, bound, precision_of(DType::kF32));
    EXPECT_LT(worst.error, 1) << columns;
    // One product too few is seen even among thousands.
    inexact.data[0] -= x.data[0] * w.data[0];
    EXPECT_GT(worst_error(inexact, exact, bound, precision_of(DType::kF32)).error, 4) << columns;
  }
}

TEST(Bounds, ClassesMustAgree) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto error = [](double actual, double expected) {
    return worst_error(Array({1}, actual), Array({1}, expected), Array({1}, 1), precision_of(DType::kF16)).error;
  };
  EXPECT_EQ(error(nan, nan), 0);
  EXPECT_EQ(error(infinity, infinity), 0);
  EXPECT_EQ(error(nan, 1), infinity);
  EXPECT_EQ(error(1, nan), infinity);
  EXPECT_EQ(error(infinity, -infinity), infinity);
  EXPECT_EQ(error(1, infinity), infinity);
  EXPECT_EQ(error(infinity, 70000), 0);  // too large for the type
  EXPECT_EQ(error(-infinity, 70000), infinity);
  EXPECT_EQ(error(infinity, 100), infinity);
  EXPECT_EQ(error(3, 1), 2);
}

TEST(Bounds, WithoutABoundNothingMayDiffer) {
  const Worst worst = worst_error(Array({2}, 1), Array({2}, 1 + 1e-15), Array({2}), precision_of(DType::kF64));
  EXPECT_EQ(worst.error, std::numeric_limits<double>::infinity());
}

TEST(Bounds, WhatIsNotDeclaredIsTakenAsSingle) {
  bp_support support{};
  EXPECT_EQ(arithmetic_of(support, DType::kF16).sum.unit, 0x1p-24);
  EXPECT_EQ(arithmetic_of(support, DType::kF64).sum.unit, 0x1p-53);
  support.accumulator_type = BP_TYPE_F16;
  EXPECT_EQ(arithmetic_of(support, DType::kF16).sum.unit, 0x1p-11);
}

// The two forms of GELU are closer than many a tolerance.
TEST(Bounds, TellTheFormsOfGeluApart) {
  Array x({1, 41}), condition({1, 41}), erf({1, 41}), tanh({1, 41});
  for (std::size_t i = 0; i < 41; ++i) {
    x.data[i] = -5 + 0.1 * static_cast<double>(i);
    condition.data[i] = activation_condition(BP_ACT_GELU_ERF, x.data[i]);
    erf.data[i] = activate(BP_ACT_GELU_ERF, x.data[i]);
    tanh.data[i] = activate(BP_ACT_GELU_TANH, x.data[i]);
  }
  const Array bound = elementwise_bound(single(), erf, condition);
  EXPECT_GT(worst_error(tanh, erf, bound, precision_of(DType::kF32)).error, 100);
}

}  // namespace
}  // namespace backplane::conformance_test

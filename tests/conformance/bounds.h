// How far a result may be from the exact one, from the arithmetic that the plugin declares for the op. Each function
// gives a bound for every element of the result; E is the distance over the bound. An error of E <= 1 is rounding; the
// constants leave several times what round-off does on average, so that a fault shows as E far above 4.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plugins/abi/backplane_plugin.h"
#include "tests/conformance/numbers.h"

namespace backplane::conformance {

struct Arithmetic {
  Precision out;  // the type of results
  Precision sum;  // the accumulator
  bool flushes = false;

  double eta() const { return (flushes ? out.normal : out.smallest / 2) + tiny_sum(); }
  double tiny_sum() const { return flushes ? sum.normal : sum.smallest / 2; }
};
// A plugin that declares no accumulator is taken to have F32, or what its results have if that is finer.
Arithmetic arithmetic_of(const bp_support& support, DType activation);

// y = x W^T + bias, with `ties` from quantize_activations. `expanded`: the weight's blocks may have been turned into
// numbers of the activation's precision.
struct Product {
  const Array& x;       // [T,C]
  const Array& weight;  // [N,C]
  const Array* bias;    // [N] or none
  const Array* ties;    // [T,C] or none
  bool expanded;
};
Array linear_bound(const Arithmetic& a, const Array& y, const Product& product);

// An op on each element by itself: `condition` is what relative errors of its steps are multiplied by, `underflow` what
// is lost where a step leaves the range of the accumulator.
Array elementwise_bound(const Arithmetic& a, const Array& y, const Array& condition, const Array* underflow = nullptr);
double activate(std::uint32_t kind, double x);
double activation_condition(std::uint32_t kind, double x);
double activation_underflow(std::uint32_t kind, double x, const Arithmetic& a);

struct NormTerms {
  std::uint32_t kind;
  double eps;
  double unit_offset;
  const Array* weight;  // or none
  const Array* bias;    // or none
};
Array norm_bound(const Arithmetic& a, const Array& y, const Array& x, const NormTerms& terms);
// What errors of x come to in the norm of x.
Array norm_of_errors(const Array& errors, const Array& x, const NormTerms& terms);

struct RopeTerms {
  const Array& pos;       // [T]
  const Array& row;       // [T]
  const Array& inv_freq;  // [F,pairs]
  const Array& scale;     // [F]
  std::int64_t n_dims;
  bool interleaved;
};
Array rope_bound(const Arithmetic& a, const Array& y, const Array& x, const RopeTerms& terms);
Array rope_of_errors(const Array& errors, const RopeTerms& terms);

// One token and head of attention.
struct AttentionTerms {
  std::vector<const double*> keys, values;  // of the tokens that the query sees
  std::int64_t dim, value_dim;
  double scale, softcap;
  std::optional<double> sink;
};
// Of the value_dim elements of `out`, which is the exact result: scores and weights are computed for their magnitudes.
// `errors`: of the query's elements, or none.
void attention_bound(const Arithmetic& a, const double* query, const double* errors, const AttentionTerms& terms,
                     const double* out, double* bound);

// How far rounding to a declared quantized_activation_type may move each element: half a step. Nothing for kNone.
Array rounding_to(DType type, const Array& x);
// What errors of x come to in x W^T.
Array linear_of_errors(const Array& errors, const Array& weight);

// The largest E; infinite where one is NaN or infinite and the other isn't. What overflows the type of the result may
// be infinite.
struct Worst {
  double error = 0;
  std::size_t index = 0;
};
Worst worst_error(const Array& actual, const Array& expected, const Array& bound, const Precision& out);

}  // namespace backplane::conformance

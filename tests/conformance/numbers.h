// Numbers of the ABI's plain types as double, which holds the floats and all integers that the suite uses exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/dtype.h"

namespace backplane::conformance {

using Shape = std::vector<std::int64_t>;

// An array in row-major order.
struct Array {
  Shape shape;
  std::vector<double> data;

  Array() = default;
  explicit Array(Shape sizes, double value = 0);
  std::int64_t rows() const;  // all dimensions but the innermost
  std::int64_t columns() const { return shape.back(); }
  double* row(std::int64_t number) { return data.data() + number * columns(); }
  const double* row(std::int64_t number) const { return data.data() + number * columns(); }
};

std::int64_t element_count(const Shape& shape);

// How finely a float type (also the 8-bit ones) can say a number.
struct Precision {
  double unit = 0;      // u: half the distance from 1 to the next
  double smallest = 0;  // subnormal number
  double normal = 0;    // the smallest normal one
  double largest = 0;
};
Precision precision_of(DType type);

// The nearest number of the type, ties to even, infinity beyond the largest.
double round_to(DType type, double value);
void round_to(DType type, Array& array);

double read_number(DType type, const std::byte* from);
void write_number(DType type, double value, std::byte* to);  // rounds

// Contiguous; of float and integer types, and Q8_0: rows of whole blocks, rounded as KV_WRITE does it.
std::vector<std::byte> encode(DType type, const Array& array);
Array decode(DType type, Shape shape, const std::vector<std::byte>& bytes);

}  // namespace backplane::conformance

// One run of one case: both devices, the generator, and the comparisons.
#pragma once

#include <span>
#include <string>

#include "tests/conformance/bounds.h"
#include "tests/conformance/outcome.h"
#include "tests/conformance/random.h"
#include "tests/conformance/side.h"

namespace backplane::conformance {

class Trial {
 public:
  Trial(std::shared_ptr<device::Device> device, std::shared_ptr<device::Device> reference, DType activation,
        std::uint64_t seed, const std::string& name);

  Side subject, oracle;
  Random random;
  double error = 0;  // the largest E so far

  DType activation() const { return subject.activation(); }
  Array draw(Shape shape, Style style = Style::kNormal, double scale = 1) {
    return random.array(std::move(shape), activation(), style, scale);
  }
  // Numbers of the type that norm weights, biases and sinks have.
  Array draw_parameters(Shape shape, double scale = 0.5);
  Arithmetic arithmetic() const { return arithmetic_of(subject.support(), activation()); }

  // x as a side has to be given it: the oracle gets what the subject has declared to round it to first. `ties`: as of
  // quantize_activations.
  Array input_for(const Side& side, const Array& x, Array& ties) const;

  // Throws Failed when some element is a bug.
  void compare(const std::string& what, const Array& actual, const Array& expected, const Array& bound);
  // Integers, and floats without any tolerance. NaN equals NaN.
  void same(const std::string& what, const Array& actual, const Array& expected);
  void same_bytes(const std::string& what, DType type, std::span<const std::byte> actual,
                  std::span<const std::byte> expected);
  // Runs the same function on both and gives (subject's result, oracle's result).
  template <class Compute>
  auto both(Compute&& compute) {
    auto mine = compute(subject);
    auto theirs = compute(oracle);
    return std::pair(std::move(mine), std::move(theirs));
  }
};

}  // namespace backplane::conformance

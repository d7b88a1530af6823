#include "tests/conformance/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/conformance/conformance.h"

namespace backplane::conformance {
namespace {

std::string place_text(std::size_t index, const Shape& shape) {
  std::string text;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(shape[d], 1));
    text = fmt::format("{}{}{}", index % size, text.empty() ? "" : ",", text);
    index /= size;
  }
  return "[" + text + "]";
}

}  // namespace

Trial::Trial(std::shared_ptr<device::Device> device, std::shared_ptr<device::Device> reference, DType activation,
             std::uint64_t seed, const std::string& name)
    : subject(std::move(device), Side::Role::kSubject, activation),
      oracle(std::move(reference), Side::Role::kOracle, activation),
      random(seed, name) {}

Array Trial::draw_parameters(Shape shape, double scale) {
  return random.array(std::move(shape), subject.parameter_type(), Style::kNormal, scale);
}

Array Trial::input_for(const Side& side, const Array& x, Array& ties) const {
  const bp_type rounded = side.is_oracle() ? subject.support().quantized_activation_type : bp_type{BP_TYPE_NONE};
  return quantize_activations(x, static_cast<DType>(rounded), ties);
}

void Trial::compare(const std::string& what, const Array& actual, const Array& expected, const Array& bound) {
  const Worst worst = worst_error(actual, expected, bound, precision_of(activation()));
  error = std::max(error, worst.error);
  if (worst.error <= kBug) return;
  throw Failed{fmt::format("{}: E = {:.3g} at {}: {:.9g} instead of {:.9g}, where {:.3g} is rounding", what,
                           worst.error, place_text(worst.index, expected.shape), actual.data[worst.index],
                           expected.data[worst.index], bound.data[worst.index])};
}

void Trial::same(const std::string& what, const Array& actual, const Array& expected) {
  const bool flushes = (subject.support().flags & BP_SUPPORT_FLUSHES_DENORMALS) != 0;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const double got = actual.data[i], want = expected.data[i];
    if (got == want || (std::isnan(got) && std::isnan(want))) continue;
    if (got == 0 && flushes && std::fabs(want) < precision_of(activation()).normal) continue;
    throw Failed{
        fmt::format("{}: {:.17g} instead of exactly {:.17g} at {}", what, got, want, place_text(i, expected.shape))};
  }
}

void Trial::same_bytes(const std::string& what, DType type, std::span<const std::byte> actual,
                       std::span<const std::byte> expected) {
  require(actual.size() == expected.size(), what + ": another number of bytes");
  const std::size_t size = dtype_info(type).block_bytes;
  const bool numbers = backplane::is_float(type) || type == DType::kF8E4M3;
  for (std::size_t at = 0; at < expected.size(); at += size) {
    if (std::equal(actual.begin() + at, actual.begin() + at + size, expected.begin() + at)) continue;
    const auto is_nan = [&](const auto& bytes) { return std::isnan(read_number(DType::kF16, bytes.data() + at)); };
    if (type == DType::kQ8_0 && is_nan(actual) && is_nan(expected)) continue;  // the scale is, so all numbers are
    if (!numbers) throw Failed{fmt::format("{}: element {} differs in its bits", what, at / size)};
    const double got = read_number(type, actual.data() + at), want = read_number(type, expected.data() + at);
    if (std::isnan(got) && std::isnan(want)) continue;
    throw Failed{fmt::format("{}: element {} is {:.17g} instead of bit for bit {:.17g}", what, at / size, got, want)};
  }
}

}  // namespace backplane::conformance

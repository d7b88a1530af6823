#include "core/formats/gguf_value.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace backplane::formats {

static_assert(std::endian::native == std::endian::little, "GGUF and safetensors values are read in place");

namespace {

struct TypeFacts {
  std::string_view name;
  std::size_t bytes;
};

// Indexed by GgufType.
constexpr TypeFacts kFacts[] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},    {"u32", 4},
                                {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 0}, {"array", 0},
                                {"u64", 8}, {"i64", 8}, {"f64", 8}};

const TypeFacts* facts(GgufType type) {
  const auto number = static_cast<std::size_t>(type);
  return number < std::size(kFacts) ? &kFacts[number] : nullptr;
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Calls `put` with each of the first `count` elements as its own C++ type. False when they aren't numbers.
template <class Put>
bool each_number(GgufType type, const std::byte* at, std::uint64_t count, Put&& put) {
  const auto walk = [&]<class T>(T) {
    for (std::uint64_t i = 0; i < count; ++i) put(load<T>(at + i * sizeof(T)));
    return true;
  };
  switch (type) {
    case GgufType::kU8:
      return walk(std::uint8_t{});
    case GgufType::kI8:
      return walk(std::int8_t{});
    case GgufType::kU16:
      return walk(std::uint16_t{});
    case GgufType::kI16:
      return walk(std::int16_t{});
    case GgufType::kU32:
      return walk(std::uint32_t{});
    case GgufType::kI32:
      return walk(std::int32_t{});
    case GgufType::kU64:
      return walk(std::uint64_t{});
    case GgufType::kI64:
      return walk(std::int64_t{});
    case GgufType::kF32:
      return walk(float{});
    case GgufType::kF64:
      return walk(double{});
    default:
      return false;
  }
}

}  // namespace

std::string_view gguf_type_name(GgufType type) { return facts(type) ? facts(type)->name : "unknown"; }
std::size_t gguf_type_bytes(GgufType type) { return facts(type) ? facts(type)->bytes : 0; }
bool is_float(GgufType type) { return type == GgufType::kF32 || type == GgufType::kF64; }
bool is_integer(GgufType type) { return gguf_type_bytes(type) > 0 && !is_float(type) && type != GgufType::kBool; }

std::optional<std::vector<std::string_view>> GgufArray::strings(std::uint64_t limit) const {
  if (element_type_ != GgufType::kString) return std::nullopt;
  std::vector<std::string_view> out(std::min(count_, limit));
  const std::byte* at = bytes_.data();
  for (std::string_view& text : out) {
    const auto length = load<std::uint64_t>(at);
    text = {reinterpret_cast<const char*>(at + sizeof length), length};
    at += sizeof length + length;
  }
  return out;
}

std::optional<std::vector<std::int64_t>> GgufArray::integers(std::uint64_t limit) const {
  if (!is_integer(element_type_)) return std::nullopt;
  std::vector<std::int64_t> out;
  out.reserve(std::min(count_, limit));
  bool fits = true;
  each_number(element_type_, bytes_.data(), std::min(count_, limit), [&](auto value) {
    if constexpr (std::is_same_v<decltype(value), std::uint64_t>) fits = fits && value <= INT64_MAX;
    out.push_back(static_cast<std::int64_t>(value));
  });
  if (!fits) return std::nullopt;
  return out;
}

std::optional<std::vector<double>> GgufArray::numbers(std::uint64_t limit) const {
  if (!is_integer(element_type_) && !is_float(element_type_)) return std::nullopt;
  std::vector<double> out;
  out.reserve(std::min(count_, limit));
  each_number(element_type_, bytes_.data(), std::min(count_, limit),
              [&](auto value) { out.push_back(static_cast<double>(value)); });
  return out;
}

std::optional<std::vector<std::uint8_t>> GgufArray::booleans(std::uint64_t limit) const {
  if (element_type_ != GgufType::kBool) return std::nullopt;
  std::vector<std::uint8_t> out(std::min(count_, limit));
  std::transform(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(out.size()), out.begin(),
                 [](std::byte b) { return static_cast<std::uint8_t>(b != std::byte{0}); });
  return out;
}

std::optional<std::uint64_t> GgufValue::as_u64() const {
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return *number;
  const auto* number = std::get_if<std::int64_t>(&value);
  if (number && *number >= 0) return static_cast<std::uint64_t>(*number);
  return std::nullopt;
}

std::optional<std::int64_t> GgufValue::as_i64() const {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
  const auto* number = std::get_if<std::uint64_t>(&value);
  if (number && *number <= INT64_MAX) return static_cast<std::int64_t>(*number);
  return std::nullopt;
}

std::optional<double> GgufValue::as_f64() const {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<std::int64_t>(&value)) return static_cast<double>(*number);
  return std::nullopt;
}

std::optional<bool> GgufValue::as_bool() const {
  const auto* flag = std::get_if<bool>(&value);
  return flag ? std::optional(*flag) : std::nullopt;
}

std::optional<std::string_view> GgufValue::as_string() const {
  const auto* text = std::get_if<std::string_view>(&value);
  return text ? std::optional(*text) : std::nullopt;
}

const GgufArray* GgufValue::as_array() const { return std::get_if<GgufArray>(&value); }

}  // namespace backplane::formats

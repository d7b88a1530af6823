// The typed values of GGUF metadata, as views of the mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

namespace backplane::formats {

// The numbers are the file's.
enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "u32", "string"; "unknown" for a number that isn't listed.
std::string_view gguf_type_name(GgufType type);
// Bytes of one value in the file; 0 for strings, arrays and unknown types.
std::size_t gguf_type_bytes(GgufType type);
bool is_integer(GgufType type);
bool is_float(GgufType type);

// A view: valid while the container lives. Nothing is copied; the elements were bounds-checked when the file was
// opened.
class GgufArray {
 public:
  // `bytes` holds exactly `count` elements of `element_type`, as in the file.
  GgufArray(GgufType element_type, std::uint64_t count, std::span<const std::byte> bytes)
      : element_type_(element_type), count_(count), bytes_(bytes) {}

  GgufType element_type() const { return element_type_; }
  std::uint64_t size() const { return count_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // Each copies at most `limit` elements. Empty optional: the elements are of another kind, or (integers) one is
  // outside of int64. Strings are views into the mapping and may hold any bytes.
  std::optional<std::vector<std::string_view>> strings(std::uint64_t limit = UINT64_MAX) const;
  std::optional<std::vector<std::int64_t>> integers(std::uint64_t limit = UINT64_MAX) const;
  std::optional<std::vector<double>> numbers(std::uint64_t limit = UINT64_MAX) const;  // integers too
  std::optional<std::vector<std::uint8_t>> booleans(std::uint64_t limit = UINT64_MAX) const;

 private:
  GgufType element_type_;
  std::uint64_t count_;
  std::span<const std::byte> bytes_;
};

struct GgufValue {
  GgufType type = GgufType::kU8;
  // Signed integers of every width are int64, unsigned ones uint64, F32 and F64 double.
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray> value;

  // Empty when the value is of another kind or, for an integer, doesn't fit.
  std::optional<std::uint64_t> as_u64() const;
  std::optional<std::int64_t> as_i64() const;
  std::optional<double> as_f64() const;  // integers too
  std::optional<bool> as_bool() const;
  std::optional<std::string_view> as_string() const;
  const GgufArray* as_array() const;
};

}  // namespace backplane::formats

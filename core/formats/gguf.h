// GGUF files, versions 2 and 3, little-endian; split sets are opened as one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/container.h"
#include "core/formats/gguf_value.h"

namespace backplane::formats {

struct GgufEntry {
  std::string_view key;  // valid UTF-8
  GgufValue value;
};

class Gguf final : public Container {
 public:
  // Any part of a split set opens the whole set; its metadata is the first part's. Throws Error{kBadFile}.
  static std::shared_ptr<const Gguf> open(const std::filesystem::path& path);

  std::string architecture() const override;  // general.architecture, or empty
  nlohmann::json metadata(std::size_t array_limit) const override;
  std::uint32_t version() const { return version_; }
  std::span<const GgufEntry> entries() const { return entries_; }  // in file order

  // Nullptr when the key is absent.
  const GgufValue* find_value(std::string_view key) const;
  bool has(std::string_view key) const { return find_value(key) != nullptr; }

  // Integers of any width, signed or not, serve as u64 and i64 when they fit; f64 takes any number; nothing else is
  // converted. A value of another kind is Error{kBadFile} naming key and file. An absent key: find_ gives nothing,
  // get_ without a fallback throws.
  std::optional<std::uint64_t> find_u64(std::string_view key) const;
  std::optional<std::int64_t> find_i64(std::string_view key) const;
  std::optional<double> find_f64(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;
  const GgufArray* find_array(std::string_view key) const;

  std::uint64_t get_u64(std::string_view key) const;
  std::int64_t get_i64(std::string_view key) const;
  double get_f64(std::string_view key) const;
  bool get_bool(std::string_view key) const;
  std::string_view get_string(std::string_view key) const;
  const GgufArray& get_array(std::string_view key) const;

  std::uint64_t get_u64(std::string_view key, std::uint64_t fallback) const { return find_u64(key).value_or(fallback); }
  double get_f64(std::string_view key, double fallback) const { return find_f64(key).value_or(fallback); }
  bool get_bool(std::string_view key, bool fallback) const { return find_bool(key).value_or(fallback); }
  std::string_view get_string(std::string_view key, std::string_view fallback) const {
    return find_string(key).value_or(fallback);
  }

  // Whole arrays; an element of another kind is Error{kBadFile} too. Absent: empty.
  std::vector<std::string_view> string_array(std::string_view key) const;
  std::vector<std::int64_t> integer_array(std::string_view key) const;
  std::vector<double> number_array(std::string_view key) const;

 private:
  Gguf(std::filesystem::path path, std::uint32_t version, std::vector<MappedFile> files, std::vector<GgufEntry> entries,
       std::vector<TensorInfo> tensors);
  [[noreturn]] void wrong_kind(std::string_view key, const GgufValue& value, std::string_view wanted) const;
  [[noreturn]] void missing_key(std::string_view key) const;

  std::uint32_t version_;
  std::vector<GgufEntry> entries_;
  std::vector<std::size_t> by_key_;  // indices into entries_ in order of key
};

}  // namespace backplane::formats

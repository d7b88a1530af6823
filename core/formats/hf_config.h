// config.json of a Hugging Face folder, read strictly: what nobody asked for can be listed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/rope_settings.h"

namespace backplane::formats {

// A JSON object and the record of the keys that were asked for. Copies and nested objects share that record; it is not
// meant for several threads at once. A null counts as absent everywhere. Every mismatch of kind throws Error{kBadFile}
// naming the key and the file. Keys of nested objects are named with dots: "rope_parameters.factor".
class HfConfig {
 public:
  static HfConfig from_file(const std::filesystem::path& path);
  // `where` names the text in errors.
  static HfConfig from_text(std::string_view text, std::string where);

  // The same object with nothing read yet.
  HfConfig unread() const;

  // architectures[0], else model_type, else empty.
  std::string architecture() const;
  std::string where() const { return where_; }

  bool has(std::string_view key) const;  // present and not null; doesn't count as reading

  // Without a fallback an absent key throws.
  std::uint64_t u64(std::string_view key) const;
  double f64(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::string string(std::string_view key) const;
  std::uint64_t u64(std::string_view key, std::uint64_t fallback) const { return find_u64(key).value_or(fallback); }
  double f64(std::string_view key, double fallback) const { return find_f64(key).value_or(fallback); }
  bool boolean(std::string_view key, bool fallback) const { return find_boolean(key).value_or(fallback); }
  std::string string(std::string_view key, std::string_view fallback) const;

  std::optional<std::uint64_t> find_u64(std::string_view key) const;
  std::optional<double> find_f64(std::string_view key) const;  // integers too
  std::optional<bool> find_boolean(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;
  std::optional<HfConfig> find_object(std::string_view key) const;
  // Absent: empty. A number alone is a list of one for integers() (eos_token_id is either).
  std::vector<std::uint64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  std::vector<std::string> strings(std::string_view key) const;

  // "dtype", or "torch_dtype" as it was called until 2025, without a leading "torch."; empty when absent.
  std::string dtype() const;

  // Counts these as read: keys that don't change a forward pass, such as "use_cache".
  void ignore(std::initializer_list<std::string_view> keys) const;
  // Keys that are present, not null, and were not read; those of nested objects too once one of theirs was read.
  std::vector<std::string> unread_keys() const;
  std::vector<std::string> keys() const;

  const nlohmann::json& document() const { return *json_; }

 private:
  struct Record;
  HfConfig(std::shared_ptr<const nlohmann::json> json, std::string where, std::string prefix,
           std::shared_ptr<Record> record);
  const nlohmann::json* value(std::string_view key) const;  // nullptr: absent or null; records the key
  std::string full_name(std::string_view key) const;
  [[noreturn]] void wrong_kind(std::string_view key, std::string_view wanted) const;
  [[noreturn]] void missing(std::string_view key) const;

  std::shared_ptr<const nlohmann::json> json_;
  std::string where_;
  std::string prefix_;
  std::shared_ptr<Record> record_;
};

// What an architecture uses where its config says nothing.
struct RopeDefaults {
  double theta = 10000;
  double sliding_theta = 10000;
  double partial_rotary_factor = 1;
};

// Reads rope_parameters (flat, or nested by layer type), else rope_theta, rope_scaling and their relatives. An unknown
// rope type or an unknown key inside a rope object throws Error{kBadFile} naming it.
RopeSet rope_settings_from_config(const HfConfig& config, const RopeDefaults& defaults = {});

}  // namespace backplane::formats

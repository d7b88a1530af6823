#include "core/formats/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/formats/gguf_parser.h"
#include "core/formats/utf8.h"

namespace backplane::formats {
namespace {

using nlohmann::json;

json number_json(double value) { return std::isfinite(value) ? json(value) : json(); }

json array_json(const GgufArray& array, std::size_t limit) {
  const std::uint64_t shown = std::min<std::uint64_t>(array.size(), limit);
  json first = json::array();
  if (const auto texts = array.strings(shown)) {
    for (const std::string_view text : *texts) first.push_back(to_utf8(text));
  } else if (const auto flags = array.booleans(shown)) {
    for (const std::uint8_t flag : *flags) first.push_back(flag != 0);
  } else if (const auto integers = array.integers(shown)) {
    first = *integers;
  } else if (const auto numbers = array.numbers(shown)) {
    for (const double number : *numbers) first.push_back(number_json(number));
  }
  if (shown == array.size()) return first;
  return {{"type", gguf_type_name(array.element_type())}, {"length", array.size()}, {"first", std::move(first)}};
}

json value_json(const GgufValue& value, std::size_t limit) {
  if (const GgufArray* array = value.as_array()) return array_json(*array, limit);
  if (const auto text = value.as_string()) return to_utf8(*text);
  if (const auto flag = value.as_bool()) return *flag;
  if (const auto number = value.as_u64()) return *number;
  if (const auto number = value.as_i64()) return *number;
  return number_json(value.as_f64().value_or(NAN));
}

}  // namespace

Gguf::Gguf(std::filesystem::path path, std::uint32_t version, std::vector<MappedFile> files,
           std::vector<GgufEntry> entries, std::vector<TensorInfo> tensors)
    : Container("gguf", std::move(path), std::move(files), std::move(tensors)),
      version_(version),
      entries_(std::move(entries)),
      by_key_(entries_.size()) {
  std::iota(by_key_.begin(), by_key_.end(), std::size_t{0});
  std::sort(by_key_.begin(), by_key_.end(),
            [&](std::size_t a, std::size_t b) { return entries_[a].key < entries_[b].key; });
}

std::string Gguf::architecture() const { return std::string(get_string("general.architecture", "")); }

json Gguf::metadata(std::size_t array_limit) const {
  json out = json::object();
  for (const GgufEntry& entry : entries_) out[std::string(entry.key)] = value_json(entry.value, array_limit);
  return out;
}

const GgufValue* Gguf::find_value(std::string_view key) const {
  const auto at = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                   [&](std::size_t i, std::string_view wanted) { return entries_[i].key < wanted; });
  return at != by_key_.end() && entries_[*at].key == key ? &entries_[*at].value : nullptr;
}

void Gguf::wrong_kind(std::string_view key, const GgufValue& value, std::string_view wanted) const {
  std::string found(gguf_type_name(value.type));
  if (const GgufArray* array = value.as_array()) found += fmt::format(" of {}", gguf_type_name(array->element_type()));
  if (const auto number = value.as_i64()) found += fmt::format(" ({})", *number);
  throw Error(ErrorCode::kBadFile, fmt::format("key '{}' should be {}, not {}", key, wanted, found), path().string(),
              "convert the model again");
}

void Gguf::missing_key(std::string_view key) const {
  throw Error(ErrorCode::kBadFile, fmt::format("key '{}' is missing", key), path().string(), "convert the model again");
}

std::optional<std::uint64_t> Gguf::find_u64(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (!value) return std::nullopt;
  if (const auto number = value->as_u64()) return number;
  wrong_kind(key, *value, "an unsigned integer");
}

std::optional<std::int64_t> Gguf::find_i64(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (!value) return std::nullopt;
  if (const auto number = value->as_i64()) return number;
  wrong_kind(key, *value, "an integer of at most 63 bits");
}

std::optional<double> Gguf::find_f64(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (!value) return std::nullopt;
  if (const auto number = value->as_f64()) return number;
  wrong_kind(key, *value, "a number");
}

std::optional<bool> Gguf::find_bool(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (!value) return std::nullopt;
  if (const auto flag = value->as_bool()) return flag;
  wrong_kind(key, *value, "a boolean");
}

std::optional<std::string_view> Gguf::find_string(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (!value) return std::nullopt;
  if (const auto text = value->as_string()) return text;
  wrong_kind(key, *value, "a string");
}

const GgufArray* Gguf::find_array(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (!value) return nullptr;
  if (const GgufArray* array = value->as_array()) return array;
  wrong_kind(key, *value, "an array");
}

std::uint64_t Gguf::get_u64(std::string_view key) const {
  const auto found = find_u64(key);
  if (!found) missing_key(key);
  return *found;
}

std::int64_t Gguf::get_i64(std::string_view key) const {
  const auto found = find_i64(key);
  if (!found) missing_key(key);
  return *found;
}

double Gguf::get_f64(std::string_view key) const {
  const auto found = find_f64(key);
  if (!found) missing_key(key);
  return *found;
}

bool Gguf::get_bool(std::string_view key) const {
  const auto found = find_bool(key);
  if (!found) missing_key(key);
  return *found;
}

std::string_view Gguf::get_string(std::string_view key) const {
  const auto found = find_string(key);
  if (!found) missing_key(key);
  return *found;
}

const GgufArray& Gguf::get_array(std::string_view key) const {
  const GgufArray* found = find_array(key);
  if (!found) missing_key(key);
  return *found;
}

std::vector<std::string_view> Gguf::string_array(std::string_view key) const {
  const GgufArray* array = find_array(key);
  if (!array) return {};
  if (auto texts = array->strings()) return std::move(*texts);
  wrong_kind(key, *find_value(key), "an array of strings");
}

std::vector<std::int64_t> Gguf::integer_array(std::string_view key) const {
  const GgufArray* array = find_array(key);
  if (!array) return {};
  if (auto integers = array->integers()) return std::move(*integers);
  wrong_kind(key, *find_value(key), "an array of integers");
}

std::vector<double> Gguf::number_array(std::string_view key) const {
  const GgufArray* array = find_array(key);
  if (!array) return {};
  if (auto numbers = array->numbers()) return std::move(*numbers);
  wrong_kind(key, *find_value(key), "an array of numbers");
}

}  // namespace backplane::formats

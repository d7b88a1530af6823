#include "tools/openai/openai_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/text/utf8.h"
#include "tools/json_lines.h"
#include "tools/openai/openai_error.h"

namespace backplane::tools::openai {
namespace {

constexpr std::size_t kShown = 40;  // characters of a wrong value

}  // namespace

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

std::string Fields::name(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void Fields::refuse(std::string_view key, std::string_view what) const {
  throw ApiError(400, fmt::format("{} {}", name(key), what), name(key));
}

const Json* Fields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::flag(const char* key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) refuse(key, fmt::format("must be true or false, not {}", shown(*value)));
  return value->get<bool>();
}

std::optional<std::int64_t> Fields::integer(const char* key, std::int64_t low, std::int64_t high) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  const auto number = as_integer(*value);
  if (!number || *number < low || *number > high) {
    refuse(key, fmt::format("must be a whole number from {} to {}, not {}", low, high, shown(*value)));
  }
  return number;
}

std::optional<double> Fields::number(const char* key, double low, double high) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= low && number <= high)) {
    const std::string range = std::isfinite(high) ? fmt::format("from {} to {}", low, high) : fmt::format(">= {}", low);
    refuse(key, fmt::format("must be a number {}, not {}", range, shown(*value)));
  }
  return number;
}

std::optional<std::string> Fields::string(const char* key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_string()) refuse(key, fmt::format("must be a string, not {}", shown(*value)));
  return value->get<std::string>();
}

const Json* Fields::object(const char* key) const {
  const Json* value = find(key);
  if (value && !value->is_object()) refuse(key, fmt::format("must be an object, not {}", shown(*value)));
  return value;
}

const Json* Fields::array(const char* key) const {
  const Json* value = find(key);
  if (value && !value->is_array()) refuse(key, fmt::format("must be a list, not {}", shown(*value)));
  return value;
}

std::optional<std::int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > INT64_MAX) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::abs(number) > 9007199254740992.0 || number != std::trunc(number)) return std::nullopt;  // 2^53
  return static_cast<std::int64_t>(number);
}

std::string shown(const Json& value) {
  if (value.is_structured() && value.size() > kShown) return value.is_array() ? "a long list" : "a large object";
  std::string text = json_text(value);
  if (text.size() <= kShown) return text;
  text.resize(kShown);
  text.resize(text.size() - text::incomplete_tail(text));
  return text + "...";
}

}  // namespace backplane::tools::openai

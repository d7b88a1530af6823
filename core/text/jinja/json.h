// JSON in and out.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/text/jinja/value.h"

namespace backplane::text::jinja {

Value value_of_json(const nlohmann::ordered_json& json);

// As Python's json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool multiline = false;
  std::string indent;  // one level; used if multiline
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace backplane::text::jinja

// Python's string formatting.
#pragma once

#include <string>
#include <string_view>

#include "core/text/jinja/arguments.h"
#include "core/text/jinja/value.h"

namespace backplane::text::jinja {

// format % arguments. Requires: `format` is a string; where it is a safe one, what is put in is escaped.
std::string format_percent(const Value& format, const Value& arguments);

// format.format(*positional, **named), with the sandbox's rules for attributes.
std::string format_braces(std::string_view format, const Arguments& arguments);

// What stands between a placeholder's mark and its type.
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // '<' '>' '^' '=' or 0 for the type's own
  char sign = '-';
  bool alternate = false;
  std::int64_t width = 0;
  char group = 0;               // ',' or '_' between thousands, or 0
  std::int64_t precision = -1;  // -1: not given
  char type = 0;
};

FormatSpec parse_format_spec(std::string_view text);

// A number or string under a specification; Fault if they don't go together.
std::string format_value(const Value& value, const FormatSpec& spec);

}  // namespace backplane::text::jinja

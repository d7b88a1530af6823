// The built-in filters, tests, methods and global functions, by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/text/jinja/objects.h"
#include "core/text/jinja/unicode.h"

namespace backplane::text::jinja {

using NativeTable = std::unordered_map<std::string_view, NativeCode>;

// Null if there is none of that name. A filter or test gets the value it is applied to as `self`.
NativeCode find_filter(std::string_view name);
NativeCode find_test(std::string_view name);

// The parts of the filter table.
const NativeTable& text_filters();
const NativeTable& sequence_filters();

const NativeTable& string_methods();

// A bound method of a string, list, tuple or dict.
std::optional<Value> find_method(const Value& self, const std::string& name);

// range, dict, namespace and so on.
std::optional<Value> find_global(const std::string& name);

// --- What filters and methods share. Sizes are charged before they are made. ---------------------------------------

// Replaces at most `count` times, negative for all.
std::string replace_text(std::string_view text, std::string_view old, std::string_view with, Int count);
// The code points of a text, of which it takes the memory into account.
std::vector<std::string_view> charged_code_points(std::string_view text);
std::string escape_html(std::string_view text);
std::string center_text(std::string_view text, Int width, std::string_view fill);
// `chars` may be null or None, for white space.
std::string_view strip_charged(std::string_view text, Side side, const Value* chars);

}  // namespace backplane::text::jinja

// Python's operators on values. Each throws Fault where Python raises.
#pragma once

#include <string>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/value.h"

namespace backplane::text::jinja {

Value apply_binary(BinaryOp op, const Value& a, const Value& b);
Value negate(const Value& value);
Value positive(const Value& value);

bool compare(CompareOp op, const Value& a, const Value& b);
bool less(const Value& a, const Value& b);  // a < b
bool contains(const Value& container, const Value& item);

// object.name and object[key] as Jinja's immutable sandbox has them: each falls back to the other, names beginning
// with "__" and methods that change an object give an undefined value that says so, and what isn't there is undefined.
Value get_attribute(const Value& object, const std::string& name);
Value get_item(const Value& object, const Value& key);
// Bounds are None where left out.
Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step);

// Of a value with itself added, for sum(): Fault unless both are numbers or sequences of one kind.
inline Value add(const Value& a, const Value& b) { return apply_binary(BinaryOp::kAdd, a, b); }

}  // namespace backplane::text::jinja

#include "core/text/jinja/arguments.h"

#include <algorithm>

#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {

Bound::Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> parameters,
             std::size_t required)
    : function_(function), values_(parameters.size(), nullptr) {
  std::string name(function);
  if (arguments.positional.size() > parameters.size()) {
    fail(name + "() takes at most " + std::to_string(parameters.size()) + " arguments (" +
         std::to_string(arguments.positional.size()) + " given)");
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [keyword, value] : arguments.named) {
    auto found = std::find(parameters.begin(), parameters.end(), keyword);
    if (found == parameters.end()) fail(name + "() got an unexpected keyword argument '" + keyword + "'");
    const Value*& slot = values_[static_cast<std::size_t>(found - parameters.begin())];
    if (slot) fail(name + "() got multiple values for argument '" + keyword + "'");
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!values_[i]) fail(name + "() missing required argument '" + std::string(parameters.begin()[i]) + "'");
  }
}

const Value& Bound::at(std::size_t parameter) const {
  static const Value absent = Value::undefined("the argument is undefined");
  return values_[parameter] ? *values_[parameter] : absent;
}

Int Bound::integer(std::size_t parameter, Int otherwise) const {
  const Value* value = values_[parameter];
  if (!value) return otherwise;
  if (value->is_undefined()) fail(value->why_undefined());
  if (!value->is_integral()) {
    fail(std::string(function_) + "(): '" + type_name(*value) + "' object cannot be interpreted as an integer");
  }
  return value->as_int();
}

bool Bound::boolean(std::size_t parameter, bool otherwise) const {
  return values_[parameter] ? truthy(*values_[parameter]) : otherwise;
}

std::string Bound::string(std::size_t parameter, std::string_view otherwise) const {
  const Value* value = values_[parameter];
  if (!value) return std::string(otherwise);
  if (!value->is_string()) fail(std::string(function_) + "() argument must be str, not " + type_name(*value));
  return value->as_string();
}

std::int64_t clamp_int(Int value, std::int64_t low, std::int64_t high) {
  return static_cast<std::int64_t>(std::clamp(value, Int{low}, Int{high}));
}

}  // namespace backplane::text::jinja

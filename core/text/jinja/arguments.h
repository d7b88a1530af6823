// The arguments of a call, and their binding to a built-in's parameters.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/jinja/value.h"

namespace backplane::text::jinja {

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Binds as a Python function of these parameters would, of which the first `required` have no default. Faults of the
// binding name the function. `arguments` must outlive it.
class Bound {
 public:
  Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> parameters,
        std::size_t required = 0);

  const Value* get(std::size_t parameter) const { return values_[parameter]; }  // null if not given
  bool has(std::size_t parameter) const { return values_[parameter] != nullptr; }
  const Value& at(std::size_t parameter) const;  // Undefined if not given
  bool is_none(std::size_t parameter) const { return !has(parameter) || values_[parameter]->is_none(); }

  // With a default for what isn't given; Fault if what is given has another type.
  Int integer(std::size_t parameter, Int otherwise) const;
  bool boolean(std::size_t parameter, bool otherwise) const;  // truth of whatever is given
  std::string string(std::size_t parameter, std::string_view otherwise) const;

 private:
  std::string_view function_;
  std::vector<const Value*> values_;
};

// An int argument brought into [low, high].
std::int64_t clamp_int(Int value, std::int64_t low, std::int64_t high);

}  // namespace backplane::text::jinja

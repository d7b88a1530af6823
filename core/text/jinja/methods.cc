// The methods of lists, tuples and dicts that don't change their object, and the search among all methods.
#include <algorithm>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

// --- Lists and tuples ------------------------------------------------------------------------------------------

Value list_index(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("index", arguments, {"value"}, 1);
  const Values& items = self.items();
  auto found = std::find_if(items.begin(), items.end(), [&](const Value& v) { return equal(v, bound.at(0)); });
  if (found == items.end()) fail(repr(bound.at(0)) + " is not in list");
  return Value::integer(found - items.begin());
}

Value list_count(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("count", arguments, {"value"}, 1);
  const Values& items = self.items();
  return Value::integer(
      std::count_if(items.begin(), items.end(), [&](const Value& v) { return equal(v, bound.at(0)); }));
}

Value copy_self(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("copy", arguments, {});
  return self;
}

// --- Dicts -----------------------------------------------------------------------------------------------------

Value dict_get(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("get", arguments, {"key", "default"}, 1);
  const Value* found = self.as_dict().find(bound.at(0));
  if (found) return *found;
  return bound.has(1) ? bound.at(1) : Value();
}

Value dict_keys(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("keys", arguments, {});
  return Value::object(std::make_shared<View>("dict_keys", Elements(self).all()));
}

Value dict_values(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("values", arguments, {});
  Values values;
  charge_steps(self.as_dict().size());
  for (const auto& entry : self.as_dict().entries()) values.push_back(entry.second);
  return Value::object(std::make_shared<View>("dict_values", std::move(values)));
}

Value dict_items(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("items", arguments, {});
  Values pairs;
  for (const auto& [key, value] : self.as_dict().entries()) pairs.push_back(Value::tuple({key, value}));
  return Value::object(std::make_shared<View>("dict_items", std::move(pairs)));
}

const NativeTable& dict_methods() {
  static const NativeTable table = {
      {"get", dict_get}, {"keys", dict_keys}, {"values", dict_values}, {"items", dict_items}, {"copy", copy_self}};
  return table;
}

const NativeTable& list_methods() {
  static const NativeTable table = {{"index", list_index}, {"count", list_count}, {"copy", copy_self}};
  return table;
}

}  // namespace

std::optional<Value> find_method(const Value& self, const std::string& name) {
  const NativeTable* table = self.is_string()       ? &string_methods()
                             : self.is_sequence()   ? &list_methods()
                             : self.is(Kind::kDict) ? &dict_methods()
                                                    : nullptr;
  if (!table || (self.is(Kind::kTuple) && name == "copy")) return std::nullopt;
  auto found = table->find(name);
  if (found == table->end()) return std::nullopt;
  return Value::object(std::make_shared<Native>(name, found->second, self));
}

}  // namespace backplane::text::jinja

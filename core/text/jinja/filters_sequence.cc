// Filters on sequences and mappings.
#include <algorithm>
#include <functional>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/interpreter.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

using ValueMap = std::function<Value(const Value&)>;

Value fold_case(const Value& value) { return value.is_string() ? Value::string(to_lower(value.as_string())) : value; }

// "user.names.0" as the keys to follow one after the other.
Values attribute_path(const Value& attribute) {
  if (attribute.is_none() || attribute.is_undefined()) return {};
  if (!attribute.is_string()) return {attribute};
  Values path;
  std::string_view rest = attribute.as_string();
  while (true) {
    std::size_t dot = std::min(rest.find('.'), rest.size());
    std::string part(rest.substr(0, dot));
    bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    path.push_back(number ? Value::integer(*parse_int(part)) : Value::string(part));
    if (dot == rest.size()) return path;
    rest.remove_prefix(dot + 1);
  }
}

// What makes the key of an element from an attribute path.
ValueMap attribute_getter(const Value& attribute, bool folds_case, const Value* otherwise = nullptr) {
  return [path = attribute_path(attribute), folds_case, otherwise](const Value& item) {
    Value value = item;
    for (const Value& key : path) {
      value = get_item(value, key);
      if (otherwise && !otherwise->is_none() && value.is_undefined()) value = *otherwise;
    }
    return folds_case ? fold_case(value) : value;
  };
}

using Keyed = std::pair<Value, Value>;  // sort key, element

void sort_keyed(std::vector<Keyed>& keyed, bool reverse) {
  auto before = [](const Keyed& a, const Keyed& b) { return less(a.first, b.first); };
  // Python reverses the order but keeps equal elements as they were.
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(), before);
  if (reverse) std::reverse(keyed.begin(), keyed.end());
}

Values second_of(std::vector<Keyed> keyed) {
  Values out;
  for (auto& entry : keyed) out.push_back(std::move(entry.second));
  return out;
}

Value filter_sort(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  bool folds_case = !bound.boolean(1, false);
  std::vector<ValueMap> getters;
  if (!bound.is_none(2) && bound.at(2).is_string()) {
    std::string_view rest = bound.at(2).as_string();
    for (std::size_t comma = 0; comma != std::string_view::npos;) {
      comma = rest.find(',');
      getters.push_back(attribute_getter(Value::string(std::string(rest.substr(0, comma))), folds_case));
      if (comma != std::string_view::npos) rest.remove_prefix(comma + 1);
    }
  } else {
    getters.push_back(attribute_getter(bound.has(2) ? bound.at(2) : Value(), folds_case));
  }
  std::vector<Keyed> keyed;
  for (const Value& item : Elements(self)) {
    Values keys;
    for (const auto& getter : getters) keys.push_back(getter(item));
    keyed.emplace_back(Value::list(std::move(keys)), item);
  }
  sort_keyed(keyed, bound.boolean(0, false));
  return Value::list(second_of(std::move(keyed)));
}

Value filter_dictsort(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  std::string by = bound.string(1, "key");
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (self.is_undefined()) fail(self.why_undefined());
  if (!self.is(Kind::kDict)) fail(described_type(self) + " has no attribute 'items'");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.as_dict().entries()) {
    const Value& sorted_by = by == "key" ? key : value;
    keyed.emplace_back(bound.boolean(0, false) ? sorted_by : fold_case(sorted_by), Value::tuple({key, value}));
  }
  sort_keyed(keyed, bound.boolean(2, false));
  return Value::list(second_of(std::move(keyed)));
}

// What groupby gives for each group: a pair that also has names.
class Group final : public Object {
 public:
  Group(Value grouper, Value list) : pair_(Value::tuple({std::move(grouper), std::move(list)})) {}
  std::string type_name() const override { return "_GroupTuple"; }
  std::string repr() override { return jinja::repr(pair_); }
  std::optional<std::size_t> length() const override { return 2; }
  bool iterable() const override { return true; }
  Values take_elements() override { return pair_.items(); }
  bool indexable() const override { return true; }
  std::optional<Value> element(const Value& key) override {
    Value found = get_item(pair_, key);
    return found.is_undefined() ? std::nullopt : std::optional(found);
  }
  std::optional<Value> attribute(const std::string& name, const Value&) override {
    if (name == "grouper") return pair_.items()[0];
    if (name == "list") return pair_.items()[1];
    return std::nullopt;
  }
  int depth() const override { return pair_.depth(); }

 private:
  Value pair_;
};

Value filter_groupby(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  bool folds_case = !bound.boolean(2, false);
  auto getter = attribute_getter(bound.at(0), folds_case, bound.get(1));
  auto shown = attribute_getter(bound.at(0), false, bound.get(1));
  std::vector<Keyed> keyed;
  for (const Value& item : Elements(self)) keyed.emplace_back(getter(item), item);
  sort_keyed(keyed, false);
  Values groups;
  for (std::size_t start = 0; start < keyed.size();) {
    std::size_t end = start;
    Values members;
    while (end < keyed.size() && equal(keyed[end].first, keyed[start].first)) members.push_back(keyed[end++].second);
    if (end == start) members.push_back(keyed[end++].second);  // NaN isn't equal to itself
    groups.push_back(Value::object(std::make_shared<Group>(shown(members[0]), Value::list(members))));
    start = end;
  }
  return Value::list(std::move(groups));
}

Value filter_unique(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  auto getter = attribute_getter(bound.has(1) ? bound.at(1) : Value(), !bound.boolean(0, false));
  Dict seen;
  Values out;
  for (const Value& item : Elements(self)) {
    Value key = getter(item);
    if (seen.find(key)) continue;
    charge_bytes(sizeof(Dict::Entry));
    seen.set(key, Value());
    out.push_back(item);
  }
  return make_generator(std::move(out));
}

template <bool largest>
Value filter_extreme(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("min or max", arguments, {"case_sensitive", "attribute"});
  auto getter = attribute_getter(bound.has(1) ? bound.at(1) : Value(), !bound.boolean(0, false));
  Elements elements(self);
  if (elements.all().empty()) return Value::undefined("No aggregated item, sequence was empty.");
  Value best = elements.all()[0];
  Value best_key = getter(best);
  for (std::size_t i = 1; i < elements.all().size(); ++i) {
    Value key = getter(elements.all()[i]);
    if (!(largest ? less(best_key, key) : less(key, best_key))) continue;
    best = elements.all()[i];
    best_key = std::move(key);
  }
  return best;
}

Value filter_sum(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("sum", arguments, {"attribute", "start"});
  auto getter = attribute_getter(bound.has(0) ? bound.at(0) : Value(), false);
  Value total = bound.has(1) ? bound.at(1) : Value::integer(0);
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : Elements(self)) total = add(total, getter(item));
  return total;
}

Value filter_join(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("join", arguments, {"d", "attribute"});
  std::string separator = bound.has(0) ? to_text(bound.at(0)) : "";
  auto getter = attribute_getter(bound.has(1) ? bound.at(1) : Value(), false);
  std::string out;
  bool first = true;
  for (const Value& item : Elements(self)) {
    if (!first) append_charged(out, separator);
    append_text(out, getter(item));
    first = false;
  }
  return Value::string(std::move(out));
}

Value filter_first(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("first", arguments, {});
  auto* iterator = self.is(Kind::kObject) ? dynamic_cast<Iterator*>(self.as_object().get()) : nullptr;
  std::optional<Value> first;
  if (iterator) {
    first = iterator->take_first();
  } else if (self.is_sequence()) {
    if (!self.items().empty()) first = self.items().front();
  } else {
    Elements elements(self);
    if (!elements.all().empty()) first = elements.all().front();
  }
  return first ? *first : Value::undefined("No first item, sequence was empty.");
}

// What Python's reversed() takes: not iterators.
Values reversed(const Value& value) {
  bool iterator = value.is(Kind::kObject) && !value.as_object()->length();
  if (iterator) fail("'" + type_name(value) + "' object is not reversible");
  Elements elements(value);
  charge_bytes(elements.all().size() * sizeof(Value));
  return Values(elements.all().rbegin(), elements.all().rend());
}

Value filter_last(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("last", arguments, {});
  Values items = reversed(self);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.front();
}

Value filter_reverse(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("reverse", arguments, {});
  if (self.is_string()) {
    std::string out;
    std::vector<std::string_view> letters = charged_code_points(self.as_string());
    for (auto letter = letters.rbegin(); letter != letters.rend(); ++letter) out += *letter;
    return Value::string(std::move(out), self.is_safe());
  }
  if (self.is(Kind::kObject) && !self.as_object()->length()) {
    Elements elements(self);
    return Value::list(Values(elements.all().rbegin(), elements.all().rend()));
  }
  return Value::object(std::make_shared<Iterator>("list_reverseiterator", reversed(self)));
}

Value filter_list(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("list", arguments, {});
  return self.is(Kind::kList) ? self : Value::list(Elements(self).all());
}

Value filter_items(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("items", arguments, {});
  if (!self.is_undefined() && !self.is(Kind::kDict)) fail("Can only get item pairs from a mapping.");
  Values pairs;
  if (self.is(Kind::kDict)) {
    for (const auto& [key, value] : self.as_dict().entries()) pairs.push_back(Value::tuple({key, value}));
  }
  return make_generator(std::move(pairs));
}

Value filter_batch(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  Int size = bound.integer(0, 1);
  Values batches;
  Values line;
  for (const Value& item : Elements(self)) {
    if (static_cast<Int>(line.size()) == size) batches.push_back(Value::list(std::exchange(line, {})));
    line.push_back(item);
  }
  if (!line.empty()) {
    Int missing = size - static_cast<Int>(line.size());
    if (!bound.is_none(1) && missing > 0) {
      auto count = static_cast<std::uint64_t>(clamp_int(missing, 0, INT32_MAX));
      charge_bytes(count * sizeof(Value));
      line.insert(line.end(), count, bound.at(1));
    }
    batches.push_back(Value::list(std::move(line)));
  }
  return make_generator(std::move(batches));
}

Value filter_slice(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  Int slices = bound.integer(0, 1);
  if (slices == 0) fail("integer division or modulo by zero");
  Elements elements(self);
  Int count = static_cast<Int>(elements.all().size());
  Values out;
  auto next = elements.begin();
  for (Int i = 0; i < slices; ++i) {
    charge_steps(1);
    bool longer = i < count % slices;
    Values part(next, next + static_cast<std::ptrdiff_t>(count / slices + (longer ? 1 : 0)));
    next += static_cast<std::ptrdiff_t>(part.size());
    if (!bound.is_none(1) && !longer) part.push_back(bound.at(1));
    charge_bytes(sizeof(Value));
    out.push_back(Value::list(std::move(part)));
  }
  return make_generator(std::move(out));
}

// The arguments behind the first `count`.
Arguments without_first(const Arguments& arguments, std::size_t count) {
  Arguments rest;
  auto skipped = static_cast<std::ptrdiff_t>(std::min(count, arguments.positional.size()));
  rest.positional.assign(arguments.positional.begin() + skipped, arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

Value filter_map(Interpreter& in, const Value& self, const Arguments& arguments) {
  Values out;
  if (!truthy(self)) return make_generator({});  // None too
  if (arguments.positional.empty() && !arguments.named.empty()) {
    Bound bound("map", arguments, {"attribute", "default"}, 1);
    auto getter = attribute_getter(bound.at(0), false, bound.get(1));
    for (const Value& item : Elements(self)) out.push_back(getter(item));
    return make_generator(std::move(out));
  }
  if (arguments.positional.empty()) fail("map requires a filter argument");
  std::string name = to_text(arguments.positional[0]);
  NativeCode filter = find_filter(name);
  if (!filter) fail("No filter named '" + name + "'.");
  Arguments rest = without_first(arguments, 1);
  for (const Value& item : Elements(self)) out.push_back(filter(in, item, rest));
  return make_generator(std::move(out));
}

// select, reject, selectattr, rejectattr: elements whose value (or attribute) passes a test, or is true.
template <bool keeps, bool by_attribute>
Value filter_select(Interpreter& in, const Value& self, const Arguments& arguments) {
  constexpr std::size_t kTest = by_attribute ? 1 : 0;
  if (!truthy(self)) return make_generator({});  // None too
  if (by_attribute && arguments.positional.empty()) fail("Missing parameter for attribute name");
  auto getter = attribute_getter(by_attribute ? arguments.positional[0] : Value(), false);
  NativeCode test = nullptr;
  if (arguments.positional.size() > kTest) {
    std::string name = to_text(arguments.positional[kTest]);
    test = find_test(name);
    if (!test) fail("No test named '" + name + "'.");
  }
  Arguments rest = without_first(arguments, kTest + 1);
  Values out;
  for (const Value& item : Elements(self)) {
    Value value = getter(item);
    bool passes = truthy(test ? test(in, value, rest) : value);
    if (passes == keeps) out.push_back(item);
  }
  return make_generator(std::move(out));
}

}  // namespace

const NativeTable& sequence_filters() {
  static const NativeTable table = {
      {"batch", filter_batch},
      {"dictsort", filter_dictsort},
      {"first", filter_first},
      {"groupby", filter_groupby},
      {"items", filter_items},
      {"join", filter_join},
      {"last", filter_last},
      {"list", filter_list},
      {"map", filter_map},
      {"max", filter_extreme<true>},
      {"min", filter_extreme<false>},
      {"reject", filter_select<false, false>},
      {"rejectattr", filter_select<false, true>},
      {"reverse", filter_reverse},
      {"select", filter_select<true, false>},
      {"selectattr", filter_select<true, true>},
      {"slice", filter_slice},
      {"sort", filter_sort},
      {"sum", filter_sum},
      {"unique", filter_unique},
  };
  return table;
}

}  // namespace backplane::text::jinja

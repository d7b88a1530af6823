// The values of a template: Python's, as far as Jinja shows them. A Value is cheap to copy; what it points to never
// changes, except for an Object. Containers are therefore trees of bounded depth (kMaxValueDepth).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/text/jinja/limits.h"
#include "core/text/jinja/number.h"

namespace backplane::text::jinja {

class Value;
class Dict;
class Object;
using Values = std::vector<Value>;

struct Text {
  std::string text;
  bool safe;  // markupsafe.Markup: adding a plain string to it escapes that one
};
struct Sequence;
struct Missing {
  std::string why;  // what an operation on the undefined value says
};

enum class Kind { kNone, kUndefined, kBool, kInt, kFloat, kString, kList, kTuple, kDict, kObject };

class Value {
 public:
  Value() = default;  // None
  static Value undefined(std::string why);
  static Value boolean(bool value);
  static Value integer(Int value);
  static Value real(double value);
  static Value string(std::string text, bool safe = false);
  static Value list(Values items);
  static Value tuple(Values items);
  static Value dict(Dict items);
  static Value object(std::shared_ptr<Object> object);

  Kind kind() const;
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_string() const { return is(Kind::kString); }
  bool is_undefined() const { return is(Kind::kUndefined); }
  bool is_none() const { return is(Kind::kNone); }
  bool is_integral() const { return is(Kind::kInt) || is(Kind::kBool); }  // a bool is an int
  bool is_number() const { return is_integral() || is(Kind::kFloat); }
  bool is_sequence() const { return is(Kind::kList) || is(Kind::kTuple); }

  // Each requires the kind it is named for.
  bool as_bool() const { return std::get<bool>(data_); }
  Int as_int() const { return is(Kind::kBool) ? Int{as_bool()} : std::get<Int>(data_); }  // an int or a bool
  double as_float() const;                                                                // any number
  const std::string& as_string() const { return std::get<TextPtr>(data_)->text; }
  bool is_safe() const { return is_string() && std::get<TextPtr>(data_)->safe; }
  const Values& items() const;  // a list or tuple
  const Dict& as_dict() const { return *std::get<DictPtr>(data_); }
  const std::shared_ptr<Object>& as_object() const { return std::get<ObjectPtr>(data_); }
  const std::string& why_undefined() const { return std::get<MissingPtr>(data_)->why; }

  bool same_as(const Value& other) const;  // Python's `is`
  int depth() const;                       // 0 for what holds no other values

 private:
  using TextPtr = std::shared_ptr<const Text>;
  using SequencePtr = std::shared_ptr<const Sequence>;
  using DictPtr = std::shared_ptr<const Dict>;
  using ObjectPtr = std::shared_ptr<Object>;
  using MissingPtr = std::shared_ptr<const Missing>;

  std::variant<std::monostate, MissingPtr, bool, Int, double, TextPtr, SequencePtr, DictPtr, ObjectPtr> data_;
};

struct Sequence {
  Values items;
  bool tuple;
  int depth;
};

// Keeps the order of insertion. Keys are hashable values; 1, 1.0 and true are the same key, as in Python.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  void set(Value key, Value value);
  void erase(std::string_view key);
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  const std::vector<Entry>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

 private:
  std::optional<std::size_t> position(const Value& key, std::size_t hash) const;
  void index_entries();

  std::vector<Entry> entries_;
  std::unordered_multimap<std::size_t, std::size_t> index_;  // hash to position; empty while there are few entries
  int depth_ = 1;
};

// 1 + the deepest of `items`; throws Fault beyond kMaxValueDepth.
int depth_above(const Values& items);

// The elements of something iterable (else Fault, as Python words it); keeps them alive.
class Elements {
 public:
  explicit Elements(const Value& value);
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;

  const Values& all() const { return *all_; }
  auto begin() const { return all_->begin(); }
  auto end() const { return all_->end(); }

 private:
  Value keep_;
  Values made_;
  const Values* all_ = &made_;
};

std::string type_name(const Value& value);       // Python's: "str", "NoneType", ...
std::string described_type(const Value& value);  // as Jinja's messages have it: "'str object'", "'None'"
bool truthy(const Value& value);
bool is_iterable(const Value& value);
std::optional<std::size_t> length_if_any(const Value& value);
std::size_t length(const Value& value);  // Fault if it has none

std::string to_text(const Value& value);  // Python's str()
void append_text(std::string& out, const Value& value);
std::string repr(const Value& value);

bool equal(const Value& a, const Value& b);
std::size_t hash_of(const Value& value);  // Fault if unhashable

}  // namespace backplane::text::jinja

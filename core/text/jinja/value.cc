#include "core/text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/objects.h"
#include "core/text/jinja/template_error.h"
#include "core/text/jinja/unicode.h"

namespace backplane::text::jinja {
namespace {

constexpr std::size_t kIndexFrom = 9;      // entries from which a dict is searched by hash
constexpr std::size_t kBytesOfValue = 64;  // charged for a heap object beside its contents
constexpr std::size_t kBytesOfEntry = 128;

int checked_depth(int depth) {
  if (depth > kMaxValueDepth) fail("values are nested too deeply");
  return depth;
}

void append_string_repr(std::string& out, std::string_view text) {
  bool has_single = text.find('\'') != std::string_view::npos;
  char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  auto hex = [&](char32_t c, int digits) {
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out.push_back("0123456789abcdef"[(c >> shift) & 15]);
  };
  charge_bytes(text.size() + 2);
  out.push_back(quote);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t start = at;
    char32_t c = next_code_point(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c > 0x10ffff || is_printable(c)) {
      out.append(text.substr(start, at - start));
    } else if (c < 0x100) {
      out += "\\x";
      hex(c, 2);
    } else if (c < 0x10000) {
      out += "\\u";
      hex(c, 4);
    } else {
      out += "\\U";
      hex(c, 8);
    }
  }
  out.push_back(quote);
}

void append_repr(std::string& out, const Value& value, int depth);

void append_sequence_repr(std::string& out, const Value& value, int depth) {
  bool tuple = value.is(Kind::kTuple);
  append_charged(out, tuple ? "(" : "[");
  const char* separator = "";
  for (const Value& item : value.items()) {
    append_charged(out, separator);
    append_repr(out, item, depth + 1);
    separator = ", ";
  }
  if (tuple && value.items().size() == 1) out += ",";
  append_charged(out, tuple ? ")" : "]");
}

void append_repr(std::string& out, const Value& value, int depth) {
  charge_steps(1);
  // Only namespaces can hold themselves; their cycles end here.
  if (depth > kMaxValueDepth) fail("maximum recursion depth exceeded while getting the repr of an object");
  switch (value.kind()) {
    case Kind::kString:
      if (value.is_safe()) out += "Markup(";
      append_string_repr(out, value.as_string());
      if (value.is_safe()) out += ")";
      return;
    case Kind::kList:
    case Kind::kTuple:
      return append_sequence_repr(out, value, depth);
    case Kind::kDict: {
      append_charged(out, "{");
      const char* separator = "";
      for (const auto& [key, item] : value.as_dict().entries()) {
        append_charged(out, separator);
        append_repr(out, key, depth + 1);
        append_charged(out, ": ");
        append_repr(out, item, depth + 1);
        separator = ", ";
      }
      return append_charged(out, "}");
    }
    case Kind::kUndefined:
      return append_charged(out, "Undefined");
    case Kind::kObject: {
      // repr() of an object has no depth parameter: count the nesting of objects per thread.
      thread_local int nesting = 0;
      struct Nested {
        Nested() { ++nesting; }
        ~Nested() { --nesting; }
      } nested;
      if (nesting > kMaxValueDepth / 4) fail("maximum recursion depth exceeded while getting the repr of an object");
      return append_charged(out, value.as_object()->repr());
    }
    default:
      return append_text(out, value);
  }
}

bool equal_items(const Values& a, const Values& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
    const Value* other = b.find(entry.first);
    return other && equal(entry.second, *other);
  });
}

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  if (a.is(Kind::kFloat) && b.is(Kind::kFloat)) return a.as_float() == b.as_float();
  double real = a.is(Kind::kFloat) ? a.as_float() : b.as_float();
  Int whole = a.is(Kind::kFloat) ? b.as_int() : a.as_int();
  return std::abs(real) < 1.7e38 && std::trunc(real) == real && static_cast<Int>(real) == whole;
}

std::size_t mix(std::size_t seed, std::size_t more) {
  return seed ^ (more + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2));
}

}  // namespace

Value Value::undefined(std::string why) {
  charge_bytes(why.size() + kBytesOfValue);
  Value v;
  v.data_ = std::make_shared<const Missing>(Missing{std::move(why)});
  return v;
}

Value Value::boolean(bool value) {
  Value v;
  v.data_ = value;
  return v;
}

Value Value::integer(Int value) {
  Value v;
  v.data_ = value;
  return v;
}

Value Value::real(double value) {
  Value v;
  v.data_ = value;
  return v;
}

Value Value::string(std::string text, bool safe) {
  charge_bytes(text.size() + kBytesOfValue);
  Value v;
  v.data_ = std::make_shared<const Text>(Text{std::move(text), safe});
  return v;
}

Value Value::list(Values items) {
  charge_bytes(items.size() * sizeof(Value) + kBytesOfValue);
  int depth = depth_above(items);
  Value v;
  v.data_ = std::make_shared<const Sequence>(Sequence{std::move(items), false, depth});
  return v;
}

Value Value::tuple(Values items) {
  charge_bytes(items.size() * sizeof(Value) + kBytesOfValue);
  int depth = depth_above(items);
  Value v;
  v.data_ = std::make_shared<const Sequence>(Sequence{std::move(items), true, depth});
  return v;
}

Value Value::dict(Dict items) {
  charge_bytes(items.size() * kBytesOfEntry + kBytesOfValue);
  Value v;
  v.data_ = std::make_shared<const Dict>(std::move(items));
  return v;
}

Value Value::object(std::shared_ptr<Object> object) {
  charge_bytes(kBytesOfEntry);
  Value v;
  v.data_ = std::move(object);
  return v;
}

Kind Value::kind() const {
  static constexpr Kind kKinds[] = {Kind::kNone,   Kind::kUndefined, Kind::kBool, Kind::kInt,   Kind::kFloat,
                                    Kind::kString, Kind::kList,      Kind::kDict, Kind::kObject};
  Kind kind = kKinds[data_.index()];
  return kind == Kind::kList && std::get<SequencePtr>(data_)->tuple ? Kind::kTuple : kind;
}

double Value::as_float() const { return is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(as_int()); }

const Values& Value::items() const { return std::get<SequencePtr>(data_)->items; }

bool Value::same_as(const Value& other) const {
  if (is_undefined() || other.is_undefined()) return is_undefined() && data_ == other.data_;
  return data_ == other.data_;
}

int Value::depth() const {
  if (is_sequence()) return std::get<SequencePtr>(data_)->depth;
  if (is(Kind::kDict)) return as_dict().depth();
  return is(Kind::kObject) ? as_object()->depth() : 0;
}

int depth_above(const Values& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  return checked_depth(deepest + 1);
}

void Dict::set(Value key, Value value) {
  std::size_t hash = hash_of(key);
  depth_ = checked_depth(std::max({depth_, key.depth() + 1, value.depth() + 1}));
  if (auto at = position(key, hash)) {
    entries_[*at].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (!index_.empty()) {
    index_.emplace(hash, entries_.size() - 1);
  } else if (entries_.size() >= kIndexFrom) {
    index_entries();
  }
}

void Dict::erase(std::string_view key) {
  auto matches = [&](const Entry& entry) { return entry.first.is_string() && entry.first.as_string() == key; };
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(), matches), entries_.end());
  index_.clear();
  if (entries_.size() >= kIndexFrom) index_entries();
}

const Value* Dict::find(const Value& key) const {
  auto at = position(key, hash_of(key));
  return at ? &entries_[*at].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  auto matches = [&](const Entry& entry) { return entry.first.is_string() && entry.first.as_string() == key; };
  if (index_.empty()) {
    auto found = std::find_if(entries_.begin(), entries_.end(), matches);
    return found == entries_.end() ? nullptr : &found->second;
  }
  auto [first, last] = index_.equal_range(std::hash<std::string_view>{}(key));
  for (; first != last; ++first) {
    if (matches(entries_[first->second])) return &entries_[first->second].second;
  }
  return nullptr;
}

std::optional<std::size_t> Dict::position(const Value& key, std::size_t hash) const {
  if (index_.empty()) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (equal(entries_[i].first, key)) return i;
    }
    return std::nullopt;
  }
  auto [first, last] = index_.equal_range(hash);
  for (; first != last; ++first) {
    if (equal(entries_[first->second].first, key)) return first->second;
  }
  return std::nullopt;
}

void Dict::index_entries() {
  for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(hash_of(entries_[i].first), i);
}

Elements::Elements(const Value& value) : keep_(value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
      all_ = &keep_.items();
      break;
    case Kind::kString:
      charge_bytes(value.as_string().size() * sizeof(Value));
      for (std::string_view part : split_code_points(value.as_string())) {
        made_.push_back(Value::string(std::string(part)));
      }
      break;
    case Kind::kDict:
      charge_bytes(value.as_dict().size() * sizeof(Value));
      for (const auto& entry : value.as_dict().entries()) made_.push_back(entry.first);
      break;
    case Kind::kUndefined:
      break;
    case Kind::kObject:
      if (value.as_object()->iterable()) {
        made_ = value.as_object()->take_elements();
        charge_bytes(made_.size() * sizeof(Value));
        break;
      }
      [[fallthrough]];
    default:
      fail("'" + type_name(value) + "' object is not iterable");
  }
  charge_steps(all_->size());
}

std::string type_name(const Value& value) {
  static constexpr const char* kNames[] = {"NoneType", "Undefined", "bool",  "int",  "float",
                                           "str",      "list",      "tuple", "dict", ""};
  if (value.is_safe()) return "Markup";
  if (value.is(Kind::kObject)) return value.as_object()->type_name();
  return kNames[static_cast<int>(value.kind())];
}

std::string described_type(const Value& value) {
  return value.is_none() ? "'None'" : "'" + type_name(value) + " object'";
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_float() != 0;
    case Kind::kString:
      return !value.as_string().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return value.as_dict().size() != 0;
    case Kind::kObject:
      return value.as_object()->truthy();
  }
  return false;
}

bool is_iterable(const Value& value) {
  if (value.is(Kind::kObject)) return value.as_object()->iterable();
  return !value.is_none() && !value.is_number();
}

std::optional<std::size_t> length_if_any(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      charge_scan(value.as_string().size());
      return count_code_points(value.as_string());
    case Kind::kList:
    case Kind::kTuple:
      return value.items().size();
    case Kind::kDict:
      return value.as_dict().size();
    case Kind::kObject:
      return value.as_object()->length();
    default:
      return std::nullopt;
  }
}

std::size_t length(const Value& value) {
  auto size = length_if_any(value);
  if (!size) fail("object of type '" + type_name(value) + "' has no len()");
  return *size;
}

std::string to_text(const Value& value) {
  std::string out;
  append_text(out, value);
  return out;
}

void append_text(std::string& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return append_charged(out, "None");
    case Kind::kUndefined:
      return;
    case Kind::kBool:
      return append_charged(out, value.as_bool() ? "True" : "False");
    case Kind::kInt:
      return append_charged(out, int_text(value.as_int()));
    case Kind::kFloat:
      return append_charged(out, float_repr(value.as_float()));
    case Kind::kString:
      return append_charged(out, value.as_string());
    default:
      return append_repr(out, value, 0);
  }
}

std::string repr(const Value& value) {
  std::string out;
  append_repr(out, value, 0);
  return out;
}

bool equal(const Value& a, const Value& b) {
  charge_steps(1);
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      charge_scan(a.as_string().size());
      return a.as_string() == b.as_string();
    case Kind::kList:
    case Kind::kTuple:
      return a.same_as(b) || equal_items(a.items(), b.items());
    case Kind::kDict:
      return a.same_as(b) || equal_dicts(a.as_dict(), b.as_dict());
    case Kind::kObject:
      return a.same_as(b);
    default:
      return true;  // None and undefined are equal to themselves
  }
}

std::size_t hash_of(const Value& value) {
  charge_steps(1);
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return static_cast<std::size_t>(value.kind());
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return std::hash<double>{}(value.as_float());
    case Kind::kString:
      charge_scan(value.as_string().size());
      return std::hash<std::string_view>{}(value.as_string());
    case Kind::kTuple: {
      std::size_t hash = value.items().size();
      for (const Value& item : value.items()) hash = mix(hash, hash_of(item));
      return hash;
    }
    case Kind::kObject:
      return std::hash<const void*>{}(value.as_object().get());
    default:
      fail("unhashable type: '" + type_name(value) + "'");
  }
}

}  // namespace backplane::text::jinja

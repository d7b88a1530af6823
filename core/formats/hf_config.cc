#include "core/formats/hf_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/formats/json_input.h"

namespace backplane::formats {
namespace {

using nlohmann::json;

constexpr std::size_t kConfigBytes = 4u << 20;

// Writers that are not Python sometimes give whole numbers as 4096.0.
std::optional<std::uint64_t> as_u64(const json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(number >= 0 && number <= 9007199254740992.0)) return std::nullopt;
  const auto whole = static_cast<std::uint64_t>(number);
  return static_cast<double>(whole) == number ? std::optional(whole) : std::nullopt;
}

std::optional<std::string> first_architecture(const json& config) {
  const auto names = config.find("architectures");
  if (names != config.end() && names->is_array() && !names->empty() && names->front().is_string()) {
    return names->front().get<std::string>();
  }
  return std::nullopt;
}

}  // namespace

struct HfConfig::Record {
  std::set<std::string, std::less<>> read;
  std::set<std::string, std::less<>> opened;  // objects whose own keys are to be read one by one
};

HfConfig::HfConfig(std::shared_ptr<const json> object, std::string where, std::string prefix,
                   std::shared_ptr<Record> record)
    : json_(std::move(object)), where_(std::move(where)), prefix_(std::move(prefix)), record_(std::move(record)) {}

HfConfig HfConfig::from_file(const std::filesystem::path& path) {
  auto document = parse_json_file(path, kConfigBytes);
  if (!document.is_object()) throw Error(ErrorCode::kBadFile, "not a JSON object", path.string(), "check the file");
  return {std::make_shared<const json>(std::move(document)), path.string(), "", std::make_shared<Record>()};
}

HfConfig HfConfig::from_text(std::string_view text, std::string where) {
  auto document = parse_json(text, where);
  if (!document.is_object()) throw Error(ErrorCode::kBadFile, "not a JSON object", where, "check the file");
  return {std::make_shared<const json>(std::move(document)), std::move(where), "", std::make_shared<Record>()};
}

HfConfig HfConfig::unread() const { return {json_, where_, prefix_, std::make_shared<Record>()}; }

std::string HfConfig::full_name(std::string_view key) const { return prefix_ + std::string(key); }

void HfConfig::wrong_kind(std::string_view key, std::string_view wanted) const {
  std::string found = json_->at(std::string(key)).dump(-1, ' ', false, json::error_handler_t::replace);
  if (found.size() > 60) found = found.substr(0, 57) + "...";
  throw Error(ErrorCode::kBadFile, fmt::format("'{}' should be {}, not {}", full_name(key), wanted, found), where_,
              "check the file");
}

void HfConfig::missing(std::string_view key) const {
  throw Error(ErrorCode::kBadFile, fmt::format("'{}' is missing", full_name(key)), where_, "check the file");
}

const json* HfConfig::value(std::string_view key) const {
  record_->read.insert(full_name(key));
  const auto at = json_->find(std::string(key));
  return at == json_->end() || at->is_null() ? nullptr : &*at;
}

bool HfConfig::has(std::string_view key) const {
  const auto at = json_->find(std::string(key));
  return at != json_->end() && !at->is_null();
}

std::string HfConfig::architecture() const {
  record_->read.insert({full_name("architectures"), full_name("model_type")});
  if (const auto name = first_architecture(*json_)) return *name;
  return find_string("model_type").value_or("");
}

std::optional<std::uint64_t> HfConfig::find_u64(std::string_view key) const {
  const json* found = value(key);
  if (!found) return std::nullopt;
  if (const auto number = as_u64(*found)) return number;
  wrong_kind(key, "an unsigned integer");
}

std::optional<double> HfConfig::find_f64(std::string_view key) const {
  const json* found = value(key);
  if (!found) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  wrong_kind(key, "a number");
}

std::optional<bool> HfConfig::find_boolean(std::string_view key) const {
  const json* found = value(key);
  if (!found) return std::nullopt;
  if (found->is_boolean()) return found->get<bool>();
  wrong_kind(key, "true or false");
}

std::optional<std::string> HfConfig::find_string(std::string_view key) const {
  const json* found = value(key);
  if (!found) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  wrong_kind(key, "a string");
}

std::optional<HfConfig> HfConfig::find_object(std::string_view key) const {
  const json* found = value(key);
  if (!found) return std::nullopt;
  if (!found->is_object()) wrong_kind(key, "an object");
  record_->opened.insert(full_name(key));
  // The child shares the ownership of the whole document.
  return HfConfig(std::shared_ptr<const json>(json_, found), where_, full_name(key) + ".", record_);
}

std::uint64_t HfConfig::u64(std::string_view key) const {
  const auto found = find_u64(key);
  if (!found) missing(key);
  return *found;
}

double HfConfig::f64(std::string_view key) const {
  const auto found = find_f64(key);
  if (!found) missing(key);
  return *found;
}

bool HfConfig::boolean(std::string_view key) const {
  const auto found = find_boolean(key);
  if (!found) missing(key);
  return *found;
}

std::string HfConfig::string(std::string_view key) const {
  const auto found = find_string(key);
  if (!found) missing(key);
  return *found;
}

std::string HfConfig::string(std::string_view key, std::string_view fallback) const {
  return find_string(key).value_or(std::string(fallback));
}

std::vector<std::uint64_t> HfConfig::integers(std::string_view key) const {
  const json* found = value(key);
  if (!found) return {};
  const json list = found->is_array() ? *found : json::array({*found});
  std::vector<std::uint64_t> out;
  for (const json& item : list) {
    const auto number = as_u64(item);
    if (!number) wrong_kind(key, "unsigned integers");
    out.push_back(*number);
  }
  return out;
}

std::vector<double> HfConfig::numbers(std::string_view key) const {
  const json* found = value(key);
  if (!found) return {};
  if (!found->is_array()) wrong_kind(key, "a list of numbers");
  std::vector<double> out;
  for (const json& item : *found) {
    if (!item.is_number()) wrong_kind(key, "a list of numbers");
    out.push_back(item.get<double>());
  }
  return out;
}

std::vector<std::string> HfConfig::strings(std::string_view key) const {
  const json* found = value(key);
  if (!found) return {};
  if (!found->is_array()) wrong_kind(key, "a list of strings");
  std::vector<std::string> out;
  for (const json& item : *found) {
    if (!item.is_string()) wrong_kind(key, "a list of strings");
    out.push_back(item.get<std::string>());
  }
  return out;
}

std::string HfConfig::dtype() const {
  const auto old_name = find_string("torch_dtype");
  std::string name = find_string("dtype").value_or(old_name.value_or(""));
  if (name.starts_with("torch.")) name.erase(0, 6);
  return name;
}

void HfConfig::ignore(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) record_->read.insert(full_name(key));
}

std::vector<std::string> HfConfig::unread_keys() const {
  std::vector<std::string> out;
  for (const auto& [key, item] : json_->items()) {
    if (item.is_null()) continue;
    const std::string name = full_name(key);
    if (!record_->read.contains(name)) {
      out.push_back(name);
    } else if (record_->opened.contains(name)) {
      const HfConfig child(std::shared_ptr<const json>(json_, &item), where_, name + ".", record_);
      for (std::string& inner : child.unread_keys()) out.push_back(std::move(inner));
    }
  }
  return out;
}

std::vector<std::string> HfConfig::keys() const {
  std::vector<std::string> out;
  for (const auto& item : json_->items()) out.push_back(item.key());
  return out;
}

}  // namespace backplane::formats

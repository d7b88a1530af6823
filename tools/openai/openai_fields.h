// The members of a request's objects, read with their types checked.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace backplane::tools::openai {

using Json = nlohmann::ordered_json;

// All calls throw ApiError{400} naming the member when it has another type or is out of range. An absent member and
// null are the same: nothing.
class Fields {
 public:
  // `path` is where the object is, for messages: "messages[2]"; empty for the body. The object must outlive this.
  explicit Fields(const Json& object, std::string path = {});

  const Json* find(const char* key) const;
  std::optional<bool> flag(const char* key) const;
  // Numbers with a fraction of zero are integers too, as other servers take them.
  std::optional<std::int64_t> integer(const char* key, std::int64_t low, std::int64_t high) const;
  std::optional<double> number(const char* key, double low, double high) const;
  std::optional<std::string> string(const char* key) const;
  const Json* object(const char* key) const;
  const Json* array(const char* key) const;

  [[noreturn]] void refuse(std::string_view key, std::string_view what) const;  // "KEY what"
  std::string name(std::string_view key) const;                                 // "messages[2].role"

 private:
  const Json& object_;
  std::string path_;
};

// An integer, or a float that stands for one; nothing for anything else.
std::optional<std::int64_t> as_integer(const Json& value);

// What is wrong in a message: the value as JSON, cut after a few characters.
std::string shown(const Json& value);

}  // namespace backplane::tools::openai

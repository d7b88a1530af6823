#include "core/formats/json_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/formats/utf8.h"

namespace backplane::formats {

using nlohmann::json;

json parse_json(std::string_view text, const std::string& where) {
  const auto fail = [&](std::string_view what) {
    throw Error(ErrorCode::kBadFile, what, where, "download the file again");
  };
  // The parser would take a zero byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) fail("the JSON text holds a zero byte");
  std::vector<std::set<std::string>> open_objects;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > static_cast<int>(kJsonDepth)) fail(fmt::format("the JSON is nested deeper than {}", kJsonDepth));
    if (event == json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects.pop_back();
    if (event == json::parse_event_t::key && !open_objects.back().insert(parsed.get_ref<const std::string&>()).second) {
      fail(fmt::format("the JSON key '{}' is there twice", parsed.get_ref<const std::string&>()));
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& error) {
    // The parser quotes what it last read, whatever that was.
    fail(fmt::format("not valid JSON ({})", json_complaint(error.what())));
  }
  return {};
}

json parse_json_file(const std::filesystem::path& path, std::size_t limit) {
  const MappedFile file(path);
  if (file.bytes().size() > limit) {
    throw Error(
        ErrorCode::kBadFile,
        fmt::format("the JSON file has {} bytes, more than the {} that are allowed", file.bytes().size(), limit),
        path.string(), "check that it is the right file");
  }
  return parse_json({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path.string());
}

json cut_arrays(const json& value, std::size_t limit) {
  if (value.is_object()) {
    json out = json::object();
    for (const auto& [key, member] : value.items()) out[key] = cut_arrays(member, limit);
    return out;
  }
  if (!value.is_array()) return value;
  json first = json::array();
  for (std::size_t i = 0; i < std::min(limit, value.size()); ++i) first.push_back(cut_arrays(value[i], limit));
  if (value.size() <= limit) return first;
  return {{"type", "array"}, {"length", value.size()}, {"first", std::move(first)}};
}

}  // namespace backplane::formats

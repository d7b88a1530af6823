#include "plugins/host/manifest.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace backplane::plugins {
namespace {

constexpr std::size_t kLargest = 64 * 1024;

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view what) {
  throw Error(ErrorCode::kDevice, what, path.string(), "repair the plugin's manifest or reinstall the plugin");
}

std::string read_small_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) refuse(path, "the manifest is not a file");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) refuse(path, "the manifest can't be opened");
  std::string text(kLargest + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) refuse(path, "the manifest can't be read");
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kLargest) refuse(path, "the manifest is larger than 64 KiB");
  return text;
}

// The string member `key`; empty where it may be absent and is.
std::string text_member(const nlohmann::json& json, const char* key, bool required, const std::filesystem::path& path) {
  const auto found = json.find(key);
  if (found == json.end() && !required) return {};
  if (found == json.end()) refuse(path, "the manifest has no \"" + std::string(key) + "\"");
  if (!found->is_string()) refuse(path, "\"" + std::string(key) + "\" of the manifest is not a string");
  return found->get<std::string>();
}

// The member "tune".
std::vector<std::string> tune_member(const nlohmann::json& json, const std::filesystem::path& path) {
  constexpr std::size_t kMost = 8, kLongest = 128;
  const auto found = json.find("tune");
  if (found == json.end()) return {};
  if (!found->is_array() || found->size() > kMost) refuse(path, "\"tune\" of the manifest is not a list of up to 8");
  std::vector<std::string> tune;
  for (const auto& each : *found) {
    const std::string text = each.is_string() ? each.get<std::string>() : "";
    const bool option =
        text.find('=') != std::string::npos && text.size() <= kLongest && printable(text, kLongest) == text;
    if (text != "threads" && !option) {
      refuse(path, "\"tune\" of the manifest holds something else than \"threads\" and options \"key=value\"");
    }
    tune.push_back(text);
  }
  return tune;
}

std::uint32_t major_member(const nlohmann::json& json, const std::filesystem::path& path) {
  const auto found = json.find("abi_major");
  if (found == json.end()) refuse(path, "the manifest has no \"abi_major\"");
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max()) {
    refuse(path, "\"abi_major\" of the manifest is not a version number");
  }
  return found->get<std::uint32_t>();
}

// A bare file name: what it names lies in the manifest's folder, wherever that was found.
bool is_plain_file_name(std::string_view text) {
  return !text.empty() && text.size() <= 255 && text != "." && text != ".." &&
         text.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

bool is_name(std::string_view text, std::size_t longest, std::string_view also) {
  return !text.empty() && text.size() <= longest && std::all_of(text.begin(), text.end(), [also](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           also.find(c) != std::string_view::npos;
  });
}

}  // namespace

bool is_plugin_name(std::string_view text) { return is_name(text, 32, "_-"); }
bool is_device_name(std::string_view text) { return is_name(text, 31, "_-."); }

std::string printable(std::string_view text, std::size_t longest) {
  std::string line(text.substr(0, longest));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return line;
}

Manifest read_manifest(const std::filesystem::path& path) {
  const auto json = nlohmann::json::parse(read_small_file(path), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) refuse(path, "the manifest is not JSON");
  if (!json.is_object()) refuse(path, "the manifest is not a JSON object");
  Manifest manifest;
  manifest.name = text_member(json, "name", true, path);
  manifest.abi_major = major_member(json, path);
  const std::string file = text_member(json, "file", true, path);
  manifest.description = printable(text_member(json, "description", false, path), 256);
  manifest.tune = tune_member(json, path);
  if (!is_plugin_name(manifest.name)) {
    refuse(path, "\"name\" of the manifest must be 1 to 32 letters, digits, _ or -");
  }
  if (!is_plain_file_name(file)) refuse(path, "\"file\" of the manifest must be a file name without a folder");
  manifest.library = path.parent_path() / file;
  return manifest;
}

}  // namespace backplane::plugins

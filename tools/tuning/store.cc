#include "tools/tuning/store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/log.h"
#include "plugins/host/manifest.h"
#include "tools/known_models.h"

namespace backplane::tuning {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostBytes = 1024 * 1024;
constexpr std::size_t kMostEntries = 200;  // the oldest go first
constexpr std::size_t kLongest = 1024;     // of a text
constexpr unsigned kMostThreads = 1024;
constexpr const char* kComponent = "tuning";

std::optional<std::string> text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return std::nullopt;
  std::string text = found->get<std::string>();
  if (text != plugins::printable(text, kLongest)) return std::nullopt;
  return text;
}

std::optional<std::uint32_t> number_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() > kMostThreads) return {};
  return found->get<std::uint32_t>();
}

std::optional<Entry> entry_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto key = text_of(json, "key"), build = text_of(json, "build"), options = text_of(json, "options"),
             why = text_of(json, "why");
  const auto threads = number_of(json, "threads"), disturbed = number_of(json, "disturbed");
  if (!key || !build || !options || !why || !threads || !disturbed) return std::nullopt;
  return Entry{*key, *build, {*threads, *options}, *why, *disturbed};
}

Json json_of(const Entry& entry) {
  return {{"key", entry.key},
          {"build", entry.build},
          {"threads", entry.setting.threads},
          {"options", entry.setting.options},
          {"why", entry.why},
          {"disturbed", entry.disturbed}};
}

}  // namespace

std::vector<Entry> Store::read(bool warn) const {
  std::error_code error;
  if (!std::filesystem::exists(file_, error)) return {};
  const auto damaged = [&] {
    if (warn)
      log(LogLevel::kWarning, kComponent, "{} is damaged: it is ignored until a trial writes it anew", file_.string());
    return std::vector<Entry>();
  };
  if (std::filesystem::file_size(file_, error) > kMostBytes || error) return damaged();
  std::ifstream stream(file_, std::ios::binary);
  if (!stream) {
    if (warn) log(LogLevel::kWarning, kComponent, "{} can't be read: it is ignored", file_.string());
    return {};
  }
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto list = json.is_object() ? json.find("entries") : json.end();
  if (list == json.end() || !list->is_array()) return damaged();
  std::vector<Entry> entries;
  for (const Json& each : *list) {
    if (auto entry = entry_of(each)) entries.push_back(std::move(*entry));
  }
  if (entries.size() != list->size()) damaged();
  return entries;
}

std::optional<Entry> Store::find(const std::string& key) const {
  for (Entry& entry : read(true)) {
    if (entry.key == key) return std::move(entry);
  }
  return std::nullopt;
}

bool Store::keep(const Entry& entry) const {
  std::vector<Entry> entries = read(false);
  std::erase_if(entries, [&](const Entry& old) { return old.key == entry.key; });
  entries.push_back(entry);
  Json list = Json::array();
  for (std::size_t i = entries.size() > kMostEntries ? entries.size() - kMostEntries : 0; i < entries.size(); ++i) {
    list.push_back(json_of(entries[i]));
  }
  std::filesystem::path fresh = file_;
  fresh += fmt::format(".{}", ::getpid());
  std::error_code error;
  {
    std::ofstream stream(fresh, std::ios::binary | std::ios::trunc);
    stream << Json{{"entries", std::move(list)}}.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
    stream.close();
    if (!stream) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(fresh, file_, error);
  if (!error) return true;
  log(LogLevel::kWarning, kComponent, "{} can't be written: settings are not remembered", file_.string());
  std::filesystem::remove(fresh, error);
  return false;
}

bool Store::writable() const {
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  return std::filesystem::is_directory(file_.parent_path(), error) && ::access(file_.parent_path().c_str(), W_OK) == 0;
}

std::optional<std::filesystem::path> store_path() {
  try {
    return tools::models_folder().parent_path() / "tuned.json";
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace backplane::tuning

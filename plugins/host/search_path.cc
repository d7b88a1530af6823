#include "plugins/host/search_path.h"

#include <algorithm>
#include <boost/dll/runtime_symbol_info.hpp>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "plugins/host/manifest.h"

namespace backplane::plugins {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kComponent = "plugins";
constexpr std::string_view kFilePrefix = "backplane_";

// "cuda" for backplane_cuda.so, backplane_cuda.json, libcuda.so and cuda.so.
std::string name_from_file(const fs::path& path) {
  std::string name = path.stem().string();
  if (name.starts_with("lib")) name.erase(0, 3);
  if (name.starts_with(kFilePrefix)) name.erase(0, kFilePrefix.size());
  return printable(name, 32);
}

fs::path real_path(const fs::path& path) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(path, error);
  return error ? fs::absolute(path) : canonical;
}

FoundPlugin from_manifest(const fs::path& path) {
  FoundPlugin found;
  found.manifest = real_path(path);
  try {
    const Manifest manifest = read_manifest(found.manifest);
    found.name = manifest.name;
    found.library = manifest.library;
    found.abi_major = manifest.abi_major;
    found.description = manifest.description;
    found.tune = manifest.tune;
  } catch (const Error& error) {
    found.name = name_from_file(path);
    found.problem = error.what();
  }
  return found;
}

FoundPlugin from_library(const fs::path& path) {
  const fs::path library = real_path(path);
  fs::path manifest = library;
  manifest.replace_extension(".json");
  std::error_code error;
  if (fs::exists(manifest, error)) {
    FoundPlugin found = from_manifest(manifest);
    if (found.library == library) return found;
  }
  FoundPlugin found;
  found.name = name_from_file(path);
  found.library = library;
  return found;
}

std::vector<FoundPlugin> from_folder(const fs::path& folder) {
  std::vector<fs::path> manifests;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() == ".json" && path.filename().string().starts_with(kFilePrefix)) manifests.push_back(path);
  }
  if (error && fs::exists(folder)) {
    log(LogLevel::kWarning, kComponent, "{}: can't be searched for plugins: {}", folder.string(), error.message());
  }
  std::sort(manifests.begin(), manifests.end());
  std::vector<FoundPlugin> found;
  found.reserve(manifests.size());
  for (const fs::path& path : manifests) found.push_back(from_manifest(path));
  return found;
}

std::vector<FoundPlugin> from_option(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    auto found = from_folder(path);
    if (found.empty()) {
      throw Error(ErrorCode::kDevice, "no plugin in this folder", path.string(),
                  "a plugin is a backplane_*.json manifest beside its library");
    }
    return found;
  }
  if (!fs::exists(path, error)) {
    throw Error(ErrorCode::kDevice, "no such plugin", path.string(), "give a library, a manifest or a folder");
  }
  return {path.extension() == ".json" ? from_manifest(path) : from_library(path)};
}

std::vector<fs::path> environment_folders(std::string_view variable) {
  std::vector<fs::path> folders;
  while (!variable.empty()) {
    const std::string_view entry = variable.substr(0, variable.find(':'));
    const bool last = entry.size() == variable.size();
    variable.remove_prefix(last ? variable.size() : entry.size() + 1);
    const fs::path folder(entry);
    if (folder.is_absolute()) {
      folders.push_back(folder);
    } else {  // it would mean another place in every folder the program is started from
      log(LogLevel::kWarning, kComponent, "BACKPLANE_PLUGIN_PATH: '{}' is ignored: not an absolute path",
          printable(entry, 256));
    }
  }
  return folders;
}

void keep_first(std::vector<FoundPlugin>& all, std::vector<FoundPlugin> more) {
  for (FoundPlugin& found : more) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const auto& other) { return other.name == found.name; });
    if (same == all.end()) {
      all.push_back(std::move(found));
    } else if (same->library != found.library) {
      log(LogLevel::kDebug, kComponent, "{}: '{}' is hidden by {}", found.library.string(), found.name,
          same->library.string());
    }
  }
}

}  // namespace

SearchOptions default_search(std::vector<fs::path> plugins) {
  SearchOptions options;
  options.plugins = std::move(plugins);
  if (const char* variable = std::getenv("BACKPLANE_PLUGIN_PATH")) options.environment = variable;
  std::error_code error;
  const fs::path program = boost::dll::program_location(error).parent_path();
  if (!error && program.is_absolute()) {
    options.folders.push_back(program / "plugins");
    options.folders.push_back((program / "../lib/backplane/plugins").lexically_normal());
  }
  options.folders.emplace_back(BACKPLANE_INSTALLED_PLUGINS);
  return options;
}

std::vector<FoundPlugin> find_plugins(const SearchOptions& options) {
  std::vector<FoundPlugin> all;
  for (const fs::path& path : options.plugins) keep_first(all, from_option(path));
  for (const fs::path& folder : environment_folders(options.environment)) keep_first(all, from_folder(folder));
  for (const fs::path& folder : options.folders) keep_first(all, from_folder(folder));
  return all;
}

}  // namespace backplane::plugins

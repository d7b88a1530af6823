// Where plugins are looked for. These places hold code that runs with the user's rights: the current folder is never
// one of them unless the user names it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace backplane::plugins {

struct SearchOptions {
  std::vector<std::filesystem::path> plugins;  // from --plugin: a library, a manifest, or a folder with manifests
  std::string environment;                     // BACKPLANE_PLUGIN_PATH: folders with colons between them
  std::vector<std::filesystem::path> folders;  // last; those that don't exist are skipped
};

// The options of a program: the environment variable, then <program's folder>/plugins, <program's
// folder>/../lib/backplane/plugins and the folder of the installation.
SearchOptions default_search(std::vector<std::filesystem::path> plugins = {});

// A plugin that was found, and not loaded.
struct FoundPlugin {
  std::string name;
  std::filesystem::path library;   // absolute
  std::filesystem::path manifest;  // empty for a library given without one
  std::uint32_t abi_major = 0;     // 0: no manifest says
  std::string description;
  std::vector<std::string> tune;  // as Manifest::tune
  std::string problem;            // why it can't be used; empty if nothing is known against it
};

// All plugins in order of search, one of a name: the first wins, and the others are logged. In folders, manifests are
// the files called backplane_*.json, in the order of their names. Relative and empty entries of the environment are
// refused with a warning. Throws Error{kDevice} when something that --plugin names isn't there or holds no plugin.
std::vector<FoundPlugin> find_plugins(const SearchOptions& options);

}  // namespace backplane::plugins

// One loaded plugin: its library, and its tables as the core may use them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "plugins/abi/backplane_plugin.h"
#include "plugins/host/search_path.h"

namespace backplane::plugins {

// Immutable and free-threaded. Lives until the process ends, as does its library: a plugin's threads and its libraries'
// destructors may run as late as that.
class Plugin {
 public:
  virtual ~Plugin() = default;

  // All pointers are set. The required functions are there; an optional table whose functions make no complete group
  // has none at all (and a line in the log).
  const bp_tables& tables() const { return tables_; }
  const std::string& name() const { return name_; }
  const std::filesystem::path& path() const { return path_; }
  const std::string& version() const { return version_; }  // the plugin's own, free form; may be empty
  std::uint32_t abi_minor() const { return abi_minor_; }   // that it was built against

 protected:
  Plugin() = default;

  bp_tables tables_{};
  std::string name_;
  std::filesystem::path path_;
  std::string version_;
  std::uint32_t abi_minor_ = 0;
};

// Loads the library, negotiates the version and checks what it filled in. Loading a library again gives the same
// plugin, or the same error. Throws Error{kDevice} with the reason. Free-threaded.
std::shared_ptr<const Plugin> load_plugin(const FoundPlugin& found);

}  // namespace backplane::plugins

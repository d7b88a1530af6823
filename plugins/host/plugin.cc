#include "plugins/host/plugin.h"

#include <boost/dll/shared_library.hpp>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "core/base/abi_call.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "plugins/host/host_table.h"
#include "plugins/host/library_check.h"
#include "plugins/host/manifest.h"
#include "plugins/host/table_check.h"

namespace backplane::plugins {
namespace {

constexpr const char* kReinstall = "use a plugin that was built for this version of Backplane";

// A table as the contract has it allocated: zeroed, stamped, and followed by bytes that must stay as they are.
template <class Table>
struct Stamped {
  Table table{};
  std::uint8_t beyond[256];

  Stamped() {
    table.size = sizeof(Table);
    std::memset(beyond, 0xa5, sizeof(beyond));
  }

  bool intact() const {
    for (const std::uint8_t byte : beyond) {
      if (byte != 0xa5) return false;
    }
    return table.size == sizeof(Table);
  }
};

// The system loader's own words out of Boost's message, which wraps them twice.
std::string loader_text(const std::string& message, const std::filesystem::path& path) {
  constexpr std::string_view kBefore = "dlerror system message: ";
  const std::size_t begin = message.find(kBefore);
  const std::size_t end = message.rfind("): ");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return printable(message, 1024);
  std::string text = message.substr(begin + kBefore.size(), end - begin - kBefore.size());
  if (const std::string prefix = path.string() + ": "; text.starts_with(prefix)) text.erase(0, prefix.size());
  return printable(text, 1024);
}

// Opens it for good, whatever becomes of the plugin: its initializers may have started threads.
const boost::dll::shared_library& open_library(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw Error(ErrorCode::kDevice, "the plugin's library is not there", path.string(), "reinstall the plugin");
  }
  if (is_cut_short(path)) {
    throw Error(ErrorCode::kDevice, "the plugin's library is cut short", path.string(), "reinstall the plugin");
  }
  try {
    using boost::dll::load_mode::rtld_local;
    using boost::dll::load_mode::rtld_now;
    static auto* const libraries = new std::list<boost::dll::shared_library>;  // guarded by load_plugin's lock
    return libraries->emplace_back(path, rtld_now | rtld_local);
  } catch (const std::system_error& failure) {
    throw Error(ErrorCode::kDevice, "the library can't be loaded: " + loader_text(failure.what(), path), path.string());
  }
}

// "backplane_plugin_v2" where the library was built for another major version.
std::string other_entry_point(const boost::dll::shared_library& library) {
  for (int major = 0; major < 32; ++major) {
    std::string symbol = "backplane_plugin_v" + std::to_string(major);
    if (major != BP_ABI_MAJOR && library.has(symbol)) return symbol;
  }
  return {};
}

bp_plugin_query_fn entry_point(const boost::dll::shared_library& library, const std::filesystem::path& path) {
  if (library.has(BP_ENTRY_POINT_NAME)) {
    return &library.get<std::remove_pointer_t<bp_plugin_query_fn>>(BP_ENTRY_POINT_NAME);
  }
  if (const std::string other = other_entry_point(library); !other.empty()) {
    throw Error(ErrorCode::kDevice,
                "built for another plugin ABI: it exports " + other + ", this core needs " + BP_ENTRY_POINT_NAME,
                path.string(), kReinstall);
  }
  throw Error(ErrorCode::kDevice, std::string("not a Backplane plugin: it doesn't export ") + BP_ENTRY_POINT_NAME,
              path.string());
}

class LoadedPlugin final : public Plugin {
 public:
  explicit LoadedPlugin(const FoundPlugin& found) : library_(open_library(found.library)) {
    path_ = found.library;
    query(found.name);
    check_required();
    drop_incomplete_groups(tables_, name_);
  }

 private:
  void query(const std::string& expected_name) {
    Stamped<bp_tables> stamped;
    bp_tables& offered = stamped.table;
    offered.driver = &driver_.table;
    offered.device = &device_.table;
    offered.buffer = &buffer_.table;
    offered.stream = &stream_.table;
    offered.weights = &weights_.table;
    offered.kv = &kv_.table;
    offered.graph = &graph_.table;
    offered.comm = &comm_.table;
    tables_ = offered;
    AbiCall call;
    call.check(entry_point(library_, path_)(host_table(), call.context(), &offered), expected_name + ": query");
    if (!(stamped.intact() && driver_.intact() && device_.intact() && buffer_.intact() && stream_.intact() &&
          weights_.intact() && kv_.intact() && graph_.intact() && comm_.intact())) {
      throw Error(ErrorCode::kDevice, "the plugin wrote outside the tables it was given, or over their sizes",
                  path_.string(), kReinstall);
    }
  }

  void check_required() {
    if (const std::string missing = missing_functions(tables_); !missing.empty()) {
      throw Error(ErrorCode::kDevice, "the plugin lacks required functions: " + missing, path_.string());
    }
    const bp_driver_table& driver = driver_.table;
    const std::string_view name = driver.name ? std::string_view(driver.name, ::strnlen(driver.name, 64)) : "";
    if (!is_plugin_name(name)) {
      throw Error(ErrorCode::kDevice, "the plugin's name is not 1 to 32 letters, digits, _ or -", path_.string());
    }
    name_ = name;
    if (driver.version) version_ = printable({driver.version, ::strnlen(driver.version, 64)}, 64);
    abi_minor_ = driver.abi_minor;
  }

  const boost::dll::shared_library& library_;
  Stamped<bp_driver_table> driver_;
  Stamped<bp_device_table> device_;
  Stamped<bp_buffer_table> buffer_;
  Stamped<bp_stream_table> stream_;
  Stamped<bp_weights_table> weights_;
  Stamped<bp_kv_table> kv_;
  Stamped<bp_graph_table> graph_;
  Stamped<bp_comm_table> comm_;
};

// What became of a library in this process.
struct Outcome {
  std::shared_ptr<const Plugin> plugin;
  std::string problem;
};

}  // namespace

std::shared_ptr<const Plugin> load_plugin(const FoundPlugin& found) {
  if (!found.problem.empty()) throw Error(ErrorCode::kDevice, found.problem);
  if (found.manifest != std::filesystem::path() && found.abi_major != BP_ABI_MAJOR) {
    throw Error(ErrorCode::kDevice,
                "built for version " + std::to_string(found.abi_major) +
                    " of the plugin ABI, this core speaks version " + std::to_string(BP_ABI_MAJOR),
                found.manifest.string(), kReinstall);
  }
  // Never destroyed, so that no library is unloaded while the process ends. One lock for all: a library's initializers
  // see one another no more than when they are linked.
  static auto* const mutex = new std::mutex;
  static auto* const outcomes = new std::map<std::filesystem::path, Outcome>;
  std::lock_guard lock(*mutex);
  const auto [entry, is_new] = outcomes->try_emplace(found.library);
  Outcome& outcome = entry->second;
  if (is_new) {
    try {
      outcome.plugin = std::make_shared<LoadedPlugin>(found);
      log(LogLevel::kDebug, "plugins", "{}: loaded '{}' {}", found.library.string(), outcome.plugin->name(),
          outcome.plugin->version());
    } catch (const std::exception& error) {
      outcome.problem = error.what();
    }
  }
  if (!outcome.plugin) throw Error(ErrorCode::kDevice, outcome.problem);
  if (outcome.plugin->name() != found.name) {
    throw Error(ErrorCode::kDevice,
                "the plugin calls itself '" + outcome.plugin->name() + "', not '" + found.name + "'",
                found.library.string(), "its manifest, or without one its file name, must say the same");
  }
  return outcome.plugin;
}

}  // namespace backplane::plugins

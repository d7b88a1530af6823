// Lists the devices of the plugins given as for --plugin, and of no others: "NAME available" or "NAME REASON", a line
// each.
#include <cstdio>
#include <filesystem>
#include <vector>

#include "core/base/error.h"
#include "plugins/host/registry.h"

int main(int argc, char** argv) {
  try {
    backplane::plugins::SearchOptions options;
    options.plugins = std::vector<std::filesystem::path>(argv + 1, argv + argc);
    const backplane::plugins::Registry registry(options);
    for (const auto& device : registry.list_devices()) {
      std::printf("%s %s\n", device.name.c_str(), device.available ? "available" : device.reason.c_str());
    }
    return 0;
  } catch (const backplane::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_status();
  }
}

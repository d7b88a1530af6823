// The suite, in this process, on a device of the build tree.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "plugins/host/registry.h"
#include "tests/conformance/conformance.h"

namespace backplane::conformance_test {

inline const plugins::Registry& registry() {
  static const plugins::Registry instance(
      {{},
       "",
       {BACKPLANE_PLUGIN_OUTPUT_DIR, TEST_PLUGINS "/faulty", TEST_PLUGINS "/opaque", TEST_PLUGINS "/cuda_emulated"}});
  return instance;
}

inline conformance::Target target(const std::string& name, const std::string& options = {}) {
  const plugins::DeviceRef ref = registry().find_device(name);
  return {{&ref.plugin->tables(), ref.plugin->name()}, ref.index, options};
}

inline conformance::Summary run(const conformance::Target& subject, const std::string& filter, std::uint64_t seed = 1) {
  conformance::Options how;
  how.filter = filter;
  how.seed = seed;
  return conformance::run(subject, target("cpu:f64"), how);
}
inline conformance::Summary run(const std::string& name, const std::string& filter = {},
                                const std::string& options = {}, std::uint64_t seed = 1) {
  return run(target(name, options), filter, seed);
}

inline std::string failures(const conformance::Summary& summary) {
  std::string text;
  for (const conformance::Result& r : summary.results) {
    if (r.verdict == conformance::Verdict::kFailed) text += r.name + ": " + r.text + "\n";
  }
  return text;
}

// What comes before the first slash of the names of failed cases.
inline std::set<std::string> blamed(const conformance::Summary& summary) {
  std::set<std::string> ops;
  for (const conformance::Result& r : summary.results) {
    if (r.verdict == conformance::Verdict::kFailed) ops.insert(r.name.substr(0, r.name.find('/')));
  }
  return ops;
}

// How many cases failed, by what comes before the first slash: "130: ATTN_DECODE 65, ATTN_PREFILL 65".
inline std::string counts(const conformance::Summary& summary) {
  std::map<std::string, int> failed;
  for (const conformance::Result& r : summary.results) {
    if (r.verdict == conformance::Verdict::kFailed) ++failed[r.name.substr(0, r.name.find('/'))];
  }
  std::string text = std::to_string(summary.count(conformance::Verdict::kFailed));
  const char* separator = ": ";
  for (const auto& [name, count] : failed) {
    text += separator + name + " " + std::to_string(count);
    separator = ", ";
  }
  return text;
}

}  // namespace backplane::conformance_test

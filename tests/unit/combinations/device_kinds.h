// The test device with all that is optional taken away in turn.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace backplane::test {

struct DeviceKind {
  std::string group;             // for the table: "op", "table", ...
  std::string options;           // of the `opaque` plugin
  std::set<std::string> tables;  // that it loses, see TableSet
  std::uint32_t gone = 0;        // an op that must not run there
};

// Everything; each op removed, with and without fused ones beside it; each table removed; only LINEAR; every
// combination of owned weights and KV, kept or given back by what it answers or by what it implements.
std::vector<DeviceKind> device_kinds();

// The option by which all ops of the device take activations in F16 only.
std::string want_f16();

}  // namespace backplane::test

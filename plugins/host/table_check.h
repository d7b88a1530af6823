// What the core asks of the tables that a plugin filled.
#pragma once

#include <string>

#include "plugins/abi/backplane_plugin.h"

namespace backplane::plugins {

// The required functions that are NULL, as "device.run, buffer.free"; empty if none is.
std::string missing_functions(const bp_tables& tables);

// Clears each optional group of functions that is not complete, so that one test answers for all of it, and logs which.
void drop_incomplete_groups(const bp_tables& tables, const std::string& plugin);

}  // namespace backplane::plugins

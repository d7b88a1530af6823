// What a tried setting holds for.
#pragma once

#include <string>

#include "models/load.h"

namespace backplane::tuning {

// Where a model is to run.
struct Place {
  std::string processor;    // its name
  unsigned processors = 1;  // that this process may use
  std::string device;       // "onednn:0"
  std::string version;      // the plugin's own
};

// One line: the place, and of the model what its speed depends on: layers, widths, and the elements of each type. Two
// models of one shape share it.
std::string key_of(const Place& place, const models::ModelFile& file);

}  // namespace backplane::tuning

// Tiny models of every architecture, and devices that do part of the work.
#pragma once

#include <filesystem>
#include <memory>
#include <ostream>
#include <span>

#include "models/load.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/faults/sweep.h"

namespace backplane::test {

struct FaultModel {
  const char* name;
  std::filesystem::path (*write)(const TempFolder&);
  const char* options = "";   // of the device
  const char* no_table = "";  // that the plugin loses
  double rounding = 1e-4;     // of log-probabilities, when an op runs elsewhere
};
inline void PrintTo(const FaultModel& model, std::ostream* out) { *out << model.name; }

// The first is a Llama of one layer on a device that does everything.
std::span<const FaultModel> fault_models();
// Those of these names.
std::vector<FaultModel> fault_models(const std::set<std::string>& names);

// A model's file, to be loaded many times: for steps of up to 20 tokens of 4 sequences, pages of 12 tokens, any op on
// the reference.
class FaultFile {
 public:
  explicit FaultFile(const FaultModel& model) : model_(model), file_(model.write(folder_)) {}

  std::unique_ptr<models::LoadedModel> load(std::shared_ptr<device::Device> device) const;
  std::unique_ptr<models::LoadedModel> load(Trial& trial) const { return load(open(trial)); }
  // A device as the model wants it, mortal or not.
  std::shared_ptr<device::Device> open(Trial& trial) const { return trial.open(model_.options, without()); }
  std::shared_ptr<device::Device> open() const { return open_opaque("opaque:f32", model_.options, without()); }

  std::set<std::string> without() const {
    return *model_.no_table ? std::set<std::string>{model_.no_table} : std::set<std::string>{};
  }

 private:
  FaultModel model_;
  TempFolder folder_;
  models::ModelFile file_;
};

}  // namespace backplane::test

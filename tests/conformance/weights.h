// Weights of a case, in the forms in which a device takes them.
#pragma once

#include <memory>
#include <vector>

#include "tests/conformance/trial.h"

namespace backplane::conformance {

struct Weight {
  DType type = DType::kNone;
  std::int64_t rows = 0, columns = 0;  // N, C
  std::vector<std::byte> bytes;        // the file's rows
  Array numbers;                       // [N,C], as the oracle dequantizes them
};
Weight random_weight(Trial& trial, DType type, std::int64_t rows, std::int64_t columns);

enum class Form {
  kCanonical,   // the file's blocks in a buffer
  kTransposed,  // canonical, stored as [C,N]; plain types
  kImported,    // in the plugin's own layout
  kImportedTransposed
};
std::string_view form_name(Form form);
// Canonical where the device takes that, else imported.
inline Form form_for(const device::Device& device, DType type) {
  return device.takes_weight_type(type) ? Form::kCanonical : Form::kImported;
}

// [C,N] from [N,C] of a plain type.
std::vector<std::byte> transposed_bytes(const Weight& weight);

// The weight on a side, which keeps it. The oracle takes the canonical form always. Throws Skipped when the plugin
// refuses to import it. `uses`: BP_USE_*.
bp_matrix matrix_on(Side& side, const Weight& weight, Form form, std::uint64_t uses);
// Features that the form needs of an op.
inline std::uint64_t form_features(Form form) {
  return form == Form::kTransposed ? std::uint64_t{BP_FEATURE_TRANSPOSED} : 0;
}

// Several weights of the same columns as one imported weight. Throws Skipped with the plugin's reason.
class ImportedWeight {
 public:
  ImportedWeight(Side& side, const std::vector<const Weight*>& parts, std::uint64_t uses, bool transposed);
  ~ImportedWeight();
  ImportedWeight(const ImportedWeight&) = delete;
  ImportedWeight& operator=(const ImportedWeight&) = delete;

  bp_weight handle() const { return handle_; }
  // Stored rows of a part, as the file has them.
  std::vector<std::byte> export_rows(std::uint64_t part, std::int64_t row, std::int64_t count);

 private:
  void import_part(std::uint64_t part);

  Side& side_;
  std::vector<const Weight*> parts_;
  bool transposed_;
  bp_weight handle_ = nullptr;
};

}  // namespace backplane::conformance

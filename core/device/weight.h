// A weight matrix and the forms it takes on each device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device/reference.h"
#include "core/device/storage.h"

namespace backplane::device {

// W[N,C] as a file stores it. `data` stays valid and constant while any device may still read it in place.
struct WeightSource {
  std::string name;     // in the file
  StoredMatrix stored;  // rows [N,C], or [C,N] when transposed
  bool transposed = false;
  // Called once a device holds its own copy: the pages of the mapping may be given back to the system.
  std::function<void(std::span<const std::byte>)> release;
};

// One way to hold the weight on a device.
struct WeightForm {
  enum class Kind {
    kImported,   // in the plugin's own layout
    kCanonical,  // the file's bytes, in place or copied
    kConverted   // dequantized or transposed by the reference, rows contiguous
  };
  Kind kind = Kind::kCanonical;
  DType type = DType::kNone;  // what the ops see
  bool transposed = false;
};

class Weight {
 public:
  Weight(const Devices& devices, WeightSource source);
  ~Weight();
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;

  const std::string& name() const { return source_.name; }
  std::int64_t rows() const { return rows_; }        // N
  std::int64_t columns() const { return columns_; }  // C
  void add_use(std::uint64_t use) { uses_ |= use; }  // BP_USE_*, before the first realize

  // The forms to try on a slot, best first; after `choose` only the chosen one.
  std::vector<WeightForm> forms(Slot slot) const;
  void choose(Slot slot, const WeightForm& form) { held_[slot].form = form; }
  // The matrix as `supports` sees it: type, shape, strides.
  bp_matrix describe(const WeightForm& form) const;

  // Brings the weight onto the slot in its chosen form, once. Returns the device bytes taken (0 when used in place).
  std::uint64_t realize(Slot slot);
  bp_matrix matrix(Slot slot) const;  // after realize

 private:
  struct Held {
    std::optional<WeightForm> form;
    bool ready = false;
    bp_weight imported = nullptr;
    Buffer buffer;
  };
  bp_weight_desc description(bp_weight_part& part) const;
  std::uint64_t realize_imported(Slot slot);
  std::uint64_t realize_canonical(Slot slot);
  std::uint64_t realize_converted(Slot slot);

  const Devices* devices_;
  WeightSource source_;
  std::int64_t rows_, columns_;
  std::uint64_t uses_ = 0;
  std::vector<Held> held_;
};

}  // namespace backplane::device

// A weight matrix and the forms it takes on each device.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
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
  std::uint64_t uses = 0;  // imported: the BP_USE_* it was declared for

  bool operator==(const WeightForm&) const = default;
};

class Weight {
 public:
  Weight(const Devices& devices, WeightSource source);
  ~Weight();
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;

  const std::string& name() const { return source_.name; }
  const WeightSource& source() const { return source_; }  // for cross-checks
  std::int64_t rows() const { return rows_; }             // N
  std::int64_t columns() const { return columns_; }       // C
  // While planning: one more op uses it so (BP_USE_*), on whatever slot; or an op won't run on that slot. A plugin is
  // asked to import it for the uses that are left.
  void add_use(std::uint64_t use);
  void drop_use(Slot slot, std::uint64_t use);

  // The forms for an op with that use to try on a slot, best first. Those that an op before has chosen come first of
  // all; where an op refuses them, the slot holds the weight twice.
  std::vector<WeightForm> forms(Slot slot, std::uint64_t use) const;
  // Returns the number by which the slot knows the form from now on.
  std::size_t choose(Slot slot, const WeightForm& form);
  // The matrix as `supports` sees it: type, shape, strides.
  bp_matrix describe(const WeightForm& form) const;

  // Brings the weight onto the slot in a chosen form, once. Returns the device bytes taken (0 when used in place).
  std::uint64_t realize(Slot slot, std::size_t form);
  bp_matrix matrix(Slot slot, std::size_t form) const;  // after realize

 private:
  struct Held {
    WeightForm form;
    bool ready = false;
    bp_weight imported = nullptr;
    Buffer buffer;
    bp_matrix matrix{};  // once it is ready
  };
  std::uint64_t uses_on(Slot slot) const;
  bool imports(Device& device, std::uint64_t uses) const;
  bp_weight_desc description(bp_weight_part& part, std::uint64_t uses) const;
  std::uint64_t realize_imported(Device& device, Held& held);
  std::uint64_t realize_canonical(Device& device, Held& held);
  std::uint64_t realize_converted(Device& device, Held& held);
  bool in_place_anywhere() const;

  const Devices* devices_;
  WeightSource source_;
  std::int64_t rows_, columns_;
  std::vector<std::array<std::uint32_t, 64>> uses_;  // by slot: how many ops use it so, by bit
  std::vector<std::vector<Held>> held_;              // by slot
};

}  // namespace backplane::device

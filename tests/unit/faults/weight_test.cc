// Each call of bringing a weight into a plugin's layout and out of it again fails once, in each way.
#include "core/device/weight.h"

#include "tests/support/tiny_model.h"
#include "tests/unit/faults/sweep.h"

namespace backplane {
namespace {

using device::Weight;
using test::Fate;
using test::FaultKind;
using test::Trial;

constexpr std::uint64_t kRows = 6, kColumns = 4;

class WeightFaults : public testing::TestWithParam<std::tuple<bool, FaultKind>> {
 protected:
  WeightFaults() {
    test::TinyRandom random(3);
    values_ = test::tiny_values(random, kRows * kColumns, 1);
  }

  device::WeightSource source(const std::vector<float>& values) const {
    device::WeightSource made;
    made.name = "w";
    made.transposed = std::get<0>(GetParam());
    made.stored = {std::as_bytes(std::span(values)), DType::kF32, kRows, kColumns};
    return made;
  }

  // As canonical rows, in two calls.
  std::vector<float> read(device::Device& device, bp_weight weight) const {
    std::vector<float> out(values_.size());
    for (std::uint64_t row = 0; row < kRows; row += kRows / 2) {
      device.copy("weight export", [&](bp_context context) {
        return device.tables().weights->export_rows(device.handle(), device.stream(), context, weight, 0, row,
                                                    kRows / 2, out.data() + row * kColumns,
                                                    kRows / 2 * kColumns * sizeof(float));
      });
    }
    return out;
  }

  Fate run(std::uint64_t n, Trial& trial, std::string& phase) const {
    const device::Devices devices{trial.open(), test::open_device("cpu:f32")};
    device::Device& device = *devices[0];
    Fate fate = Fate::kGoneOn;
    Weight weight(devices, source(values_)), other(devices, source(values_));
    const auto bring = [&](Weight& w) {
      w.add_use(BP_USE_LINEAR);
      const std::size_t form = w.choose(0, w.forms(0, BP_USE_LINEAR).at(0));
      w.realize(0, form);
      return w.matrix(0, form).weight;
    };
    const bp_weight sound = bring(other);
    bp_weight handle = nullptr;
    trial.arm(n);
    try {
      phase = "import";
      handle = bring(weight);
      phase = "export";
      if (handle) {
        EXPECT_EQ(read(device, handle), values_);
      }
      phase = "unload";
    } catch (const Error& error) {
      trial.expect_told(error);
      fate = Fate::kTold;
    }
    if (!trial.happened()) return fate;
    if (fate == Fate::kGoneOn) {
      EXPECT_EQ(kind().status, bp_status{BP_UNSUPPORTED});
      EXPECT_EQ(handle, nullptr) << "refused, so the rows are kept as they are";
    }
    if (trial.loses()) {
      EXPECT_THROW(read(device, sound), DeviceLost);
    } else {
      EXPECT_EQ(read(device, sound), values_) << "another weight of the device";
      if (phase == "export") {
        EXPECT_EQ(read(device, handle), values_);
      }
    }
    return fate;
  }
  const FaultKind& kind() const { return std::get<1>(GetParam()); }

  std::vector<float> values_;
};

TEST_P(WeightFaults, EveryCallFailsOnce) {
  std::uint64_t n = 1;
  for (; !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    Trial trial(kind(), 0);
    std::string phase;
    const Fate fate = run(n, trial, phase);
    trial.expect_clean();
    if (!trial.happened()) break;
    test::note_fault(phase + " weight", kind(), fate);
  }
  EXPECT_GT(n, 8u);
}

INSTANTIATE_TEST_SUITE_P(Sweep, WeightFaults, testing::Combine(testing::Bool(), testing::ValuesIn(test::kFaultKinds)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param) ? "Transposed" : "Straight") +
                                  std::get<1>(each.param).name;
                         });

}  // namespace
}  // namespace backplane

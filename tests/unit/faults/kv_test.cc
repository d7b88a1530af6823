// Each call of moving KV pages fails once, in each way: from a device to the host, from the host to a device, between
// devices, and where a model prefills on one and decodes on another.
#include "models/kv_copy.h"
#include "models/phase_model.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/faults/talk.h"

namespace backplane {
namespace {

using test::Answer;
using test::Equal;
using test::Fate;
using test::FaultKind;
using test::Trial;

using Bytes = std::vector<std::byte>;
const std::vector<std::int32_t> kPages{2, 0}, kOtherPages{1, 5};

// K and V of pages, layer after layer.
std::vector<Bytes> read(models::LoadedModel& model, const std::vector<std::int32_t>& pages = kPages) {
  device::KvPool& pool = model.executor().kv();
  std::vector<Bytes> out;
  for (std::uint32_t layer = 0; layer < pool.spec().layers.size(); ++layer) {
    Bytes k(pages.size() * pool.k_page_bytes(layer)), v(pages.size() * pool.v_page_bytes(layer));
    pool.read_pages(layer, pages, k, v);
    out.push_back(std::move(k));
    out.push_back(std::move(v));
  }
  return out;
}

void write(models::LoadedModel& model, const std::vector<Bytes>& bytes) {
  device::KvPool& pool = model.executor().kv();
  for (std::uint32_t layer = 0; layer < pool.spec().layers.size(); ++layer) {
    pool.write_pages(layer, kPages, bytes[2 * layer], bytes[2 * layer + 1]);
  }
}

class KvFaults : public testing::TestWithParam<std::tuple<const char*, FaultKind>> {
 protected:
  KvFaults()
      : file_({"two layers", [](const test::TempFolder& folder) { return test::write_tiny_llama(folder); }, "",
               std::get<0>(GetParam())}),
        other_(file_.load(test::open_opaque())),
        on_cpu_(file_.load(test::open_device("cpu:f32"))) {
    want_ = test::ask(*other_);
    test::talk(*other_);
    test::talk(*on_cpu_);
    from_cpu_ = read(*on_cpu_);
  }

  std::string no_table() const { return std::get<0>(GetParam()); }
  const FaultKind& kind() const { return std::get<1>(GetParam()); }

  // All ways, one after another. `phase`: the one under way.
  void move(models::LoadedModel& model, std::string& phase) {
    phase = "export";
    const std::vector<Bytes> own = read(model);
    phase = "import";
    write(model, from_cpu_);
    phase = "copy within";
    model.copy_pages(0, kPages, kOtherPages);
    phase = "copy from";
    models::copy_kv_pages(model.executor(), other_->executor(), 0, kPages);
    phase = "none";
    EXPECT_EQ(read(*other_), from_cpu_);
    write(*other_, own);
    phase = "copy to";
    models::copy_kv_pages(other_->executor(), model.executor(), 0, kPages);
    phase = "unload";
  }

  Fate run(std::uint64_t n, Trial& trial, std::string& phase) {
    const auto model = file_.load(trial);
    test::ask(*model);
    const std::vector<Bytes> own = read(*model);
    trial.arm(n);
    Fate fate = Fate::kGoneOn;
    try {
      move(*model, phase);
      if (!trial.happened()) return fate;
    } catch (const Error& error) {
      trial.expect_told(error);
      fate = Fate::kTold;
    }
    EXPECT_EQ(fate, Fate::kTold) << "a copy that failed and nobody knows";
    if (trial.loses()) {
      EXPECT_THROW(model->executor().chosen().sync(), DeviceLost);
      if (no_table() != "kv") {
        EXPECT_THROW(read(*model), DeviceLost);
        EXPECT_THROW(write(*model, own), DeviceLost);
      }
    } else {  // once more, from what there was
      write(*model, own);
      std::string again;
      move(*model, again);
      EXPECT_EQ(read(*model), own);
      EXPECT_EQ(read(*model, kOtherPages), from_cpu_);
      expect_right(trial, test::ask(*model), want_, Equal::kTokens);
    }
    expect_right(trial, test::ask(*other_), want_, Equal::kBits);
    return fate;
  }

  test::FaultFile file_;
  std::unique_ptr<models::LoadedModel> other_, on_cpu_;
  std::vector<Answer> want_;
  std::vector<Bytes> from_cpu_;
};

TEST_P(KvFaults, EveryCallFailsOnce) {
  const std::string where = no_table().empty() ? " kv" : " kv on the host";
  std::uint64_t n = 1;
  for (; !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    Trial trial(kind(), 0);
    std::string phase;
    const Fate fate = run(n, trial, phase);
    trial.expect_clean();
    if (!trial.happened()) break;
    test::note_fault(phase + where, kind(), fate);
  }
  EXPECT_GT(n, no_table().empty() ? 16u : 4u);
}

INSTANTIATE_TEST_SUITE_P(Sweep, KvFaults,
                         testing::Combine(testing::Values("", "kv"), testing::ValuesIn(test::kFaultKinds)),
                         [](const auto& each) {
                           return std::string(*std::get<0>(each.param) ? "OnTheHost" : "OnTheDevice") +
                                  std::get<1>(each.param).name;
                         });

// Every call of steps that prefill here and decode there, on either of the two.
class PhaseFaults : public KvFaults {};

TEST_P(PhaseFaults, EveryCallOfTheStepsFailsOnce) {
  for (const bool prefill : {true, false}) {
    Trial trial(kind(), 0);
    {
      auto mortal = file_.load(trial), sound = file_.load(file_.open());
      models::PhaseModel model(std::move(prefill ? mortal : sound), std::move(prefill ? sound : mortal));
      const auto steps = test::record_talk(model);
      EXPECT_GT(model.pages_moved(), 0u);
      test::sweep_steps(model, steps, trial, prefill ? "prefill device" : "decode device");
    }
    trial.expect_clean();
  }
}

INSTANTIATE_TEST_SUITE_P(Sweep, PhaseFaults,
                         testing::Combine(testing::Values(""), testing::ValuesIn(test::lasting_kinds())),
                         [](const auto& each) { return std::get<1>(each.param).name; });

}  // namespace
}  // namespace backplane

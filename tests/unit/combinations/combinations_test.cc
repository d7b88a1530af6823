// Small models of every architecture on the test device with everything that is optional taken away in turn: what comes
// out is what comes out of cpu:f32. The program ends with a table of how many combinations ran and failed.
#include "tests/unit/combinations/device_kinds.h"

#include <fmt/format.h>

#include "tests/support/tiny_hf_model.h"
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

using test::DeviceKind;
using test::Outputs;

struct Model {
  const char* name;
  std::filesystem::path (*write)(const test::TempFolder&);
};
void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

using Folder = const test::TempFolder&;
const Model kModels[] = {
    {"llama", [](Folder f) { return test::write_tiny_llama(f, {.head_dim = 16}); }},
    {"gpt2", [](Folder f) { return test::write_tiny_gpt2(f); }},
    {"mistral", [](Folder f) { return test::write_tiny_hf(f, test::TinyHf::kMistral); }},
    {"qwen2", [](Folder f) { return test::write_tiny_hf(f, test::TinyHf::kQwen2); }},
    {"qwen3",
     [](Folder f) {
       return test::write_tiny_llama(f, {.qk_norm = true, .tied = true, .type = test::TinyType::kF16, .head_dim = 16});
     }},
    {"q8_0", [](Folder f) { return test::write_tiny_llama(f, {.window = 7, .type = test::TinyType::kQ8_0}); }},
};

// In what the device computes, and how far a logit may be from that of cpu:f32. The logits are of the size 3.
struct Arithmetic {
  const char* name;
  const char* device;
  bool want_f16;  // activations come and go in F16, sums are in double
  double bound;
};
void PrintTo(const Arithmetic& arithmetic, std::ostream* out) { *out << arithmetic.name; }

constexpr Arithmetic kArithmetics[] = {
    {"f32", "opaque:f32", false, 2e-5},
    {"wants_f16", "opaque:f32", true, 0.03},
    {"f16", "opaque:f16", false, 0.03},
};

// Counts by model and arithmetic.
class Table final : public testing::Environment {
 public:
  struct Cell {
    std::uint64_t run = 0, failed = 0, fell_back = 0;
    double worst = 0, bound = 0;
  };
  Cell& at(const std::string& model, const std::string& arithmetic) { return cells_[model + ", " + arithmetic]; }

  void TearDown() override {
    fmt::print("{:<24}{:>6}{:>8}{:>12}{:>12}{:>10}\n", "combinations", "run", "failed", "fell back", "worst", "bound");
    Cell sum;
    for (const auto& [name, cell] : cells_) {
      fmt::print("{:<24}{:>6}{:>8}{:>12}{:>12.2g}{:>10.2g}\n", name, cell.run, cell.failed, cell.fell_back, cell.worst,
                 cell.bound);
      sum.run += cell.run;
      sum.failed += cell.failed;
    }
    fmt::print("{} combinations run, {} failed\n", sum.run, sum.failed);
  }

 private:
  std::map<std::string, Cell> cells_;
};

Table* const table = [] {
  auto* made = new Table;  // gtest owns it
  testing::AddGlobalTestEnvironment(made);
  return made;
}();

class Combinations : public testing::TestWithParam<std::tuple<Model, Arithmetic>> {
 protected:
  Combinations() : path_(std::get<0>(GetParam()).write(folder_)) {
    const auto cpu = test::open_device("cpu:f32");
    const auto reference = test::load_on(path_, cpu, test::policy(device::FallbackPolicy::kDeny), cpu);
    want_ = test::run_all(*reference);
    vocabulary_ = reference->shape().vocab_size;
  }

  const Arithmetic& arithmetic() const { return std::get<1>(GetParam()); }

  void run(const DeviceKind& kind) {
    Table::Cell& cell = table->at(std::get<0>(GetParam()).name, arithmetic().name);
    const int before = failures();
    opaque::Report report;
    {
      std::string options = report.option();
      if (!kind.options.empty()) options.append(",").append(kind.options);
      if (arithmetic().want_f16) options.append(",").append(test::want_f16());
      const auto device = test::open_opaque(arithmetic().device, options, kind.tables);
      const auto model = test::load_on(path_, device, test::policy(device::FallbackPolicy::kAllow));
      for (const device::Site& site : model->executor().sites()) {
        EXPECT_FALSE(site.native && site.code == kind.gone) << site.name;
      }
      const Outputs got = test::run_all(*model);
      const double worst = worst_difference(got, want_);
      EXPECT_LE(worst, arithmetic().bound);
      // Of 48 rows; where the two best are closer than the bound allows for, either may be chosen.
      EXPECT_GT(expect_same_choices(got, want_, vocabulary_, arithmetic().bound), 24u);
      if (arithmetic().bound < 1e-3) {
        EXPECT_EQ(got.greedy, want_.greedy);
      }
      cell.worst = std::max(cell.worst, worst);
      cell.fell_back += !model->fallbacks().empty();
    }
    EXPECT_EQ(report.open, 0u);
    EXPECT_EQ(report.live, 0u);
    EXPECT_EQ(report.misuse, 0u);
    cell.bound = arithmetic().bound;
    ++cell.run;
    cell.failed += failures() != before;
  }

  static int failures() { return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count(); }

  test::TempFolder folder_;
  std::filesystem::path path_;
  Outputs want_;
  std::size_t vocabulary_ = 0;
};

TEST_P(Combinations, GiveTheSameTokens) {
  for (const DeviceKind& kind : test::device_kinds()) {
    SCOPED_TRACE(kind.group + ": " + kind.options);
    run(kind);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, Combinations,
                         testing::Combine(testing::ValuesIn(kModels), testing::ValuesIn(kArithmetics)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param).name) + "_" + std::get<1>(each.param).name;
                         });

}  // namespace
}  // namespace backplane

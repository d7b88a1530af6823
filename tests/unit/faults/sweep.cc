#include "tests/unit/faults/sweep.h"

#include <fmt/format.h>

#include <iterator>
#include <map>

namespace backplane::test {
namespace {

// By phase, in the order in which they were first seen, and kind.
class Table final : public testing::Environment {
 public:
  void note(const std::string& phase, const FaultKind& kind, Fate fate) {
    if (!rows_.contains(phase)) order_.push_back(phase);
    Cells& row = rows_[phase];
    ++row.faults[kind.name];
    ++row.fates[fate];
  }

  void note_wrong(const std::string& what, bool told) {
    ++wrong_[what].first;
    wrong_[what].second += told;
  }

  void TearDown() override {
    if (!order_.empty()) print_faults();
    if (wrong_.empty()) return;
    fmt::print("{:<34}{:>9}{:>8}\n", "wrong answers", "all", "told");
    for (const auto& [what, counts] : wrong_) fmt::print("{:<34}{:>9}{:>8}\n", what, counts.first, counts.second);
  }

 private:
  void print_faults() {
    std::string text = fmt::format("{:<34}", "faults injected");
    for (const FaultKind& kind : kFaultKinds) text += fmt::format("{:>17}", kind.name);
    fmt::print("{}{:>9}{:>8}{:>8}{:>10}\n", text, "all", "told", "gone on", "failover");
    Cells sum;
    for (const std::string& phase : order_) {
      print(phase, rows_.at(phase));
      for (const auto& [name, count] : rows_.at(phase).faults) sum.faults[name] += count;
      for (const auto& [fate, count] : rows_.at(phase).fates) sum.fates[fate] += count;
    }
    print("all", sum);
  }

  struct Cells {
    std::map<std::string, std::uint64_t> faults;
    std::map<Fate, std::uint64_t> fates;
  };

  static void print(const std::string& phase, Cells& cells) {
    std::string text = fmt::format("{:<34}", phase);
    std::uint64_t all = 0;
    for (const FaultKind& kind : kFaultKinds) {
      text += fmt::format("{:>17}", cells.faults[kind.name]);
      all += cells.faults[kind.name];
    }
    fmt::print("{}{:>9}{:>8}{:>8}{:>10}\n", text, all, cells.fates[Fate::kTold], cells.fates[Fate::kGoneOn],
               cells.fates[Fate::kFailover]);
  }

  std::vector<std::string> order_;
  std::map<std::string, Cells> rows_;
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> wrong_;
};

Table* const table = [] {
  auto* made = new Table;  // gtest owns it
  testing::AddGlobalTestEnvironment(made);
  return made;
}();

}  // namespace

std::shared_ptr<device::Device> Trial::open(const std::string& options, const std::set<std::string>& without) {
  std::string all = report_.option();
  all += fmt::format(",fail_at={}:{}", n_ == 0 ? UINT64_MAX : n_, kind_.status);
  if (kind_.late) all += ",late=1";
  if (!options.empty()) all += "," + options;
  return open_opaque("opaque:f32", all, without);
}

void Trial::arm(std::uint64_t n) {
  n_ = n == 0 ? 0 : calls() + n;
  report_.fail_at = n == 0 ? UINT64_MAX : n_;
}

void Trial::expect_told(const Error& error) const {
  const std::string text = error.what();
  EXPECT_EQ(error.code(), kind_.status == BP_OUT_OF_MEMORY ? ErrorCode::kCapacity : ErrorCode::kDevice) << text;
  EXPECT_EQ(text.starts_with("device lost"), loses()) << text;
  EXPECT_NE(text.find(fmt::format("injected failure of call {})", n_)), std::string::npos) << text;
  const std::size_t device = text.find("): opaque:");  // before caps it has its number for a name
  ASSERT_NE(device, std::string::npos) << text;
  const std::size_t call = text.find(": ", device + 10);
  ASSERT_NE(call, std::string::npos) << text;
  EXPECT_GT(text.size(), call + 5) << text;
}

void Trial::expect_clean() const {
  EXPECT_EQ(report_.open, 0u);
  EXPECT_EQ(report_.live, 0u) << "objects that were left behind";
  EXPECT_EQ(report_.misuse, 0u) << "calls that the contract forbids";
}

void note_fault(const std::string& phase, const FaultKind& kind, Fate fate) { table->note(phase, kind, fate); }

void note_wrong(const std::string& what, bool told) { table->note_wrong(what, told); }

}  // namespace backplane::test

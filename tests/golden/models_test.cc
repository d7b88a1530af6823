// Every model of the shared data that we run, against float64 references: whole, chunked and batched, on both devices.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/engine/scorer.h"
#include "golden_file.h"
#include "models/load.h"
#include "tests/support/devices.h"
#include "tests/support/temp_folder.h"

namespace backplane {
namespace {

namespace fs = std::filesystem;
using test::GoldenCase;
using test::GoldenForm;

constexpr const char* kFamilies = "^(gpt2|llama|mistral|qwen2|qwen3$|stories260K|synth|tiny_gpt2)";

std::unique_ptr<models::LoadedModel> load(const GoldenForm& form, const std::string& device) {
  models::LoadOptions options;
  options.max_sequences = 8;
  options.context = 0;
  options.executor.policy = device::FallbackPolicy::kDeny;
  const auto chosen = test::open_device(device);
  if (!form.config) return models::load(models::ModelFile(form.model), chosen, chosen, options);
  test::TempFolder folder;
  for (const auto& file : fs::directory_iterator(form.model)) {
    if (file.path().filename() != "config.json") fs::copy(file.path(), folder.path() / file.path().filename());
  }
  fs::copy_file(*form.config, folder.path() / "config.json");
  return models::load(models::ModelFile(folder.path()), chosen, chosen, options);
}

using Rows = std::map<std::uint32_t, std::vector<double>>;

std::vector<Rows> score(engine::Model& model, std::vector<engine::ScoreLine> lines,
                        const engine::ScoreOptions& options) {
  std::vector<Rows> out(lines.size());
  engine::Scorer scorer(model);
  scorer.score(lines, options, [&](const engine::ScoredRows& rows) {
    for (std::size_t i = 0; i < rows.positions.size(); ++i) {
      const auto row = rows.row(i);
      out[rows.line][rows.positions[i]].assign(row.begin(), row.end());
    }
  });
  return out;
}

engine::ScoreLine line_of(const GoldenCase& c) {
  engine::ScoreLine line;
  line.positions.which = engine::Positions::kList;
  std::vector<TokenId> all = c.prompt;
  all.insert(all.end(), c.greedy.begin(), c.greedy.end());
  for (const auto& [position, row] : c.logits) {
    if (position < all.size()) line.positions.list.push_back(position);
  }
  if (line.positions.list.empty()) return line;
  line.ids.assign(all.begin(), all.begin() + line.positions.list.back() + 1);
  return line;
}

void expect_close(const Rows& got, const GoldenCase& c, double tolerance, const std::string& where) {
  for (const auto& [position, row] : got) {
    const std::vector<double>& want = c.logits.at(position);
    ASSERT_EQ(row.size(), want.size()) << where;
    double worst = 0;
    for (std::size_t i = 0; i < row.size(); ++i) worst = std::max(worst, std::abs(row[i] - want[i]));
    EXPECT_LE(worst, tolerance) << where << " position " << position;
  }
}

class ModelGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(ModelGoldenTest, LogitsEqualTheReferences) {
  const auto forms = test::golden_forms(kFamilies);
  if (forms.empty()) GTEST_SKIP() << "no shared data";
  const bool f64 = std::string(GetParam()) == "cpu:f64";
  for (const GoldenForm& form : forms) {
    SCOPED_TRACE(form.name);
    const test::Golden golden = test::read_golden(form.golden);
    // The references of models/ are rounded to six digits; those of models/hf are good to nine.
    const bool exact = f64 && form.golden.parent_path().parent_path().filename() == "hf";
    const double tolerance = exact ? 1e-6 : golden.tolerance;
    const auto model = load(form, GetParam());
    for (std::size_t i = 0; i < golden.cases.size(); ++i) {
      const engine::ScoreLine line = line_of(golden.cases[i]);
      if (line.ids.empty()) continue;
      expect_close(score(*model, {line}, {})[0], golden.cases[i], tolerance, form.name + " case " + std::to_string(i));
    }
  }
}

TEST_P(ModelGoldenTest, ChunksAndBatchesChangeNoBit) {
  const auto forms = test::golden_forms("^(gpt2|llama|mistral|qwen2|qwen3$)");
  if (forms.empty()) GTEST_SKIP() << "no shared data";
  for (const GoldenForm& form : forms) {
    SCOPED_TRACE(form.name);
    const test::Golden golden = test::read_golden(form.golden);
    const auto model = load(form, GetParam());
    std::vector<engine::ScoreLine> lines;
    for (const GoldenCase& c : golden.cases) lines.push_back(line_of(c));
    std::erase_if(lines, [](const auto& l) { return l.ids.empty(); });
    const auto whole = score(*model, lines, {});
    for (std::uint32_t chunk : {1u, 3u, 16u}) EXPECT_EQ(score(*model, lines, {chunk, false}), whole) << chunk;
    EXPECT_EQ(score(*model, lines, {std::nullopt, true}), whole) << "together";
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, ModelGoldenTest, testing::Values("cpu:f32", "cpu:f64"),
                         [](const auto& each) { return std::string(each.param).substr(4); });

}  // namespace
}  // namespace backplane

// Perplexities of the stories260K model, F32 and quantized, against numpy in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/engine/scorer.h"
#include "core/sample/logprobs.h"
#include "golden_file.h"
#include "models/load.h"
#include "tests/support/devices.h"

namespace backplane {
namespace {

double perplexity(engine::Model& model, const std::vector<TokenId>& ids) {
  engine::ScoreLine line{ids, {engine::Positions::kAll, {}}};
  double nll = 0;
  engine::Scorer(model).score(std::span(&line, 1), {}, [&](const engine::ScoredRows& rows) {
    for (std::size_t i = 0; i < rows.positions.size(); ++i) {
      const std::size_t next = rows.positions[i] + 1;
      if (next >= ids.size()) continue;
      const auto row = rows.row(i);
      double largest = row[0], sum = 0;
      for (double v : row) largest = std::max(largest, v);
      for (double v : row) sum += std::exp(v - largest);
      nll -= row[static_cast<std::size_t>(ids[next])] - largest - std::log(sum);
    }
  });
  return std::exp(nll / static_cast<double>(ids.size() - 1));
}

TEST(PerplexityGoldenTest, Stories260K) {
  const auto folder = test::shared_data() / "models" / "stories260K";
  std::ifstream in(folder / "perplexity.json");
  if (!in) GTEST_SKIP() << "no shared data";
  const nlohmann::json body = nlohmann::json::parse(in);
  const auto device = test::open_device("cpu:f32");
  for (const char* form : {"stories260K.gguf", "hf-f32"}) {
    const auto model = models::load(models::ModelFile(folder / form), device, device, {});
    for (const auto& c : body.at("cases")) {
      const double want = c.contains("ppl") ? c.at("ppl").get<double>() : c.at("perplexity").get<double>();
      EXPECT_NEAR(perplexity(*model, c.at("ids").get<std::vector<TokenId>>()) / want, 1, 1e-5)
          << form << " " << c.at("name");
    }
  }
}

}  // namespace
}  // namespace backplane

// What HF transformers' logits processors leave of rows of logits, and with which probabilities: vectors.json, written
// by make_vectors.py.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/sample/sampler.h"

namespace backplane::sample {
namespace {

using Json = nlohmann::json;

// As make_vectors.py makes them.
std::vector<double> logits_of(const Json& formula) {
  const double scale = formula["scale"];
  std::uint64_t state = formula["seed"];
  std::vector<double> out(formula["size"].get<std::size_t>());
  for (double& logit : out) {
    std::uint64_t total = 0;
    for (int i = 0; i < 4; ++i) {
      state = (state * 1103515245 + 12345) % 0x80000000;
      total += state;
    }
    logit = (static_cast<double>(total) / 0x80000000 - 2) * scale;
  }
  return out;
}

Sampler sampler_of(const Json& vector) {
  const Json& given = vector["params"];
  SamplingParams params;
  params.temperature = given.value("temperature", 1.0);
  params.top_k = given.value("top_k", 0);
  params.top_p = given.value("top_p", 1.0);
  params.min_p = given.value("min_p", 0.0);
  params.typical_p = given.value("typical_p", 1.0);
  params.repetition_penalty = given.value("repetition_penalty", 1.0);
  params.allowed_ids = given.value("allowed_ids", std::vector<TokenId>());
  params.bad_words = given.value("bad_words", std::vector<std::vector<TokenId>>());
  const Json biases = given.value("logit_bias", Json::object());
  for (const auto& [id, bias] : biases.items()) params.logit_bias[std::stoi(id)] = bias;
  const auto prompt = vector["prompt"].get<std::vector<TokenId>>();
  Sampler sampler(params, {.prompt = prompt,
                           .end_ids = given.value("end_ids", std::vector<TokenId>()),
                           .min_tokens = given.value("min_tokens", 0u)});
  for (const TokenId id : vector["output"]) sampler.accept(id);
  return sampler;
}

TEST(Vectors, AreThoseOfTransformers) {
  std::ifstream file(std::string(BACKPLANE_SOURCE_DIR) + "/tests/unit/sample/vectors.json");
  const Json vectors = Json::parse(file);
  ASSERT_GE(vectors.size(), 200u);
  for (const Json& vector : vectors) {
    SCOPED_TRACE(vector.dump());
    const auto left = sampler_of(vector).distribution(logits_of(vector["logits"]));
    ASSERT_EQ(left.size(), vector["kept"]);
    const Json& listed = vector["listed"];  // all, or as many from the beginning as from the end
    for (std::size_t i = 0; i < listed.size(); ++i) {
      const TokenProbability& ours = left[i < listed.size() / 2 ? i : left.size() - listed.size() + i];
      EXPECT_EQ(ours.id, listed[i][0]);
      EXPECT_NEAR(ours.probability, listed[i][1], 1e-11 + 1e-9 * ours.probability);
    }
  }
}

}  // namespace
}  // namespace backplane::sample

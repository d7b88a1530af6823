// Ids that independent implementations agree on (the shared data's README names them) for each vocabulary.
#include <gtest/gtest.h>

#include "core/formats/tokenizer_bundle.h"
#include "tests/unit/text/test_data.h"

namespace backplane::text {
namespace {

using formats::load_tokenizer;
using nlohmann::json;
namespace fs = std::filesystem;

struct Source {
  const char* golden;
  const char* tokenizer;
  bool decodes_to_text;
};

class GoldenTest : public testing::TestWithParam<Source> {};

void check_rows(const Tokenizer& tokenizer, const std::vector<json>& rows, bool decodes_to_text) {
  for (const json& row : rows) {
    const auto input = row["text"].get<std::string>();
    const auto want = row["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer.encode(input), want) << row["id"] << ": " << input;
    const auto special = row.contains("ids_special") ? row["ids_special"].get<std::vector<TokenId>>() : want;
    if (decodes_to_text) {
      EXPECT_EQ(tokenizer.encode(input, {.parse_special = true}), special) << row["id"] << ": " << input;
      EXPECT_EQ(tokenizer.decode(want), input);
    }
  }
}

TEST_P(GoldenTest, EncodesAndDecodes) {
  const fs::path golden = shared_data() / "vectors/golden" / GetParam().golden;
  const fs::path source = shared_data() / GetParam().tokenizer;
  SKIP_WITHOUT(golden);
  SKIP_WITHOUT(source);
  const auto rows = read_json_lines(golden);
  ASSERT_GT(rows.size(), 800u);
  check_rows(*load_tokenizer(source).tokenizer, rows, GetParam().decodes_to_text);
}

INSTANTIATE_TEST_SUITE_P(
    Vectors, GoldenTest,
    testing::Values(Source{"gpt2.jsonl", "tokenizers/gpt2/tokenizer.json", true},
                    Source{"gpt2.jsonl", "tokenizers/gpt2", true},
                    Source{"gpt2.jsonl", "vectors/ggml-vocab/ggml-vocab-gpt-2.gguf", true},
                    Source{"llama_spm.jsonl", "vectors/ggml-vocab/ggml-vocab-llama-spm.gguf", false},
                    Source{"open_llama_spm.jsonl", "tokenizers/open_llama_3b/tokenizer.model", false},
                    Source{"stories260K_spm.jsonl", "models/stories260K/stories260K.gguf", false},
                    Source{"stories260K_spm.jsonl", "models/stories260K/stories260K-f16.gguf", false},
                    Source{"stories260K_spm.jsonl", "models/stories260K/hf-f32/tokenizer.model", false},
                    Source{"stories260K_spm.jsonl", "models/stories260K/hf-f32/tokenizer.json", false}));

// The shared data has Qwen's tokenizer.json in three parts.
std::string joined_qwen(const fs::path& folder) {
  json whole = json::parse(read_text(folder / "tokenizer_meta.json"));
  json merges = json::array();
  std::istringstream lines(read_text(folder / "merges.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
  }
  whole["model"]["type"] = "BPE";
  whole["model"]["vocab"] = json::parse(read_text(folder / "vocab.json"));
  whole["model"]["merges"] = std::move(merges);
  return whole.dump();
}

TEST(QwenTest, EncodesAndDecodes) {
  const fs::path folder = shared_data() / "tokenizers/qwen";
  SKIP_WITHOUT(folder);
  const test::TempFolder scratch;
  const auto bundle = load_tokenizer(scratch.write("tokenizer.json", joined_qwen(folder)));
  for (const json& row : read_json_lines(shared_data() / "vectors/golden/qwen2.jsonl")) {
    const auto input = row["text"].get<std::string>();
    EXPECT_EQ(bundle.tokenizer->encode(input), row["ids"].get<std::vector<TokenId>>()) << row["id"] << ": " << input;
    const json& special = row.contains("ids_special") ? row["ids_special"] : row["ids"];
    EXPECT_EQ(bundle.tokenizer->encode(input, {.parse_special = true}), special.get<std::vector<TokenId>>()) << input;
  }
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::string inputs = read_text(shared_data() / "vectors/ggml-vocab/ggml-vocab-qwen2.gguf.inp") + separator;
  std::istringstream outputs(read_text(shared_data() / "vectors/ggml-vocab/ggml-vocab-qwen2.gguf.out"));
  int count = 0;
  for (std::string line; !inputs.empty() && std::getline(outputs, line); ++count) {
    const std::size_t end = inputs.find(separator);
    std::istringstream numbers(line);
    const std::vector<TokenId> want{std::istream_iterator<TokenId>(numbers), {}};
    EXPECT_EQ(bundle.tokenizer->encode(inputs.substr(0, end)), want) << inputs.substr(0, end);
    inputs.erase(0, end + separator.size());
  }
  EXPECT_GT(count, 40);
}

class VocabTest : public testing::TestWithParam<const char*> {};

TEST_P(VocabTest, MatchesLlamaCpp) {
  const fs::path path = shared_data() / "vectors/ggml-vocab" / GetParam();
  SKIP_WITHOUT(path);
  const auto bundle = load_tokenizer(path);
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::string inputs = read_text(path.string() + ".inp") + separator;
  std::istringstream outputs(read_text(path.string() + ".out"));
  int count = 0;
  for (std::string line; !inputs.empty() && std::getline(outputs, line); ++count) {
    const std::size_t end = inputs.find(separator);
    const std::string input = inputs.substr(0, end);
    std::istringstream numbers(line);
    const std::vector<TokenId> want{std::istream_iterator<TokenId>(numbers), {}};
    EXPECT_EQ(bundle.tokenizer->encode(input), want) << input;
    EXPECT_EQ(bundle.tokenizer->decode(want), input);
    inputs.erase(0, end + separator.size());
  }
  EXPECT_GT(count, 40);
}

INSTANTIATE_TEST_SUITE_P(Vectors, VocabTest,
                         testing::Values("ggml-vocab-gpt-2.gguf", "ggml-vocab-llama-spm.gguf", "ggml-vocab-falcon.gguf",
                                         "ggml-vocab-deepseek-coder.gguf"));

TEST(ModelFolderTest, TokenizerCases) {
  const fs::path models = shared_data() / "models/hf";
  SKIP_WITHOUT(models);
  int count = 0;
  for (const auto& entry : fs::directory_iterator(models)) {
    if (!fs::exists(entry.path() / "golden.json")) continue;
    const json golden = json::parse(read_text(entry.path() / "golden.json"));
    if (!golden.contains("tokenizer_cases")) continue;
    std::vector<fs::path> sources{entry.path()};
    for (const auto& file : fs::directory_iterator(entry.path())) {
      if (file.path().extension() == ".gguf") sources.push_back(file.path());
    }
    for (const fs::path& source : sources) {
      const auto bundle = load_tokenizer(source);
      for (const json& test : golden["tokenizer_cases"]) {
        const auto input = test["text"].get<std::string>();
        const auto want = test["ids"].get<std::vector<TokenId>>();
        EXPECT_EQ(bundle.tokenizer->encode(input, {.parse_special = true}), want) << source << ": " << input;
        EXPECT_EQ(bundle.tokenizer->decode(want), input) << source;
        ++count;
      }
    }
  }
  EXPECT_GT(count, 30);
}

}  // namespace
}  // namespace backplane::text

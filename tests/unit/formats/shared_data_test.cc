// Files made by others: hostile ones with their labels, and real model folders. Skipped where the data is absent.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/formats/gguf_rope.h"
#include "core/formats/hf_folder.h"

namespace backplane::formats {
namespace {

namespace fs = std::filesystem;

const fs::path kData = fs::path(BACKPLANE_SOURCE_DIR) / ".." / "shared" / "data";

#define NEED_DATA(part) \
  if (!fs::exists(kData / (part))) GTEST_SKIP() << "no shared data"

enum class Outcome { kOpened, kRefused };

Outcome outcome(const fs::path& path) {
  try {
    const auto container = open_container(path);
    // What a listing would touch, and every byte of the data: a bad span ends the test program.
    container->metadata(8);
    [[maybe_unused]] volatile std::byte sink{};
    for (const TensorInfo& tensor : container->tensors()) {
      for (const std::byte byte : tensor.data) sink = byte;
    }
    return Outcome::kOpened;
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kBadFile || error.code() == ErrorCode::kCapacity) << error.what();
    EXPECT_NE(std::string(error.what()).find(path.filename()), std::string::npos) << error.what();
    return Outcome::kRefused;
  }
}

std::map<std::string, std::string> read_manifest(const fs::path& path) {
  std::map<std::string, std::string> expect;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const auto row = nlohmann::json::parse(line);
    expect[row.at("file")] = row.at("expect");
  }
  return expect;
}

void check_manifest(const fs::path& folder, std::size_t least) {
  const auto expect = read_manifest(folder / "manifest.jsonl");
  EXPECT_GE(expect.size(), least);
  for (const auto& [file, label] : expect) {
    SCOPED_TRACE(file + ": " + label);
    const Outcome got = outcome(folder / file);
    // Files named model-* are well-formed containers that are wrong as models, except for these two.
    const bool only_a_bad_model =
        file.starts_with("model-") && file != "model-arch-huge.gguf" && file != "model-arch-type.gguf";
    if (label == "reject-or-ok") continue;
    const bool good = only_a_bad_model || label != "reject";
    EXPECT_EQ(got, good ? Outcome::kOpened : Outcome::kRefused);
  }
}

TEST(SharedDataTest, HostileGguf) {
  NEED_DATA("adversarial/gguf");
  check_manifest(kData / "adversarial" / "gguf", 120);
}

TEST(SharedDataTest, HostileSafetensors) {
  NEED_DATA("adversarial/safetensors");
  check_manifest(kData / "adversarial" / "safetensors", 50);
}

TEST(SharedDataTest, HostileIndexes) {
  NEED_DATA("adversarial/safetensors-index");
  std::size_t cases = 0;
  for (const auto& folder : fs::directory_iterator(kData / "adversarial" / "safetensors-index")) {
    SCOPED_TRACE(folder.path().string());
    const Outcome wanted = folder.path().filename() == "ok" ? Outcome::kOpened : Outcome::kRefused;
    EXPECT_EQ(outcome(folder.path() / "model.safetensors.index.json"), wanted);
    EXPECT_EQ(outcome(folder.path()), Outcome::kRefused);  // no config.json
    ++cases;
  }
  EXPECT_GE(cases, 7u);
}

TEST(SharedDataTest, FilesFromTheWild) {
  NEED_DATA("adversarial/gguf-fuzz-bitnet-rs");
  std::size_t files = 0;
  for (const char* folder : {"gguf-fuzz-bitnet-rs", "gguf-fixtures-bitnet-rs", "gguf-third-party", "tokenizer"}) {
    for (const auto& file : fs::directory_iterator(kData / "adversarial" / folder)) {
      outcome(file.path());
      ++files;
    }
  }
  EXPECT_GE(files, 170u);
}

TEST(SharedDataTest, SmallSafetensors) {
  NEED_DATA("models/misc-safetensors");
  const fs::path folder = kData / "models" / "misc-safetensors";
  const auto sharded = open_container(folder / "SafeTensors.jl" / "sharded" / "model.safetensors.index.json");
  EXPECT_EQ(sharded->files().size(), 6u);
  EXPECT_EQ(sharded->tensor("bfloat16_357").shape, (std::vector<std::uint64_t>{3, 5, 7}));
  EXPECT_EQ(sharded->tensor("bfloat16_357").type, DType::kBF16);
  EXPECT_EQ(sharded->tensor("float8_e4m3fn_357").type, DType::kF8E4M3);
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : sharded->tensors()) bytes += tensor.data.size();
  EXPECT_EQ(bytes, 4305u);  // the index's total_size
  for (const auto& file : fs::directory_iterator(folder / "hf-samples"))
    EXPECT_EQ(outcome(file.path()), Outcome::kOpened);
}

// Counted with a reader of the headers in Python.
const struct {
  const char* folder;
  std::size_t tensors, bytes;
} kFolders[] = {{"cohere", 18, 214848},
                {"gemma", 29, 205184},
                {"gemma2", 46, 237184},
                {"gemma3-6layer", 80, 339840},
                {"gemma3-pattern2", 54, 282560},
                {"gpt2-tied", 40, 308640},
                {"gpt2-untied-ninner-scalelayer", 41, 343296},
                {"gptneox-parallel", 28, 267264},
                {"gptoss", 37, 230336},
                {"granite", 20, 215232},
                {"llama-bf16", 21, 136416},
                {"llama-gqa-untied-theta5e5-shards3", 30, 351552},
                {"llama-headdim", 20, 252096},
                {"llama-mha-tied", 20, 233664},
                {"llama-mqa-bias", 35, 215808},
                {"llama-rope-dynamic", 20, 215232},
                {"llama-rope-linear", 20, 215232},
                {"llama-rope-llama3", 20, 328960},
                {"llama-rope-longrope", 20, 206016},
                {"llama-rope-yarn", 20, 233664},
                {"llama-rope-yarn-default", 21, 291264},
                {"mistral-full-f16", 20, 110688},
                {"mistral-sliding", 21, 272832},
                {"mixtral", 41, 250496},
                {"olmo2", 24, 215808},
                {"phi", 33, 267696},
                {"phi3-longrope", 15, 443648},
                {"phi3-partial-sliding", 14, 215232},
                {"qwen2", 26, 329984},
                {"qwen2-sliding", 51, 226432},
                {"qwen3", 35, 226560},
                {"qwen3moe-norm", 56, 188224},
                {"smollm3", 38, 187008},
                {"stablelm", 32, 265344}};

TEST(SharedDataTest, ModelFolders) {
  NEED_DATA("models/hf");
  for (const auto& row : kFolders) {
    SCOPED_TRACE(row.folder);
    const auto folder = HuggingFaceFolder::open(kData / "models" / "hf" / row.folder);
    EXPECT_EQ(folder->tensors().size(), row.tensors);
    std::size_t bytes = 0;
    for (const TensorInfo& tensor : folder->tensors()) {
      bytes += tensor.data.size();
      ASSERT_TRUE(tensor.type);
      EXPECT_EQ(row_bytes(*tensor.type, tensor.elements()), tensor.data.size());
    }
    EXPECT_EQ(bytes, row.bytes);
    EXPECT_FALSE(folder->architecture().empty());
    EXPECT_EQ(folder->eos_token_ids().size(), 1u);
  }
}

void expect_same(const RopeSettings& a, const RopeSettings& b) {
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.theta, b.theta);
  EXPECT_EQ(a.factor, b.factor);
  EXPECT_EQ(a.attention_factor, b.attention_factor);
  EXPECT_EQ(a.beta_fast, b.beta_fast);
  EXPECT_EQ(a.beta_slow, b.beta_slow);
  EXPECT_EQ(a.low_freq_factor, b.low_freq_factor);
  EXPECT_EQ(a.high_freq_factor, b.high_freq_factor);
  EXPECT_EQ(a.truncate, b.truncate);
  EXPECT_EQ(a.original_max_position_embeddings, b.original_max_position_embeddings);
  EXPECT_EQ(a.short_factor, b.short_factor);
  EXPECT_EQ(a.long_factor, b.long_factor);
  EXPECT_EQ(a.partial_rotary_factor, b.partial_rotary_factor);
}

// Each folder has its config in the spelling of 2023 and in today's; both gave the same logits elsewhere.
TEST(SharedDataTest, BothSpellingsOfRope) {
  NEED_DATA("models/hf");
  for (const auto& row : kFolders) {
    SCOPED_TRACE(row.folder);
    const fs::path folder = kData / "models" / "hf" / row.folder;
    const auto now = HfConfig::from_file(folder / "config.json"),
               then = HfConfig::from_file(folder / "config.legacy.json");
    const RopeSet a = rope_settings_from_config(now), b = rope_settings_from_config(then);
    expect_same(a.full, b.full);
    ASSERT_EQ(a.sliding.has_value(), b.sliding.has_value());
    EXPECT_EQ(a.sliding.has_value(), std::string(row.folder).starts_with("gemma3"));
    if (a.sliding) expect_same(*a.sliding, *b.sliding);
    EXPECT_EQ(now.dtype(), then.dtype());
    for (const HfConfig& config : {now, then}) {
      for (const std::string& key : config.unread_keys())
        EXPECT_FALSE(key.starts_with("rope_") || key.starts_with("rotary_")) << key;
    }
  }
}

TEST(SharedDataTest, RopeOfGguf) {
  NEED_DATA("models/hf");
  const auto read = [](const char* folder, std::string_view arch) {
    return rope_settings_from_gguf(*Gguf::open(kData / "models" / "hf" / folder / "model-f32.gguf"), arch);
  };
  // The published formula for factor 8, low 1, high 4, original 64, base 5e5, 16 dimensions.
  const auto factors = read("llama-rope-llama3", "llama").full.frequency_factors;
  ASSERT_EQ(factors.size(), 8u);
  EXPECT_EQ(factors[0], 1);
  EXPECT_NEAR(factors[1], 2.4422593898300864, 1e-6);
  for (std::size_t i = 2; i < 8; ++i) EXPECT_EQ(factors[i], 8);
  const RopeSettings phi = read("phi3-longrope", "phi3").full;
  const auto config = HfConfig::from_file(kData / "models" / "hf" / "phi3-longrope" / "config.json");
  const RopeSettings same = rope_settings_from_config(config).full;
  EXPECT_EQ(phi.type, same.type);
  EXPECT_EQ(phi.factor, same.factor);
  EXPECT_EQ(phi.original_max_position_embeddings, same.original_max_position_embeddings);
  ASSERT_EQ(phi.long_factor.size(), same.long_factor.size());
  for (std::size_t i = 0; i < phi.long_factor.size(); ++i) EXPECT_NEAR(phi.long_factor[i], same.long_factor[i], 1e-5);
  const RopeSet gemma = read("gemma3-6layer", "gemma3");
  EXPECT_EQ(gemma.full.theta, 1e6);
  ASSERT_TRUE(gemma.sliding);
  EXPECT_EQ(gemma.sliding->theta, 1e4);
}

}  // namespace
}  // namespace backplane::formats

// Seeded mutations of small valid files: whatever the bytes, a reader returns a consistent container or throws Error.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/error.h"
#include "core/formats/gguf_rope.h"
#include "core/formats/hf_folder.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/safetensors_builder.h"
#include "tests/support/temp_folder.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // their shadow memory doesn't fit a limit on address space
#else
constexpr bool kSanitized = false;
#endif

namespace backplane::formats {
namespace {

using Random = std::mt19937_64;

// Values that lengths, counts, offsets and types go wrong with.
constexpr std::array<std::uint64_t, 16> kTroublesome = {0,          1,          7,          8,          31,
                                                        32,         255,        65536,      1ull << 31, UINT32_MAX,
                                                        1ull << 32, 1ull << 61, 1ull << 62, 1ull << 63, UINT64_MAX - 7,
                                                        UINT64_MAX};

// Few enough for every test run; BACKPLANE_FUZZ_ROUNDS asks for more.
int num_rounds() {
  const char* asked = std::getenv("BACKPLANE_FUZZ_ROUNDS");
  return asked ? std::max(1000, std::atoi(asked)) : 4000;
}

std::size_t pick(Random& random, std::size_t below) { return below == 0 ? 0 : random() % below; }

void mutate(std::string& bytes, Random& random) {
  const std::size_t at = pick(random, bytes.size());
  switch (random() % 6) {
    case 0:  // a bit
      if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      break;
    case 1:  // a byte
      if (!bytes.empty()) bytes[at] = static_cast<char>(random());
      break;
    case 2:  // the end
      bytes.resize(at);
      break;
    case 3: {  // a number of 4 or 8 bytes
      const std::uint64_t value = kTroublesome[pick(random, kTroublesome.size())] + random() % 3 - 1;
      const std::size_t width = random() % 2 ? 8 : 4;
      if (at + width <= bytes.size()) std::memcpy(bytes.data() + at, &value, width);
      break;
    }
    case 4:  // a piece twice
      bytes.insert(pick(random, bytes.size() + 1), bytes.substr(at, 1 + random() % 40));
      break;
    default:  // a piece lost
      bytes.erase(at, 1 + random() % 12);
  }
}

// Text is mutated with what its syntax is made of, too.
void mutate_text(std::string& text, Random& random) {
  constexpr std::array<std::string_view, 20> kPieces = {"{",
                                                        "}",
                                                        "[",
                                                        "]",
                                                        "\"",
                                                        ",",
                                                        ":",
                                                        "0",
                                                        "-1",
                                                        "1e400",
                                                        "1.5",
                                                        "null",
                                                        "true",
                                                        "\\u0000",
                                                        "\\ud800",
                                                        "18446744073709551616",
                                                        "18446744073709551615",
                                                        "[[[[",
                                                        "\"a\"",
                                                        "\xff"};
  if (random() % 3 == 0) return mutate(text, random);
  const std::string_view piece = kPieces[pick(random, kPieces.size())];
  const std::size_t at = pick(random, text.size() + 1);
  text.replace(at, random() % 4, piece);
}

void check_consistent(const Container& container) {
  for (const TensorInfo& tensor : container.tensors()) {
    ASSERT_LT(tensor.file, container.files().size());
    const auto mapping = container.files()[tensor.file].bytes();
    if (!tensor.data.empty()) {
      ASSERT_GE(tensor.data.data(), mapping.data());
      ASSERT_LE(tensor.data.data() + tensor.data.size(), mapping.data() + mapping.size());
    }
    ASSERT_EQ(container.find(tensor.name), &tensor);
    if (tensor.type) {
      ASSERT_EQ(row_bytes(*tensor.type, tensor.elements()), tensor.data.size());
    }
  }
  // Serializing refuses invalid UTF-8, so names and texts are checked by it.
  ASSERT_FALSE(container.metadata(3).dump().empty());
}

void check_gguf(const Gguf& gguf) {
  for (const GgufEntry& entry : gguf.entries()) {
    ASSERT_EQ(gguf.find_value(entry.key), &entry.value);
    const GgufArray* array = entry.value.as_array();
    if (array && array->strings()) {
      ASSERT_EQ(array->strings()->size(), array->size());
    }
    if (array && array->numbers()) {
      ASSERT_EQ(array->numbers()->size(), array->size());
    }
  }
  rope_settings_from_gguf(gguf, "llama");
}

// Runs `use` on mutations of `seed`. An Error may come out of it, but not for want of memory.
void fuzz(const std::string& seed, void (*change)(std::string&, Random&),
          const std::function<void(std::string_view)>& use) {
  if (!kSanitized) {
    const rlimit limit{1u << 30, 1u << 30};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  }
  use(seed);
  Random random(20240607);
  const int rounds = num_rounds();
  int opened = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = seed;
    for (std::size_t i = 0, changes = 1 + random() % 4; i < changes; ++i) change(bytes, random);
    SCOPED_TRACE("round " + std::to_string(round));
    try {
      use(bytes);
      ++opened;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kBadFile) << error.what();
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
  // Mutations that all fail at the first check, or never do, would try nothing.
  EXPECT_GT(opened, rounds / 200);
  EXPECT_LT(opened, rounds - rounds / 200);
}

std::string gguf_seed(std::uint32_t version) {
  test::GgufBuilder builder;
  builder.version = version;
  builder.string("general.architecture", "llama").u32("general.alignment", 32).u32("llama.context_length", 64);
  builder.f32("llama.rope.freq_base", 5e5f)
      .string("llama.rope.scaling.type", "yarn")
      .f32("llama.rope.scaling.factor", 4);
  builder.boolean("flag", true).i64("signed", -1).f64("real", 0.5).u16("split.no", 0).u16("split.count", 1);
  builder.strings("tokenizer.ggml.tokens", {"a", "bc", "", "\xc3\xa9"}).array<float>("scores", 6, {1, 2, 3});
  builder.array<std::int32_t>("types", 5, {1, 2}).array<std::uint8_t>("flags", 7, {0, 1});
  builder.f32_tensor("rope_freqs.weight", {2}, {1, 2}).tensor("q", 2, {32, 2}, std::string(36, 'q'));
  builder.tensor("k", 12, {256}, std::string(144, 'k')).tensor("iq", 17, {256}, std::string(74, 'i'));
  return builder.build();
}

TEST(FormatsFuzz, Gguf) {
  const test::TempFolder folder;
  for (const std::uint32_t version : {2u, 3u}) {
    fuzz(gguf_seed(version), mutate, [&](std::string_view bytes) {
      const auto container = open_container(folder.write("m.gguf", bytes));
      check_consistent(*container);
      if (const auto* gguf = dynamic_cast<const Gguf*>(container.get())) check_gguf(*gguf);
    });
  }
}

const std::string kHeader = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                            R"("b":{"dtype":"BF16","shape":[],"data_offsets":[8,10],"note":{"x":[1,null]}},)"
                            R"("c":{"dtype":"F8_E8M0","shape":[0,3],"data_offsets":[10,10]}})";

TEST(FormatsFuzz, SafetensorsBytes) {
  const test::TempFolder folder;
  fuzz(test::safetensors_file(kHeader, "0123456789"), mutate,
       [&](std::string_view bytes) { check_consistent(*open_container(folder.write("m.safetensors", bytes))); });
}

TEST(FormatsFuzz, SafetensorsHeader) {
  const test::TempFolder folder;
  fuzz(kHeader, mutate_text, [&](std::string_view header) {
    check_consistent(*open_container(folder.write("m.safetensors", test::safetensors_file(header, "0123456789"))));
  });
}

TEST(FormatsFuzz, Index) {
  const test::TempFolder folder;
  folder.write("1.safetensors", test::safetensors_file(kHeader, "0123456789"));
  fuzz(R"({"metadata":{"total_size":10},"weight_map":{"a":"1.safetensors","b":"1.safetensors"}})", mutate_text,
       [&](std::string_view text) {
         check_consistent(*Safetensors::open_index(folder.write("model.safetensors.index.json", text)));
       });
}

TEST(FormatsFuzz, Config) {
  fuzz(R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,"eos_token_id":[1,2],"max_position_embeddings":128,)"
       R"("rope_theta":1e4,"rope_scaling":{"type":"longrope","factor":4,"short_factor":[1,2],"long_factor":[3,4]}})",
       mutate_text, [](std::string_view text) {
         const HfConfig config = HfConfig::from_text(text, "config.json");
         config.architecture();
         config.u64("hidden_size", 1);
         config.integers("eos_token_id");
         const RopeSet rope = rope_settings_from_config(config);
         ASSERT_GT(rope.full.theta, 0);
         ASSERT_GT(rope.full.factor, 0);
         ASSERT_EQ(rope.full.short_factor.size(), rope.full.long_factor.size());
         config.unread_keys();
       });
}

}  // namespace
}  // namespace backplane::formats

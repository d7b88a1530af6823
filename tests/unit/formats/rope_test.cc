#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/formats/gguf_rope.h"
#include "core/formats/hf_config.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/temp_folder.h"

namespace backplane::formats {
namespace {

using test::GgufBuilder;

RopeSet from_config(std::string_view text, const RopeDefaults& defaults = {}) {
  return rope_settings_from_config(HfConfig::from_text(text, "config.json"), defaults);
}

TEST(ConfigRopeTest, DefaultsWhenNothingIsSaid) {
  const RopeSet set = from_config("{}", {.theta = 5000, .partial_rotary_factor = 0.5});
  EXPECT_EQ(set.full.type, "default");
  EXPECT_EQ(set.full.theta, 5000);
  EXPECT_EQ(set.full.factor, 1);
  EXPECT_EQ(set.full.partial_rotary_factor, 0.5);
  EXPECT_FALSE(set.full.attention_factor);
  EXPECT_FALSE(set.sliding);
}

TEST(ConfigRopeTest, OldAndNewSpellingsMeanTheSame) {
  for (
      const char* text :
      {R"({"rope_theta":5e5,"rope_scaling":{"type":"linear","factor":4.0},"partial_rotary_factor":0.25})",
       R"({"rotary_emb_base":5e5,"rope_scaling":{"rope_type":"linear","type":"linear","factor":4},"rotary_pct":0.25})",
       R"({"rope_parameters":{"rope_type":"linear","factor":4.0,"rope_theta":5e5,"partial_rotary_factor":0.25}})",
       R"({"rope_theta":5e5,"rope_scaling":null,"rope_parameters":{"rope_type":"linear","factor":4.0,"partial_rotary_factor":0.25}})"}) {
    const RopeSettings rope = from_config(text).full;
    EXPECT_EQ(rope.type, "linear") << text;
    EXPECT_EQ(rope.theta, 5e5) << text;
    EXPECT_EQ(rope.factor, 4) << text;
    EXPECT_EQ(rope.partial_rotary_factor, 0.25) << text;
  }
}

TEST(ConfigRopeTest, Yarn) {
  const RopeSettings rope = from_config(R"({"max_position_embeddings":128,"rope_scaling":{"type":"yarn","factor":4.0,
      "original_max_position_embeddings":32,"attention_factor":1.3,"beta_fast":4,"beta_slow":0.5,"mscale":0.7,
      "mscale_all_dim":1.0,"truncate":false,"finetuned":true}})")
                                .full;
  EXPECT_EQ(rope.type, "yarn");
  EXPECT_EQ(rope.factor, 4);
  EXPECT_EQ(rope.original_max_position_embeddings, 32u);
  EXPECT_EQ(rope.attention_factor, 1.3);
  EXPECT_EQ(rope.beta_fast, 4);
  EXPECT_EQ(rope.beta_slow, 0.5);
  EXPECT_EQ(rope.mscale, 0.7);
  EXPECT_EQ(rope.mscale_all_dim, 1);
  EXPECT_FALSE(rope.truncate);
  EXPECT_EQ(from_config(R"({"max_position_embeddings":128,"rope_scaling":{"type":"yarn","factor":4.0}})")
                .full.original_max_position_embeddings,
            128u);
}

TEST(ConfigRopeTest, Llama3AndDynamic) {
  const RopeSettings llama3 = from_config(R"({"max_position_embeddings":512,"rope_parameters":{"rope_type":"llama3",
      "factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64}})")
                                  .full;
  EXPECT_EQ(llama3.type, "llama3");
  EXPECT_EQ(llama3.low_freq_factor, 1);
  EXPECT_EQ(llama3.high_freq_factor, 4);
  EXPECT_EQ(llama3.original_max_position_embeddings, 64u);
  // Dynamic scaling starts where the configured context ends, whatever else the file says.
  const RopeSettings dynamic =
      from_config(
          R"({"max_position_embeddings":32,"rope_scaling":{"type":"dynamic","factor":2.0,"original_max_position_embeddings":8}})")
          .full;
  EXPECT_EQ(dynamic.type, "dynamic");
  EXPECT_EQ(dynamic.original_max_position_embeddings, 32u);
}

TEST(ConfigRopeTest, Longrope) {
  for (const char* type : {"longrope", "su"}) {
    const RopeSettings rope =
        from_config(fmt::format(R"({{"max_position_embeddings":128,"original_max_position_embeddings":32,
        "rope_scaling":{{"type":"{}","short_factor":[1.0,1.5],"long_factor":[2,3.5]}}}})",
                                type))
            .full;
    EXPECT_EQ(rope.type, "longrope");
    EXPECT_EQ(rope.factor, 4);  // 128 / 32
    EXPECT_EQ(rope.original_max_position_embeddings, 32u);
    EXPECT_EQ(rope.short_factor, (std::vector<double>{1, 1.5}));
    EXPECT_EQ(rope.long_factor, (std::vector<double>{2, 3.5}));
  }
}

TEST(ConfigRopeTest, LayerTypes) {
  const RopeSet nested =
      from_config(R"({"rope_parameters":{"full_attention":{"rope_theta":1e6,"rope_type":"linear","factor":8},
      "sliding_attention":{"rope_type":"default","rope_theta":5000.0}}})");
  const RopeSet old = from_config(
      R"({"rope_theta":1e6,"rope_local_base_freq":5000.0,"rope_scaling":{"rope_type":"linear","factor":8.0}})");
  for (const RopeSet& set : {nested, old}) {
    EXPECT_EQ(set.full.theta, 1e6);
    EXPECT_EQ(set.full.type, "linear");
    EXPECT_EQ(set.full.factor, 8);
    ASSERT_TRUE(set.sliding);
    EXPECT_EQ(set.sliding->theta, 5000);
    EXPECT_EQ(set.sliding->type, "default");
    EXPECT_EQ(set.sliding->factor, 1);
  }
}

TEST(ConfigRopeTest, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const char* text, const char* part) {
    EXPECT_ERROR(from_config(text), ErrorCode::kBadFile, part);
  };
  refused(R"({"rope_scaling":{"type":"mrope","factor":2.0}})", "'mrope'");
  refused(R"({"rope_scaling":{"type":"default","mrope_section":[1,2]}})", "'mrope_section'");
  refused(R"({"rope_parameters":{"full_attention":{"rope_type":"default","alpha":1}}})", "'alpha'");
  refused(R"({"rope_parameters":{"full_attention":{"rope_type":"default"},"chunked_attention":{}}})",
          "'chunked_attention'");
  refused(R"({"rope_scaling":{"type":"linear"}})", "needs a factor");
  refused(R"({"rope_scaling":{"type":"linear","factor":0}})", "'factor'");
  refused(R"({"rope_scaling":{"type":"linear","factor":"2"}})", "'rope_scaling.factor'");
  refused(R"({"rope_scaling":{"type":"yarn","factor":2}})", "needs max_position_embeddings");
  refused(R"({"max_position_embeddings":0,"rope_scaling":{"type":"dynamic","factor":2}})",
          "needs max_position_embeddings");
  refused(R"({"max_position_embeddings":9,"rope_scaling":{"type":"llama3","factor":2}})", "low_freq_factor");
  refused(R"({"max_position_embeddings":9,"rope_scaling":{"type":"longrope","short_factor":[1],"long_factor":[]}})",
          "short_factor");
  refused(R"({"max_position_embeddings":9,"rope_scaling":{"type":"longrope","short_factor":[0],"long_factor":[1]}})",
          "short_factor");
  refused(R"({"rope_theta":-1})", "'rope_theta'");
  refused(R"({"partial_rotary_factor":1.5})", "partial_rotary_factor");
  refused(R"({"rope_scaling":[1]})", "'rope_scaling'");
}

TEST(ConfigRopeTest, CountsItsKeysAsRead) {
  const auto config = HfConfig::from_text(
      R"({"rope_theta":1e4,"rope_scaling":{"type":"linear","factor":2.0},"rotary_pct":1.0,"hidden_size":8})", "c");
  rope_settings_from_config(config);
  EXPECT_EQ(config.unread_keys(), (std::vector<std::string>{"hidden_size"}));
}

class GgufRopeTest : public ::testing::Test {
 protected:
  RopeSet read(const GgufBuilder& builder) {
    return rope_settings_from_gguf(*Gguf::open(folder_.write("m.gguf", builder.build())), "llama");
  }
  void refused(const GgufBuilder& builder, const char* part) { EXPECT_ERROR(read(builder), ErrorCode::kBadFile, part); }

  test::TempFolder folder_;
};

TEST_F(GgufRopeTest, PlainAndLinear) {
  EXPECT_EQ(read(GgufBuilder()).full.theta, 10000);
  EXPECT_EQ(read(GgufBuilder()).full.type, "default");
  const auto rope = read(GgufBuilder().f32("llama.rope.freq_base", 5e5f).u32("llama.rope.dimension_count", 16)).full;
  EXPECT_EQ(rope.theta, 5e5);
  EXPECT_EQ(rope.rotary_dimensions, 16u);
  const auto linear =
      read(GgufBuilder().string("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4)).full;
  EXPECT_EQ(linear.type, "linear");
  EXPECT_EQ(linear.factor, 4);
  EXPECT_EQ(read(GgufBuilder().f32("llama.rope.scale_linear", 2)).full.type, "linear");
  EXPECT_EQ(read(GgufBuilder().f32("llama.rope.scale_linear", 1)).full.type, "default");
  EXPECT_EQ(
      read(GgufBuilder().string("llama.rope.scaling.type", "none").f32("llama.rope.scaling.factor", 4)).full.factor, 1);
}

TEST_F(GgufRopeTest, YarnMultipliesItsOwnAttentionFactor) {
  GgufBuilder yarn;
  yarn.string("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4);
  yarn.u32("llama.rope.scaling.original_context_length", 32).boolean("llama.rope.scaling.finetuned", true);
  EXPECT_FALSE(read(yarn).full.attention_factor);
  EXPECT_EQ(read(yarn).full.original_max_position_embeddings, 32u);
  yarn.f32("llama.rope.scaling.attn_factor", 0.5f).f32("llama.rope.scaling.yarn_beta_fast", 16);
  EXPECT_NEAR(*read(yarn).full.attention_factor, 0.5 * (1 + 0.1 * std::log(4.0)), 1e-12);
  EXPECT_EQ(read(yarn).full.beta_fast, 16);
}

TEST_F(GgufRopeTest, TensorsOfFactors) {
  const auto llama3 = read(GgufBuilder().f32_tensor("rope_freqs.weight", {3}, {1, 2.5f, 8})).full;
  EXPECT_EQ(llama3.type, "default");
  EXPECT_EQ(llama3.frequency_factors, (std::vector<double>{1, 2.5, 8}));
  GgufBuilder builder;
  builder.u32("llama.context_length", 128).u32("llama.rope.scaling.original_context_length", 32);
  builder.f32("llama.rope.scaling.attn_factor", 1.25f);
  builder.f32_tensor("rope_factors_long.weight", {2}, {2, 3}).f32_tensor("rope_factors_short.weight", {2}, {1, 1.5f});
  const auto longrope = read(builder).full;
  EXPECT_EQ(longrope.type, "longrope");
  EXPECT_EQ(longrope.factor, 4);
  EXPECT_EQ(longrope.attention_factor, 1.25);
  EXPECT_EQ(longrope.long_factor, (std::vector<double>{2, 3}));
  EXPECT_EQ(longrope.short_factor, (std::vector<double>{1, 1.5}));
}

TEST_F(GgufRopeTest, SlidingLayers) {
  const auto set = read(GgufBuilder().f32("llama.rope.freq_base", 1e6f).f32("llama.rope.freq_base_swa", 1e4f));
  EXPECT_EQ(set.full.theta, 1e6);
  ASSERT_TRUE(set.sliding);
  EXPECT_EQ(set.sliding->theta, 1e4);
}

TEST_F(GgufRopeTest, RefusesWhatItDoesNotKnow) {
  refused(GgufBuilder().array<std::int32_t>("llama.rope.dimension_sections", 5, {1, 2}),
          "'llama.rope.dimension_sections'");
  refused(GgufBuilder().string("llama.rope.scaling.type", "ntk"), "'ntk'");
  refused(GgufBuilder().f32("llama.rope.freq_base", NAN), "'llama.rope.freq_base'");
  refused(GgufBuilder().f32("llama.rope.freq_base", -1), "'llama.rope.freq_base'");
  refused(GgufBuilder().string("llama.rope.freq_base", "1"), "'llama.rope.freq_base'");
  refused(GgufBuilder().f32("llama.rope.scaling.yarn_log_multiplier", 0.1f), "yarn_log_multiplier");
  refused(GgufBuilder().f32("llama.rope.scaling.yarn_ext_factor", 0.5f), "yarn_ext_factor");
  refused(GgufBuilder().string("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 2),
          "context length");
  refused(GgufBuilder().string("llama.rope.scaling.type", "longrope").u32("llama.context_length", 8),
          "tensors of factors");
  refused(GgufBuilder().f32_tensor("rope_freqs.weight", {2}, {1, 0}), "rope_freqs.weight");
  refused(GgufBuilder().tensor("rope_freqs.weight", 1, {2}, "abcd"), "rope_freqs.weight");
  refused(GgufBuilder().f32_tensor("rope_factors_long.weight", {1}, {1}), "differ in length");
}

}  // namespace
}  // namespace backplane::formats

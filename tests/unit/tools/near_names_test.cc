#include "tools/near_names.h"

#include <gtest/gtest.h>

namespace backplane::tools {
namespace {

using Names = std::vector<std::string>;

const Names kTensors = {"token_embd.weight",    "blk.0.attn_q.weight", "blk.0.attn_k.weight",    "blk.1.attn_q.weight",
                        "blk.10.attn_q.weight", "output_norm.weight",  "model.layers.0.mlp.bias"};

TEST(NearNames, AreThoseWithTheFewestLettersChanged) {
  EXPECT_EQ(near_names("token_embed.weight", kTensors), Names{"token_embd.weight"});
  EXPECT_EQ(near_names("blk.2.attn_q.weight", kTensors),
            (Names{"blk.0.attn_q.weight", "blk.1.attn_q.weight", "blk.0.attn_k.weight"}));
  EXPECT_EQ(near_names("BLK.0.attn_k.weight", kTensors).front(), "blk.0.attn_k.weight");
  EXPECT_EQ(near_names("blk.0.attn_q.weight", kTensors, 1), Names{"blk.0.attn_q.weight"});
}

TEST(NearNames, AreAlsoThoseThatHoldTheWantedOne) {
  EXPECT_EQ(near_names("output", kTensors), Names{"output_norm.weight"});
  EXPECT_EQ(near_names("attn_q", kTensors),
            (Names{"blk.0.attn_q.weight", "blk.1.attn_q.weight", "blk.10.attn_q.weight"}));
  EXPECT_EQ(near_names("mlp.bias", kTensors), Names{"model.layers.0.mlp.bias"});
}

TEST(NearNames, AreNoneWhereNothingIsNear) {
  EXPECT_EQ(near_names("lm_head", kTensors), Names{});
  EXPECT_EQ(near_names("", kTensors), Names{});
  EXPECT_EQ(near_names("x", {}), Names{});
  EXPECT_EQ(near_names(std::string(100000, 'x'), kTensors), Names{});
  EXPECT_EQ(near_names("x", {std::string(100000, 'y'), "", "y"}), (Names{"", "y"}));
}

}  // namespace
}  // namespace backplane::tools

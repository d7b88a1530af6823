#include "tools/prompt.h"

#include <gtest/gtest.h>

#include "core/formats/gguf.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_chat_model.h"

namespace backplane::tools {
namespace {

formats::TokenizerBundle bundle(bool add_bos, const std::string& source) {
  test::GgufBuilder gguf;
  gguf.string("general.architecture", "llama");
  std::vector<std::string> pieces;
  for (unsigned byte = 0; byte < 256; ++byte) pieces.push_back(test::byte_level_piece(byte));
  pieces.insert(pieces.end(), {"<s>", "</s>"});
  std::vector<std::int32_t> kinds(258, 1);
  kinds[256] = kinds[257] = 3;
  gguf.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "gpt-2");
  gguf.strings("tokenizer.ggml.tokens", pieces).strings("tokenizer.ggml.merges", {});
  gguf.array<std::int32_t>("tokenizer.ggml.token_type", 5, kinds);
  gguf.u32("tokenizer.ggml.bos_token_id", 256).u32("tokenizer.ggml.eos_token_id", 257);
  gguf.boolean("tokenizer.ggml.add_bos_token", add_bos);
  if (!source.empty()) gguf.string("tokenizer.chat_template", source);
  const test::TempFolder folder;
  return formats::load_tokenizer(folder.write("v.gguf", gguf.build()));
}

const std::vector<ChatMessage> kHello = {{"user", "A"}};

TEST(ChatPrompt, ParsesTheTemplatesSpecialTokens) {
  const auto tokenizer = bundle(false, "{{ messages[0].content }}{{ eos_token }}");
  EXPECT_EQ(ChatPrompt(tokenizer).ids(kHello), (std::vector<TokenId>{'A', 257}));
}

TEST(ChatPrompt, HasOneBosWhereTheTokenizerWantsIt) {
  const auto written = bundle(true, "{{ bos_token }}{{ messages[0].content }}");
  EXPECT_EQ(ChatPrompt(written).ids(kHello), (std::vector<TokenId>{256, 'A'}));
  const auto silent = bundle(true, "{{ messages[0].content }}");
  EXPECT_EQ(ChatPrompt(silent).ids(kHello), (std::vector<TokenId>{256, 'A'}));
}

TEST(ChatPrompt, NeedsATemplate) {
  const auto tokenizer = bundle(false, "");
  EXPECT_ERROR(ChatPrompt{tokenizer}, ErrorCode::kBadFile, "no chat template");
}

TEST(CompletionPrompt, LeavesSpecialTokensText) {
  const auto tokenizer = bundle(true, "");
  EXPECT_EQ(completion_prompt(*tokenizer.tokenizer, "<s>"), (std::vector<TokenId>{256, '<', 's', '>'}));
}

TEST(ParseIds, TakesNumbersWithAnythingUsualBetweenThem) {
  EXPECT_EQ(parse_ids("1,2,3"), (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(parse_ids(" [1, 2]\n3;4 "), (std::vector<TokenId>{1, 2, 3, 4}));
  EXPECT_EQ(parse_ids(""), std::vector<TokenId>());
  for (const char* bad : {"x", "1,x", "-1", "1.5", "2147483648", "0x10"}) {
    EXPECT_ERROR(parse_ids(bad), ErrorCode::kUsage, "not a token id");
  }
}

}  // namespace
}  // namespace backplane::tools

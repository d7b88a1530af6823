// The readers: where things come from, and what broken or unsupported files are told.
#include <gtest/gtest.h>

#include <functional>

#include "core/formats/tokenizer_bundle.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_builder.h"
#include "tests/unit/text/test_data.h"

namespace backplane::text {
namespace {

using formats::load_tokenizer;
using nlohmann::json;
using test::GgufBuilder;
using test::TempFolder;
using Ids = std::vector<TokenId>;

json small_json() {
  return json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}, {"id": 5, "content": "</s>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": ["a b"]}})");
}

void expect_refusal(const std::function<void(json&)>& change, const std::string& part) {
  json file = small_json();
  change(file);
  const TempFolder folder;
  const auto path = folder.write("tokenizer.json", file.dump());
  EXPECT_ERROR(load_tokenizer(path), ErrorCode::kBadFile, part);
}

TEST(TokenizerJsonTest, NamesWhatItDoesNotSupport) {
  expect_refusal([](json& f) { f["model"]["type"] = "Unigram"; }, "Unigram");
  expect_refusal([](json& f) { f["pre_tokenizer"]["type"] = "BertPreTokenizer"; }, "BertPreTokenizer");
  expect_refusal([](json& f) { f["normalizer"] = {{"type", "BertNormalizer"}}; }, "BertNormalizer");
  expect_refusal([](json& f) { f["post_processor"] = {{"type", "Other"}}; }, "Other");
  expect_refusal([](json& f) { f["decoder"]["type"] = "WordPiece"; }, "WordPiece");
  expect_refusal([](json& f) { f["model"]["dropout"] = 0.1; }, "dropout");
  expect_refusal([](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix");
  expect_refusal(
      [](json& f) {
        f["pre_tokenizer"] = json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "ByteLevel"}, {"type": "Digits"}]})");
      },
      "behind ByteLevel");
}

TEST(TokenizerJsonTest, RefusesBrokenFiles) {
  expect_refusal([](json& f) { f.erase("model"); }, "model");
  expect_refusal([](json& f) { f["model"].erase("vocab"); }, "vocabulary");
  expect_refusal([](json& f) { f["model"]["vocab"] = "ab"; }, "vocabulary");
  expect_refusal([](json& f) { f["model"].erase("merges"); }, "merges");
  expect_refusal([](json& f) { f["model"]["vocab"]["b"] = 0; }, "'a'");
  expect_refusal([](json& f) { f["model"]["vocab"]["b"] = -1; }, "no valid id");
  expect_refusal([](json& f) { f["model"]["vocab"]["b"] = 4000000000u; }, "far beyond");
  expect_refusal([](json& f) { f["model"]["merges"] = {"b c"}; }, "merge 0");
  expect_refusal([](json& f) { f["model"]["merges"] = {"ab"}; }, "two pieces");
  expect_refusal([](json& f) { f["model"]["merges"] = {1}; }, "pair");
  expect_refusal([](json& f) { f["added_tokens"][0]["id"] = 0; }, "<s>");
  expect_refusal([](json& f) { f["added_tokens"][0].erase("id"); }, "no id");
  expect_refusal([](json& f) { f["model"]["unk_token"] = "?"; }, "unknown token");
  expect_refusal([](json& f) { f["pre_tokenizer"] = json::parse(R"({"type": "Split", "pattern": {"Regex": "(a"}})"); },
                 "regular expression");
  expect_refusal(
      [](json& f) {
        for (int depth = 0; depth < 40; ++depth)
          f["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {f["pre_tokenizer"]}}};
      },
      "nested too deeply");
  const TempFolder folder;
  EXPECT_ERROR(load_tokenizer(folder.write("a.json", "{\"model\": ")), ErrorCode::kBadFile, "broken JSON");
  EXPECT_ERROR(load_tokenizer(folder.write("b.json", "[]")), ErrorCode::kBadFile, "tokenizer.json");
  EXPECT_ERROR(load_tokenizer(folder.write("empty", "")), ErrorCode::kBadFile, "empty");
  EXPECT_ERROR(load_tokenizer(folder.path() / "absent"), ErrorCode::kBadFile, "absent");
}

TEST(TokenizerFolderTest, TakesWhatLiesBesideTheTokenizer) {
  const TempFolder folder;
  folder.write("tokenizer.json", small_json().dump());
  folder.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": true,
      "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  folder.write("generation_config.json", R"({"eos_token_id": [5, 1, 99]})");
  const auto bundle = load_tokenizer(folder.path());
  EXPECT_EQ(bundle.tokenizer->encode("ab ", {.add_special = true}), (Ids{4, 2, 3}));
  EXPECT_EQ(bundle.bos_token, "<s>");
  EXPECT_EQ(bundle.eos_token, "</s>");
  EXPECT_EQ(bundle.tokenizer->eos(), 5);
  EXPECT_EQ(bundle.tokenizer->special().end_of_generation, (Ids{1, 5}));
  EXPECT_TRUE(bundle.tokenizer->is_end_of_generation(1));
  EXPECT_EQ(bundle.chat_template, "D");
  folder.write("chat_template.jinja", "J");
  EXPECT_EQ(load_tokenizer(folder.path()).chat_template, "J");
}

TEST(TokenizerFolderTest, VocabAndMerges) {
  const TempFolder folder;
  EXPECT_ERROR(load_tokenizer(folder.path()), ErrorCode::kBadFile, "no tokenizer");
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  folder.write("merges.txt", "#version: 0.2\na b\n");
  const auto bundle = load_tokenizer(folder.path());
  EXPECT_EQ(bundle.tokenizer->encode("abb<|endoftext|>", {.parse_special = true}), (Ids{2, 1, 3}));
  EXPECT_EQ(bundle.eos_token, "<|endoftext|>");
  EXPECT_FALSE(bundle.chat_template);
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizer"})");
  EXPECT_ERROR(load_tokenizer(folder.path()), ErrorCode::kBadFile, "CLIPTokenizer");
}

GgufBuilder gguf(const std::string& model, std::vector<std::string> tokens) {
  GgufBuilder file;
  file.string("general.architecture", "llama").string("tokenizer.ggml.model", model);
  file.strings("tokenizer.ggml.tokens", tokens);
  return file;
}

TEST(TokenizerGgufTest, ByteLevel) {
  const TempFolder folder;
  GgufBuilder file = gguf("gpt2", {"a", "1", "a1", "<|im_end|>", "aa"});
  file.string("tokenizer.ggml.pre", "smollm").strings("tokenizer.ggml.merges", {"a a"});
  file.array<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 3, 1}).u32("tokenizer.ggml.eos_token_id", 3);
  file.string("tokenizer.chat_template", "{{ messages }}");
  const auto bundle = load_tokenizer(folder.write("m.gguf", file.build()));
  EXPECT_EQ(bundle.tokenizer->encode("aa11a<|im_end|>", {.add_special = true, .parse_special = true}),
            (Ids{4, 1, 1, 0, 3}));
  EXPECT_EQ(bundle.tokenizer->special().end_of_generation, (Ids{3}));
  EXPECT_EQ(bundle.tokenizer->eot(), 3);
  EXPECT_EQ(bundle.chat_template, "{{ messages }}");
}

TEST(TokenizerGgufTest, Scores) {
  const TempFolder folder;
  GgufBuilder file = gguf("llama", {"<unk>", "<s>",
                                    "\xE2\x96\x81"
                                    "a",
                                    "\xE2\x96\x81", "a", "<0x62>"});
  file.array<float>("tokenizer.ggml.scores", 6, {0, 0, -1, -2, -3, 0}).u32("tokenizer.ggml.bos_token_id", 1);
  file.array<std::int32_t>("tokenizer.ggml.token_type", 5, {2, 3, 1, 1, 1, 6})
      .u32("tokenizer.ggml.unknown_token_id", 0);
  file.u32("tokenizer.ggml.padding_token_id", 0xFFFFFFFF);
  const auto bundle = load_tokenizer(folder.write("m.gguf", file.build()));
  EXPECT_EQ(bundle.tokenizer->encode("aa a", {.add_special = true}), (Ids{1, 2, 4, 2}));
  EXPECT_EQ(bundle.tokenizer->encode("a<s>a", {.parse_special = true}), (Ids{2, 1, 2}));
  EXPECT_EQ(bundle.tokenizer->encode("<s>"), (Ids{3, 0}));
  EXPECT_EQ(bundle.tokenizer->decode(Ids{2, 4, 2}), "aa a");
  EXPECT_EQ(bundle.tokenizer->token_bytes(5), "b");
  EXPECT_EQ(bundle.tokenizer->pad(), kNoToken);
}

TEST(TokenizerGgufTest, RefusesWhatDoesNotFit) {
  const TempFolder folder;
  const auto refused = [&](const GgufBuilder& file, const std::string& part) {
    EXPECT_ERROR(load_tokenizer(folder.write("m.gguf", file.build())), ErrorCode::kBadFile, part);
  };
  refused(GgufBuilder().string("general.architecture", "llama"), "no tokenizer");
  refused(gguf("bert", {"a"}), "bert");
  refused(gguf("gpt2", {"a"}).string("tokenizer.ggml.pre", "new-one").strings("tokenizer.ggml.merges", {}), "new-one");
  refused(gguf("gpt2", {"a"}), "merges");
  refused(gguf("gpt2", {"a"}).strings("tokenizer.ggml.merges", {"a a"}), "merge 0");
  refused(gguf("gpt2", {"a"}).strings("tokenizer.ggml.merges", {}).u32("tokenizer.ggml.eos_token_id", 1),
          "eos_token_id");
  refused(gguf("llama", {"a", "b"}).array<float>("tokenizer.ggml.scores", 6, {1}), "1 scores for 2 tokens");
  refused(gguf("llama", {"a"}).array<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 1}),
          "2 token types for 1 tokens");
  refused(gguf("llama", {"a"}).array<std::int32_t>("tokenizer.ggml.token_type", 5, {7}), "token type 7");
}

TEST(SentencePieceFileTest, RefusesBrokenAndOtherModels) {
  const TempFolder folder;
  const auto refused = [&](const std::string& bytes, const std::string& part) {
    EXPECT_ERROR(load_tokenizer(folder.write("tokenizer.model", bytes)), ErrorCode::kBadFile, part);
  };
  refused(
      "\x0A\x7F"
      "abc",
      "cut off");
  refused("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "broken");
  refused(std::string(1, '\x0B'), "broken");  // a wire type that isn't used
  refused("\x12\x02\x18\x01", "no pieces");
  refused(std::string("\x0A\x02\x08\x01", 4), "field 1");  // a piece that is a number
  refused(std::string("\x0A\x03\x0A\x01"
                      "a\x12\x02\x18\x01",
                      9),
          "unigram");
  refused(std::string("\x0A\x05\x0A\x01"
                      "a\x18\x09",
                      7),
          "unknown type");
  const std::string good = std::string(
      "\x0A\x03\x0A\x01"
      "a\x12\x02\x18\x02\x1A\x02\x18\x00",
      13);
  EXPECT_EQ(load_tokenizer(folder.write("tokenizer.model", good)).tokenizer->encode("aa"), (Ids{0, 0}));
}

// Every prefix and every changed byte of small files: an error or a tokenizer, nothing else.
TEST(TokenizerFilesTest, SurvivesDamage) {
  const TempFolder folder;
  GgufBuilder file = gguf("gpt2", {"a", "b", "ab"});
  file.strings("tokenizer.ggml.merges", {"a b"}).string("tokenizer.ggml.pre", "gpt-2");
  const std::string model(
      "\x0A\x03\x0A\x01"
      "a\x12\x02\x18\x02\x1A\x06\x12\x02\x18\x00\x18\x00",
      17);
  for (const std::string& whole : {file.build(), small_json().dump(), model}) {
    int survived = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
      for (const std::string& bytes : {whole.substr(0, i), changed}) {
        try {
          load_tokenizer(folder.write("file", bytes)).tokenizer->encode("ab a<s>", {.add_special = true});
          ++survived;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kBadFile) << error.what();
        }
      }
    }
    EXPECT_LT(survived, static_cast<int>(2 * whole.size()));
  }
}

TEST(TokenizerFilesTest, SharedAdversarialFiles) {
  const auto folder = shared_data() / "adversarial/tokenizer";
  SKIP_WITHOUT(folder);
  int refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    try {
      load_tokenizer(entry.path()).tokenizer->encode("hello");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile);
      ++refused;
    }
  }
  EXPECT_GE(refused, 7);
  EXPECT_ERROR(load_tokenizer(shared_data() / "tokenizers/sentencepiece/test_model.model"), ErrorCode::kBadFile,
               "unigram");
}

}  // namespace
}  // namespace backplane::text

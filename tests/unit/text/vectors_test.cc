// vectors.json: ids and pieces from Hugging Face's tokenizers and Google's sentencepiece (made by make_vectors.py).
#include <gtest/gtest.h>

#include "core/formats/tokenizer_bundle.h"
#include "core/text/detokenizer.h"
#include "core/text/scanner.h"
#include "core/text/utf8.h"
#include "tests/unit/text/test_data.h"

namespace backplane::text {
namespace {

using nlohmann::json;

const json& vectors() {
  static const json all =
      json::parse(read_text(std::filesystem::path(BACKPLANE_SOURCE_DIR) / "tests/unit/text/vectors.json"));
  return all;
}

std::string decode_base64(const std::string& encoded) {
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0, count = 0;
  for (const char c : encoded) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<unsigned>(alphabet.find(c));
    count += 6;
    if (count >= 8) out.push_back(static_cast<char>(bits >> (count -= 8) & 0xFF));
  }
  return out;
}

TEST(VectorsTest, Scanners) {
  const std::pair<const char*, ScannerKind> kinds[] = {{"gpt2", ScannerKind::kGpt2},
                                                       {"smollm", ScannerKind::kSmolLm},
                                                       {"llama3", ScannerKind::kLlama3},
                                                       {"qwen2", ScannerKind::kQwen2}};
  for (const auto& [name, kind] : kinds) {
    const Scanner scanner(kind);
    for (const json& test : vectors()["scanners"][name]) {
      const auto text = test["text"].get<std::string>();
      std::vector<std::string> pieces;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = scanner.next(text, at);
        pieces.push_back(text.substr(at, end - at));
        at = end;
      }
      EXPECT_EQ(pieces, test["pieces"].get<std::vector<std::string>>()) << name << ": " << text;
    }
  }
}

TEST(VectorsTest, TokenizerJson) {
  for (const auto& [name, vector] : vectors()["tokenizer_json"].items()) {
    const test::TempFolder folder;
    const auto bundle = formats::load_tokenizer(folder.write("tokenizer.json", vector["file"].dump()));
    for (const json& test : vector["cases"]) {
      const auto text = test["text"].get<std::string>();
      const bool special = test["special"];
      const auto ids = bundle.tokenizer->encode(text, {.add_special = special, .parse_special = special});
      EXPECT_EQ(ids, test["ids"].get<std::vector<TokenId>>()) << name << ": " << text;
      const std::string decoded = bundle.tokenizer->decode(ids, {.skip_special = true});
      EXPECT_EQ(to_valid_utf8(decoded), test["decoded"].get<std::string>()) << name << ": " << text;
      Detokenizer stream(bundle.tokenizer);
      std::string streamed;
      for (const TokenId id : ids) streamed += stream.push(id);
      EXPECT_EQ(streamed + stream.flush(), to_valid_utf8(decoded)) << name << ": " << text;
    }
  }
}

TEST(VectorsTest, SentencePiece) {
  for (const auto& [name, vector] : vectors()["sentencepiece"].items()) {
    const test::TempFolder folder;
    const auto path = folder.write("tokenizer.model", decode_base64(vector["model"].get<std::string>()));
    const auto bundle = formats::load_tokenizer(path);
    const bool all_known = name == "identity";  // sentencepiece decodes an unknown token as a sign of its own
    for (const json& test : vector["cases"]) {
      const auto text = test["text"].get<std::string>();
      const auto ids = test["ids"].get<std::vector<TokenId>>();
      EXPECT_EQ(bundle.tokenizer->encode(text), ids) << name << ": " << text;
      if (!all_known) continue;
      EXPECT_EQ(bundle.tokenizer->decode(ids), test["decoded"].get<std::string>()) << name << ": " << text;
    }
  }
}

}  // namespace
}  // namespace backplane::text

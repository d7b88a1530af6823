// tokenize and template.
#include <gtest/gtest.h>

#include "tests/e2e/program.h"

namespace backplane::test {
namespace {

class Tokenize : public ProgramTest {};
class Template : public ProgramTest {};

TEST_F(Tokenize, AnswersEachLine) {
  const auto lines = backplane_lines({"tokenize", model_, "--json"},
                                     {.stdin_text = "{\"text\": \"hi!\"}\n"
                                                    "{\"text\": \"a\\u2028b<|im_end|>\"}\n"
                                                    "{\"text\": \"<|im_end|>\", \"parse_special\": true}\n"
                                                    "{\"text\": \"\"}"});
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["ids"], Json::parse("[258, 33]"));
  EXPECT_EQ(lines[1]["ids"], Json::parse("[97, 226, 128, 168, 98, 60, 124, 105, 109, 95, 101, 110, 100, 124, 62]"));
  EXPECT_EQ(lines[2]["ids"], Json::parse("[257]"));
  EXPECT_EQ(lines[3]["ids"], Json::array());
}

TEST_F(Tokenize, DecodesToValidUtf8InOneLineEach) {
  const auto lines = backplane_lines({"tokenize", model_, "--decode", "--json"},
                                     {.stdin_text = "{\"ids\": [258, 33]}\n{\"ids\": [226, 128, 168, 226, 128]}\n"});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["text"], "hi!");
  EXPECT_EQ(lines[1]["text"], "\xE2\x80\xA8\xEF\xBF\xBD");
}

TEST_F(Tokenize, AnswersABadLineInItsPlace) {
  const auto lines = backplane_lines({"tokenize", model_, "--json"},
                                     {.stdin_text = "{\"text\": 1}\n{\"text\": \"a\"}\nnot json\n"}, 2);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["error"]["code"], "usage");
  EXPECT_EQ(lines[1]["ids"], Json::parse("[97]"));
  EXPECT_EQ(lines[2]["error"]["code"], "usage");
  const auto decoded =
      backplane_lines({"tokenize", model_, "--decode", "--json"}, {.stdin_text = "{\"ids\": [259]}\n"}, 2);
  EXPECT_EQ(decoded.at(0)["error"]["code"], "usage");
}

TEST_F(Tokenize, ShowsPiecesToPeople) {
  const ProgramRun run = backplane({"tokenize", model_, "-p", "hi\n"});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, "     258  \"hi\"\n      10  \"\\n\"\n2 tokens, 3 bytes\n");
  EXPECT_EQ(backplane({"tokenize", model_, "--decode"}, {.stdin_text = "258, 33"}).out, "hi!\n");
}

TEST_F(Template, RendersAFileAndAModel) {
  const std::string input =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"\xC3\xA9\"}], \"add_generation_prompt\": true}\n";
  const std::string want = "<|im_start|>user\n\xC3\xA9<|im_end|>\n<|im_start|>assistant\n";
  const std::string file = folder_.write("t.jinja", kSmallTemplate).string();
  EXPECT_EQ(backplane_json({"template", file, "--json"}, {.stdin_text = input})["text"], want);
  EXPECT_EQ(backplane_json({"template", model_, "--json"}, {.stdin_text = input})["text"], want);
  EXPECT_EQ(backplane({"template", model_}, {.stdin_text = input}).out, want + "\n");
}

TEST_F(Template, HasAModelsSpecialTokensUnlessTheyAreGiven) {
  SmallChatModel plain;
  plain.chat_template = false;
  const std::string none = write_model(plain, "none.gguf");
  expect_refusal({"template", none, "--json"}, 3, "no chat template", {.stdin_text = "{}\n"});
  GgufBuilder gguf;
  gguf.string("general.architecture", "llama");
  add_small_tokenizer(gguf, false, kImEnd);
  gguf.string("tokenizer.chat_template", "{{ bos_token }}|{{ eos_token }}");
  const std::string vocabulary = folder_.write("vocabulary.gguf", gguf.build()).string();
  const auto lines =
      backplane_lines({"template", vocabulary, "--json"}, {.stdin_text = "{}\n{\"eos_token\": \"E\"}\n"});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["text"], "<|im_start|>|<|im_end|>");
  EXPECT_EQ(lines[1]["text"], "<|im_start|>|E");
}

TEST_F(Template, AnswersWithTheTemplatesError) {
  const std::string file = folder_.write("t.jinja", "{{ raise_exception('no ' + name) }}").string();
  const auto lines = backplane_lines({"template", file, "--json"}, {.stdin_text = "{\"name\": \"way\"}\n"});
  EXPECT_NE(lines.at(0)["error"]["message"].get<std::string>().find("no way"), std::string::npos);
  const auto bad = backplane_lines({"template", file, "--json"}, {.stdin_text = "[1]\n"}, 2);
  EXPECT_EQ(bad.at(0)["error"]["code"], "usage");
  expect_refusal({"template", folder_.write("bad.jinja", "{% if %}").string(), "--json"}, 3, "line 1",
                 {.stdin_text = "{}\n"});
}

TEST_F(Template, ReadsTheClockOfReproducibleBuilds) {
  const std::string file = folder_.write("t.jinja", "{{ strftime_now('%Y-%m-%d') }}").string();
  EXPECT_EQ(
      backplane({"template", file}, {.stdin_text = "{}", .environment = {{"SOURCE_DATE_EPOCH", "951782400"}}}).out,
      "2000-02-29\n");
}

}  // namespace
}  // namespace backplane::test

// Every wrong use ends with one line that says what to do, and the right status.
#include <gtest/gtest.h>

#include "tests/e2e/program.h"

namespace backplane::test {
namespace {

class WrongUse : public ProgramTest {};

TEST_F(WrongUse, OfTheCommandLine) {
  expect_refusal({}, 2, "subcommand");
  expect_refusal({"frob"}, 2, "no such command: frob");
  expect_refusal({"run"}, 2, "model is required");
  expect_refusal({"run", model_, "--frob", "--json"}, 2, "--frob");
  expect_refusal({"run", model_, "-n", "many"}, 2, "many");
  expect_refusal({"run", model_, "-n", "-1", "-p", "x"}, 2, "-1");
  expect_refusal({"run", model_, "--fallback", "maybe"}, 2, "maybe");
  expect_refusal({"run", model_, "-p", "x", "--prompt-ids", "1"}, 2, "excludes");
  expect_refusal({"run", model_, "-p", "x", "--raw", "--chat"}, 2, "excludes");
  expect_refusal({"run", model_, "-p", "x", "--raw", "--system", "s"}, 2, "--system");
  expect_refusal({"run", model_, "-p", "x", "--top-logprobs", "2"}, 2, "--json");
  expect_refusal({"run", model_, "-p", "x", "--temperature", "-1", "--json"}, 2, "temperature");
  expect_refusal({"run", model_, "-p", "x", "--top-p", "nan"}, 2, "top_p");
  expect_refusal({"run", model_, "-p", "x", "-n", "0"}, 2, "at least one token");
  expect_refusal({"run", model_, "-p", "x", "--threads", "0"}, 2, "--threads");
  expect_refusal({"run", model_, "-p", "x", "--kv-type", "q4_0"}, 2, "--kv-type q4_0");
  expect_refusal({"run", model_, "--prompt-ids", "1,x"}, 2, "not a token id: x");
  expect_refusal({"run", model_, "--prompt-ids", "259"}, 2, "259");
  expect_refusal({"run", model_, "--raw", "-p", ""}, 2, "empty");
  expect_refusal({"score", model_}, 2, "--json");
  expect_refusal({"score", model_, "--json", "--chunk", "0"}, 2, "--chunk");
  expect_refusal({"score", model_, "--json", "--chunk", "2", "--together"}, 2, "excludes");
  expect_refusal({"score", model_, "--json", "--context", "5"}, 2, "--context");
  expect_refusal({"tokenize", model_, "--json", "-p", "x"}, 2, "-p");
  expect_refusal({"pull", "no-such-model"}, 2, "no-such-model");
}

// With --json every subcommand also says on standard output what went wrong, as one object, whatever it is.
TEST_F(WrongUse, IsToldInJsonByEverySubcommand) {
  const std::string missing = (folder_.path() / "missing.gguf").string(), no_plugin = "/no/such/plugin.so";
  const std::string report = (folder_.path() / "report.json").string();
  const std::vector<std::vector<std::string>> commands = {{"run", model_, "--json"},
                                                          {"devices", "--json"},
                                                          {"inspect", model_, "--json"},
                                                          {"tokenize", model_, "--json"},
                                                          {"score", model_, "--json"},
                                                          {"template", model_, "--json"},
                                                          {"pull", "--json"},
                                                          {"conform", "cpu:f32", "--json", report},
                                                          {"check", model_, "--json", report}};
  for (auto command : commands) {
    command.push_back("--frob");
    expect_refusal(command, 2, "--frob");
  }
  for (const char* command : {"run", "inspect", "tokenize", "score", "template"}) {
    expect_refusal({command, missing, "--json"}, 3, "missing.gguf");
    expect_refusal({command, "--json"}, 2, "is required");
  }
  expect_refusal({"check", missing, "--device", "cpu:f32", "--json", "-"}, 3, "missing.gguf");
  expect_refusal({"check", model_, "--json", "-"}, 2, "--device");
  expect_refusal({"check", model_, "--device", "tpu:0", "--json", "-"}, 4, "tpu:0");
  expect_refusal({"check", model_, "--device", "cpu:f32", "--options", "no_such=1", "--json", "-"}, 4, "no_such");
  expect_refusal({"conform", "tpu:0", "--json", report}, 4, "tpu:0");
  expect_refusal({"conform", "cpu:f32", "--options", "no_such=1", "--json", report}, 4, "no_such");
  expect_refusal({"conform", "--json", report}, 2, "is required");
  expect_refusal({"pull", "no-such-model", "--json"}, 2, "no-such-model");
  expect_refusal({"run", model_, "-p", "x", "--json", "--device", "tpu:0"}, 4, "tpu:0");
  expect_refusal({"inspect", model_, "--json", "--device", "tpu:0"}, 4, "tpu:0");
  expect_refusal({"inspect", model_, "--json", "--tensor", "token_emb.weight"}, 3, "token_embd.weight");
  expect_refusal({"score", model_, "--json", "--device", "tpu:0"}, 4, "tpu:0", {.stdin_text = "{\"ids\": [1]}"});
  for (const auto& command : commands) {
    if (command[0] == "tokenize" || command[0] == "template" || command[0] == "pull") continue;
    std::vector<std::string> with_plugin = command;
    with_plugin.insert(with_plugin.end(), {"--plugin", no_plugin});
    if (command[0] == "check") with_plugin.insert(with_plugin.end(), {"--device", "cpu:f32"});
    expect_refusal(with_plugin, 4, no_plugin, {.stdin_text = command[0] == "score" ? "{\"ids\": [1]}" : "x"});
  }
}

// Where each line has an answer of its own, a bad one gives an error in its place, and the others theirs.
TEST_F(WrongUse, OfOneLineIsToldInItsPlace) {
  for (const auto& [command, good, bad] :
       {std::tuple{"tokenize", R"({"text": "a"})", R"({"text": 1})"},
        std::tuple{"score", R"({"ids": [1, 2], "top": 1})", R"({"ids": [1, 100000]})"},
        std::tuple{"template", R"({"messages": [{"role": "user", "content": "a"}]})", "[]"}}) {
    const std::string input = std::string(good) + "\n" + bad + "\nno json\n" + good + "\n";
    const auto lines = backplane_lines({command, model_, "--json"}, {.stdin_text = input}, 2);
    ASSERT_EQ(lines.size(), 4u) << command;
    for (const std::size_t i : {0, 3}) EXPECT_FALSE(lines[i].contains("error")) << command << lines[i];
    for (const std::size_t i : {1, 2}) {
      EXPECT_TRUE(lines[i]["error"]["code"].is_string()) << command << lines[i];
      EXPECT_TRUE(lines[i]["error"]["message"].is_string()) << command << lines[i];
    }
  }
}

TEST_F(WrongUse, OfFiles) {
  const std::string missing = (folder_.path() / "missing.gguf").string();
  const std::string text = folder_.write("text", "just text").string();
  const std::string empty = folder_.write("empty", "").string();
  for (const char* command : {"run", "inspect", "tokenize", "score", "template"}) {
    expect_refusal({command, missing, "--json"}, 3, "missing.gguf");
    if (command == std::string("template")) continue;  // a text is a template
    expect_refusal({command, text, "--json"}, 3, "text");
    expect_refusal({command, empty, "--json"}, 3, "empty");
  }
  expect_refusal({"run", write_model({.architecture = "future"}, "f.gguf"), "-p", "x"}, 3, "future");
  expect_refusal({"run", folder_.path().string(), "-p", "x"}, 3, "config.json");
  expect_refusal({"inspect", model_, "--tensor", "none"}, 3, "there is no tensor 'none'");
  expect_refusal({"inspect", model_, "--tensor", "none"}, 3, "lists them all");
  expect_refusal({"inspect", model_, "--tensor", "token_emb.weight"}, 3, "did you mean token_embd.weight?");
  expect_refusal({"score", model_, "--text", missing}, 3, "missing.gguf");
  const std::string whole = small_chat_model();
  const std::string cut = folder_.write("cut.gguf", whole.substr(0, whole.size() - 100)).string();
  expect_refusal({"run", cut, "-p", "x", "--json"}, 3, "cut.gguf");
}

TEST_F(WrongUse, OfDevices) {
  expect_refusal({"run", model_, "-p", "x", "--device", "tpu:0", "--json"}, 4, "cpu:f32");  // what there is
  expect_refusal({"run", model_, "-p", "x", "--device", "cpu:f99"}, 4, "cpu:f99");
  expect_refusal({"run", model_, "-p", "x", "--plugin", "/no/such/plugin.so"}, 4, "/no/such/plugin.so");
  const std::string major = std::string(BACKPLANE_FAKE_PLUGINS) + "/backplane_wrong_major.json";
  expect_refusal({"run", model_, "-p", "x", "--plugin", major, "--device", "wrong_major"}, 4, "wrong_major");
}

TEST_F(WrongUse, OfTheContext) {
  expect_refusal({"run", model_, "--raw", "--json"}, 5, "300 tokens is longer than the context of 256",
                 {.stdin_text = std::string(300, 'x')});
  expect_refusal({"run", model_, "--raw", "--ctx", "16", "-p", "a text of more tokens"}, 5, "the context of 16");
  expect_refusal({"run", model_, "-p", "x", "--ctx", "4000000000"}, 5, "use --ctx ");
  const auto lines = backplane_lines({"score", model_, "--json", "--ctx", "16"},
                                     {.stdin_text = Json{{"ids", std::vector<int>(17, 1)}}.dump()}, 5);
  EXPECT_EQ(lines.at(0)["error"]["code"], "capacity");
}

TEST_F(WrongUse, OfTheOutput) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const ProgramRun run = run_program(
      {"/bin/sh", "-c", std::string("exec '") + BACKPLANE_PROGRAM + "' inspect '" + model_ + "' > /dev/full"});
  EXPECT_EQ(run.status, 5);
  EXPECT_NE(run.err.find("standard output"), std::string::npos) << run.err;
}

TEST(Help, IsThereForEveryCommandWithAnExample) {
  EXPECT_EQ(backplane({"--help"}).status, 0);
  EXPECT_EQ(backplane({"--version"}).status, 0);
  for (const char* command :
       {"run", "devices", "inspect", "tokenize", "score", "template", "pull", "conform", "check", "bench"}) {
    const ProgramRun help = backplane({command, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_NE(help.out.find(std::string("Usage: backplane ") + command), std::string::npos) << help.out;
    EXPECT_NE(help.out.find("Example:\n"), std::string::npos) << help.out;
  }
}

}  // namespace
}  // namespace backplane::test

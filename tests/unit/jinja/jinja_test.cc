// The interpreter against Python's jinja2: small cases (cases.json, made by make_cases.py), and real chat templates.
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/text/jinja/chat_template.h"

namespace backplane::text::jinja {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

const fs::path kSource = BACKPLANE_SOURCE_DIR;
const fs::path kShared = kSource / "../shared/data/chat-templates";

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Friday, 26 July 2024, the day on which all expectations were rendered.
RenderOptions options() {
  RenderOptions fixed;
  fixed.clock = [] {
    std::tm date{};
    date.tm_year = 124, date.tm_mon = 6, date.tm_mday = 26, date.tm_wday = 5, date.tm_yday = 207;
    return date;
  };
  return fixed;
}

struct Outcome {
  std::string text;
  std::string error;  // empty: rendered
  int line = 0;
};

Outcome render(const std::string& source, const Json& variables) {
  try {
    return {ChatTemplate(source).render(variables, options()), "", 0};
  } catch (const TemplateError& error) {
    return {"", error.message(), error.line()};
  }
}

TEST(Jinja, SmallCasesAsJinja2) {
  Json file = Json::parse(read_text(kSource / "tests/unit/jinja/cases.json"));
  ASSERT_GT(file["cases"].size(), 200u);
  for (const Json& test : file["cases"]) {
    SCOPED_TRACE(test["template"].get<std::string>());
    Outcome got = render(test["template"], file["variables"]);
    if (test.contains("text")) {
      EXPECT_EQ(got.text, test["text"].get<std::string>()) << got.error;
      EXPECT_EQ(got.error, "");
      continue;
    }
    EXPECT_NE(got.error, "") << got.text;
    if (!test.contains("own_wording")) {
      EXPECT_EQ(got.error, test["error"].get<std::string>());
    }
    if (test.contains("line")) {
      EXPECT_EQ(got.line, test["line"].get<int>());
    }
  }
}

TEST(Jinja, RealTemplatesAsJinja2) {
  if (!fs::exists(kShared)) GTEST_SKIP() << "no " << kShared;
  Json contexts = Json::parse(read_text(kShared / "contexts.json"));
  Json goldens = Json::parse(read_text(kShared / "goldens.json"));
  int count = 0;
  for (const auto& [name, cases] : goldens.items()) {
    ChatTemplate parsed(read_text(kShared / "templates" / (name + ".jinja")), name);
    for (const auto& [context, want] : cases.items()) {
      SCOPED_TRACE(name + " " + context);
      ++count;
      if (want.contains("text")) {
        EXPECT_EQ(parsed.render(contexts[context], options()), want["text"].get<std::string>());
        continue;
      }
      std::string error = want["error"];  // "TypeError: message"
      try {
        parsed.render(contexts[context], options());
        ADD_FAILURE() << "no error, but jinja2 says " << error;
      } catch (const TemplateError& e) {
        EXPECT_EQ(e.message(), error.substr(error.find(": ") + 2));
      }
    }
  }
  EXPECT_EQ(count, 246);
}

TEST(Jinja, BuiltInTemplatesAsJinja2) {
  if (!fs::exists(kShared)) GTEST_SKIP() << "no " << kShared;
  Json file = Json::parse(read_text(kShared / "builtin-cases.json"));
  for (const Json& test : file["cases"]) {
    SCOPED_TRACE(test["name"].get<std::string>());
    Json variables = {{"messages", file["messages"]},
                      {"add_generation_prompt", file["add_generation_prompt"]},
                      {"bos_token", test["bos_token"]},
                      {"eos_token", test["eos_token"]}};
    Outcome got = render(test["template"], variables);
    std::string want = test["rendered_jinja2"];
    EXPECT_EQ(got.error.empty() ? got.text : "<<error>> " + got.error, want);
  }
}

TEST(Jinja, SmolLm2Template) {
  ChatTemplate chat(
      "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
      "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
      "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  Json variables = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"add_generation_prompt", true}};
  EXPECT_EQ(chat.render(variables),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Jinja, ErrorsSayWhere) {
  try {
    ChatTemplate("a\nb\n{% if x %}\n", "model.gguf");
    ADD_FAILURE();
  } catch (const TemplateError& e) {
    EXPECT_EQ(e.code(), ErrorCode::kBadFile);
    EXPECT_EQ(e.line(), 3);
    EXPECT_NE(std::string(e.what()).find("model.gguf line 3"), std::string::npos) << e.what();
  }
  EXPECT_EQ(render("{{ 1 }}\n\n{{ messages.x.y }}", {{"messages", Json::array()}}).line, 3);
  EXPECT_EQ(render("{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}\n{{ m() }}", Json::object()).line, 2);
  Outcome raised = render("{{ raise_exception('two\nlines') }}", Json::object());
  EXPECT_EQ(raised.error, "two\nlines");
  EXPECT_THROW(ChatTemplate("").render(Json::array()), Error);
}

TEST(Jinja, LocalTimeByDefault) {
  std::string year = ChatTemplate("{{ strftime_now('%Y') }}").render(Json::object());
  EXPECT_GE(std::stoi(year), 2024);
}

TEST(Jinja, ManyThreadsShareATemplate) {
  ChatTemplate chat(
      "{% set ns = namespace(n=0) %}{% for i in range(k) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}");
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::size_t t = 0; t < texts.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) texts[t] = chat.render({{"k", 100 + t}});
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(texts, (std::vector<std::string>{"4950", "5050", "5151", "5253"}));
}

}  // namespace
}  // namespace backplane::text::jinja

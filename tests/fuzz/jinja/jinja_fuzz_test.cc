// Mutates templates and renders them: whatever comes of it must be a text or a TemplateError. Seeded, so that a failure
// repeats; made for the sanitizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/text/jinja/chat_template.h"

namespace backplane::text::jinja {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int kRounds = 12000;
constexpr std::size_t kMaxSource = 6000;

const std::vector<std::string> kPieces = {"{{ ",
                                          " }}",
                                          "{% ",
                                          " %}",
                                          "{#",
                                          "#}",
                                          "{%- ",
                                          " -%}",
                                          "(",
                                          ")",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          "|",
                                          ".",
                                          ",",
                                          ":",
                                          "=",
                                          "==",
                                          "*",
                                          "**",
                                          "~",
                                          "'",
                                          "\"",
                                          "\\",
                                          "\n",
                                          "if ",
                                          "else ",
                                          "elif ",
                                          "endif",
                                          "for x in y",
                                          "endfor",
                                          "recursive",
                                          "set ",
                                          "endset",
                                          "macro m(a)",
                                          "endmacro",
                                          "call m()",
                                          "endcall",
                                          "filter upper",
                                          "endfilter",
                                          "raw",
                                          "endraw",
                                          "generation",
                                          "is ",
                                          "not ",
                                          "in ",
                                          "loop",
                                          "loop.last",
                                          "caller()",
                                          "ns.x = ns",
                                          "namespace(x=1)",
                                          "range(9)",
                                          "messages",
                                          "nested",
                                          "text",
                                          "|tojson",
                                          "|join",
                                          "|map('upper')",
                                          "|sort",
                                          "|groupby('a')",
                                          ".split()",
                                          ".format(1)",
                                          "%s",
                                          "99999999999",
                                          "-1",
                                          "1.5",
                                          "\xff",
                                          "\xf0\x9f\x91\x8b",
                                          "__class__",
                                          "*args",
                                          "**kwargs",
                                          "none",
                                          "true"};

// BACKPLANE_FUZZ_SEED, to try others by hand.
unsigned seed() {
  const char* chosen = std::getenv("BACKPLANE_FUZZ_SEED");
  return chosen ? static_cast<unsigned>(std::strtoul(chosen, nullptr, 10)) : 20240726;
}

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> corpus) : corpus_(std::move(corpus)), random_(seed()) {}

  std::string next() {
    std::string source = pick(corpus_);
    for (std::size_t left = 1 + below(6); left > 0; --left) mutate(source);
    if (source.size() > kMaxSource) source.resize(kMaxSource);
    return source;
  }

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

  void mutate(std::string& source) {
    std::size_t at = below(source.size() + 1);
    std::size_t length = std::min(below(30), source.size() - at);
    const std::string& other = pick(corpus_);
    std::size_t from = below(other.size() + 1);
    switch (below(6)) {
      case 0:
        source.erase(at, length);
        break;
      case 1:
        source.insert(at, pick(kPieces));
        break;
      case 2:
        source.replace(at, length, pick(kPieces));
        break;
      case 3:
        source.insert(at, other.substr(from, below(60)));
        break;
      case 4:
        source.insert(at, source.substr(at, length));
        break;
      default:
        if (at < source.size()) source[at] = static_cast<char>(below(256));
    }
  }

  std::vector<std::string> corpus_;
  std::mt19937 random_;
};

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(JinjaFuzz, MutatedTemplatesEndCleanly) {
  fs::path root = BACKPLANE_SOURCE_DIR;
  Json cases = Json::parse(read_text(root / "tests/unit/jinja/cases.json"));
  std::vector<std::string> corpus;
  for (const Json& test : cases["cases"]) corpus.push_back(test["template"]);
  fs::path shared = root / "../shared/data/chat-templates/templates";
  if (fs::exists(shared)) {
    std::vector<fs::path> files(fs::directory_iterator(shared), {});
    std::sort(files.begin(), files.end());
    for (const auto& file : files) corpus.push_back(read_text(file).substr(0, kMaxSource));
  }
  RenderOptions options;
  options.limits.steps = 100'000;
  options.limits.bytes = 4 << 20;
  Mutator mutator(std::move(corpus));
  int rendered = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string source = mutator.next();
    try {
      ChatTemplate(source).render(cases["variables"], options);
      ++rendered;
    } catch (const TemplateError& error) {
      EXPECT_GE(error.line(), 1);
      EXPECT_FALSE(error.message().empty()) << source;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "round " << round << ": " << error.what() << "\n" << source;
    }
  }
  // Both outcomes must be common, or the mutations test nothing.
  EXPECT_GT(rendered, kRounds / 20);
  EXPECT_LT(rendered, kRounds);
}

}  // namespace
}  // namespace backplane::text::jinja

#include "tools/lab/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "tests/support/well_formed.h"
#include "tests/unit/lab/bench.h"
#include "tools/lab/experiments.h"
#include "tools/lab/page_data.h"
#include "tools/lab/sections.h"

namespace backplane::lab {
namespace {

// A report with what the experiments give on the fake model.
Json report() {
  Bench bench;
  const Setup& setup = bench.setup;
  Json out = {{"model",
               {{"name", "a <b> & \"c\".gguf"},
                {"architecture", "fake"},
                {"parameters", 12345},
                {"layers", 2},
                {"kv_bytes_per_token", 256}}},
              {"device", "fake:0"},
              {"date", "today"},
              {"quick", false},
              {"seconds", 1.5},
              {"fallbacks", Json::array()}};
  Json& experiments = out["experiments"];
  experiments["cache"] = run_cache(setup, {.prompt = 5, .tokens = 4});
  experiments["phases"] = run_phases(setup, {.prompts = {1, 2, 4, 8}, .decodes = 3, .repeats = 1});
  experiments["context"] = run_context(setup, {.lengths = {10, 20, 30}, .steps = 3});
  experiments["padding"] = run_padding(setup, {.rows = 4, .longest = 16, .reply = 3, .repeats = 1});
  experiments["logits"] = run_logits(setup, {.lengths = {4, 12}, .repeats = 1});
  experiments["batching"] = run_batching(setup, {.requests = 6, .seats = 3, .seconds = 0.01});
  return out;
}

// Every figure that a time decides becomes `value`.
void set_times(Json& json, const Json& value) {
  for (auto& [key, member] : json.items()) {
    if (member.is_structured()) {
      set_times(member, value);
    } else if (key.ends_with("_s") || key == "seconds" || key == "seconds_per_token" || key == "p50" || key == "p95" ||
               key == "p99" || key == "worst" || key == "slope" || key == "intercept" || key == "r2" ||
               key == "mean_occupancy") {
      member = value;
    }
  }
}

void expect_good(const Json& json) {
  const std::string page = lab_page(json), text = lab_text(json);
  EXPECT_EQ(test::XmlCheck::fault(page), "");
  for (const char* bad : {"http://", "https://", "src=", "url(", "@import", "<script", "<link"}) {
    EXPECT_EQ(page.find(bad), page.npos) << bad;
  }
  for (const std::string& words : {page, text}) {
    EXPECT_EQ(words.find("{}"), words.npos);
    std::string word;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (std::isalpha(static_cast<unsigned char>(words[i]))) {
        word += words[i];
        continue;
      }
      EXPECT_TRUE(word != "nan" && word != "inf" && word != "null") << words.substr(i < 80 ? 0 : i - 80, 160);
      word.clear();
    }
  }
  for (const Section& section : sections(json)) {
    EXPECT_NE(page.find("id=\"" + section.id + "\""), page.npos);
    EXPECT_NE(text.find(section.title), text.npos);
    if (!section.skipped.empty()) continue;
    EXPECT_FALSE(section.headline.empty() || section.method.empty() || section.plots.empty() ||
                 section.findings.empty() || section.caveats.empty());
  }
}

TEST(Page, IsWellFormedAndNeedsNothingElse) {
  const Json json = report();
  expect_good(json);
  const std::string page = lab_page(json);
  EXPECT_NE(page.find("a &lt;b&gt; &amp; &quot;c&quot;.gguf on fake:0"), page.npos);
  EXPECT_NE(page.find("prefers-color-scheme: dark"), page.npos);
}

TEST(Page, TellsTheTruthWhateverTheFiguresAre) {
  for (const Json& value : {Json(0), Json(), Json(-0.25), Json(1e-9), Json(1e9)}) {
    Json json = report();
    set_times(json["experiments"], value);
    expect_good(json);
  }
}

// Nothing is shown that the written report doesn't hold.
TEST(Page, IsMadeOfTheReportAsWritten) {
  const Json json = report(), read = Json::parse(json.dump());
  EXPECT_EQ(lab_page(read), lab_page(json));
  EXPECT_EQ(lab_text(read), lab_text(json));
}

TEST(Page, SaysWhenTokensDiffer) {
  Json json = report();
  for (const char* id : {"cache", "padding", "batching"}) json["experiments"][id]["equal_tokens"] = false;
  json["experiments"]["padding"]["equal_rows"] = 3;
  json["experiments"]["logits"]["same_last_row"] = false;
  expect_good(json);
  const std::string text = lab_text(json);
  EXPECT_NE(text.find("3 of 4 rows gave the same first 3 tokens"), text.npos) << text;
  EXPECT_EQ(text.find("Both ways gave the same"), text.npos);
}

TEST(Page, SaysWhatWasNotMeasured) {
  Json json = report();
  json["experiments"]["padding"] = {{"skipped", "the context is too small"}};
  json["fallbacks"] = {{{"op", "NORM"}, {"device", "cpu:f32"}, {"count", 9}, {"reason", "it can't"}}};
  json["quick"] = true;
  expect_good(json);
  const std::string page = lab_page(json);
  EXPECT_NE(page.find("Not measured in this run: the context is too small."), page.npos);
  EXPECT_NE(page.find("did not run on the device that was chosen"), page.npos);
  EXPECT_NE(page.find("it can&#39;t"), page.npos);
  EXPECT_NE(page.find("This was a quick run"), page.npos);
  EXPECT_NE(lab_text(json).find("not measured: the context is too small"), std::string::npos);
}

TEST(Page, DoesNotCallAFallingLineGrowth) {
  Json json = report();
  json["experiments"]["context"]["fit"] = {{"intercept", 0.1}, {"slope", -1e-5}, {"r2", 0.9}};
  const std::string text = lab_text(json);
  EXPECT_NE(text.find("The line does not rise"), text.npos);
  json["experiments"]["context"]["fit"] = {{"intercept", 0.1}, {"slope", 1e-4}, {"r2", 0.95}};
  EXPECT_NE(lab_text(json).find("at about 1,000"), std::string::npos);
  json["experiments"]["context"]["fit"] = Json();
  EXPECT_NE(lab_text(json).find("too few different lengths"), std::string::npos);
}

TEST(Page, KeepsTerminalLinesShort) {
  std::istringstream lines(lab_text(report()));
  for (std::string line; std::getline(lines, line);) {
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    EXPECT_LE(columns, 100) << line;
  }
}

TEST(Page, WritesDataAsTheReportHasIt) {
  const Json object = {{"a", 0.125},
                       {"b", {{"c", "<x>"}, {"findings", {"no"}}}},
                       {"list", {1, 2}},
                       {"none", Json()},
                       {"rows", {{{"k", 1e-9}, {"l", true}}}}};
  const std::string html = data_html(object);
  EXPECT_EQ(test::XmlCheck::fault("<div>" + html + "</div>"), "");
  for (const char* part : {"<th>a</th><td>0.125</td>", "<th>b.c</th><td>&lt;x&gt;</td>", "<td>1, 2</td>",
                           "<td>none</td>", "<th>k</th><th>l</th>", "<td>1e-09</td><td>true</td>"}) {
    EXPECT_NE(html.find(part), html.npos) << part << html;
  }
  EXPECT_EQ(html.find(">no<"), html.npos);
  EXPECT_EQ(prose("use `a<b` & ` alone"), "use <code>a&lt;b</code> &amp; ` alone");
  EXPECT_EQ(prose("5 ms, 3 µs and 1, 2"), "5\u00a0ms, 3\u00a0µs and 1, 2");  // a unit stays with its number
}

}  // namespace
}  // namespace backplane::lab

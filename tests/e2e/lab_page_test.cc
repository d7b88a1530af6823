// Every number that the lab's page shows is the report's.
#include "tests/e2e/lab_page.h"

#include <gtest/gtest.h>

#include "tests/e2e/program.h"

namespace backplane::test {
namespace {

constexpr double kPixel = 0.35;  // coordinates are rounded to tenths, at both ends of an axis and in between

std::string text_of(const Json& value) {
  if (value.is_null() || (value.is_array() && value.empty())) return "none";
  if (value.is_array()) {
    std::string out;
    for (const Json& each : value) out += (out.empty() ? "" : ", ") + text_of(each);
    return out;
  }
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') c = ' ';  // a page can't hold them
  }
  return text;
}

// Every value of the report by its path, as the page is to show it.
void flatten(const Json& value, const std::string& name, std::map<std::string, std::string>& out) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      if (key != "findings" && key != "experiments") flatten(member, name.empty() ? key : name + "." + key, out);
    }
  } else if (value.is_array() && !value.empty() && value[0].is_object()) {
    for (std::size_t i = 0; i < value.size(); ++i) flatten(value[i], name + "[" + std::to_string(i) + "]", out);
  } else {
    out[name] = text_of(value);
  }
}

class LabPage : public ProgramTest {
 protected:
  void SetUp() override {
    const std::string folder = (folder_.path() / "out").string();
    const ProgramRun run = backplane({"lab", model_, "--quick", "--out", folder});
    ASSERT_EQ(run.status, 0) << run.err;
    report_ = Json::parse(read_file(folder + "/lab.json"));
    page_ = read_file(folder + "/lab.html");
  }

  std::string section(const std::string& id) const {
    return all_between(page_, "<section id=\"" + id + "\">", "</section>").at(0);
  }
  const Json& data(const std::string& id) const { return report_["experiments"][id]; }
  static double number(const Json& value) { return value.get<double>(); }

  void expect_table(const std::string& id, const std::vector<std::vector<double>>& expected) const {
    const std::vector<Texts> rows = shown_table(section(id));
    ASSERT_EQ(rows.size(), expected.size()) << id;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(rows[i].size(), expected[i].size()) << id;
      for (std::size_t j = 0; j < rows[i].size(); ++j) {
        EXPECT_NEAR(shown_value(rows[i][j]), expected[i][j], 0.00501 * std::abs(expected[i][j])) << id << rows[i][j];
      }
    }
  }

  // Of the wide and of the narrow drawing of a plot.
  Texts drawings(const std::string& id, std::size_t plot) const {
    const Texts figures = all_between(section(id), "<figure>", "</figure>");
    return all_between(figures.at(plot), "<svg role", "</svg>");
  }

  static void expect_marks(const std::string& svg, const Points& marks, const Points& expected, bool log_x = false) {
    Axis x = axis_of(svg, "middle", "x", 0);
    x.log = log_x;
    const Axis y = axis_of(svg, "end", "y", -4);
    ASSERT_EQ(marks.size(), expected.size()) << svg;
    for (std::size_t i = 0; i < marks.size(); ++i) {
      EXPECT_NEAR(marks[i].first, x.at(expected[i].first), kPixel) << i << svg;
      EXPECT_NEAR(marks[i].second, y.at(expected[i].second), kPixel) << i << svg;
    }
  }

  void expect_dots(const std::string& id, std::size_t plot, const Points& expected, bool log_x = false) const {
    const Texts svgs = drawings(id, plot);
    ASSERT_EQ(svgs.size(), 2u);
    for (const std::string& svg : svgs) expect_marks(svg, dots_of(svg), expected, log_x);
  }

  // Lengths in proportion, whatever has no length left out; the notes say the numbers.
  void expect_bars(const std::string& id, std::size_t plot, std::vector<double> lengths,
                   const std::vector<double>& notes) const {
    std::erase(lengths, 0);
    for (const std::string& svg : drawings(id, plot)) {
      const Texts bars = all_between(svg, "<rect", "/>"), said = all_between(svg, "class=\"note\">", "</text>");
      ASSERT_EQ(bars.size(), lengths.size());
      const auto most = std::max_element(lengths.begin(), lengths.end()) - lengths.begin();
      const double pixels = attribute(bars[static_cast<std::size_t>(most)], "width") / *(lengths.begin() + most);
      for (std::size_t i = 0; i < bars.size(); ++i) {
        EXPECT_NEAR(attribute(bars[i], "width"), lengths[i] * pixels, kPixel * (1 + lengths[i] * pixels / 50));
      }
      ASSERT_EQ(said.size(), notes.size());
      for (std::size_t i = 0; i < notes.size(); ++i) EXPECT_NEAR(shown_value(said[i]), notes[i], 0.00501 * notes[i]);
    }
  }

  Json report_;
  std::string page_;
};

// In the tables of all figures there is everything of the report, and nothing else.
TEST_F(LabPage, HasAllFiguresAsTheReportHasThem) {
  Texts ids = {"run"};
  for (const auto& [id, experiment] : report_["experiments"].items()) ids.push_back(id);
  EXPECT_EQ(ids.size(), 7u);
  for (const std::string& id : ids) {
    std::map<std::string, std::string> expected;
    flatten(id == "run" ? report_ : data(id), "", expected);
    EXPECT_GT(expected.size(), 15u);
    EXPECT_EQ(shown_figures(section(id)), expected) << id;
  }
}

TEST_F(LabPage, HasTheReportsNumbersInItsTables) {
  const auto pairs = [](const Json& a, const Json& b, const Texts& keys) {
    std::vector<std::vector<double>> rows;
    for (const std::string& key : keys) rows.push_back({number(a[key]), number(b[key])});
    return rows;
  };
  const Json &cache = data("cache"), &phases = data("phases"), &padding = data("padding");
  const auto first = cache["steps"].front(), last = cache["steps"].back();
  expect_table("cache", {{number(cache["without"]["computed_tokens"]), number(cache["with"]["computed_tokens"])},
                         {number(cache["without"]["flops"]), number(cache["with"]["flops"])},
                         {number(first["without_s"]), number(first["with_s"])},
                         {number(last["without_s"]), number(last["with_s"])},
                         {number(cache["without"]["total_s"]), number(cache["with"]["total_s"])}});
  expect_table("phases", pairs(phases["prefill"].back(), phases["decode"],
                               {"seconds", "seconds_per_token", "flops", "flops_per_token", "bytes", "bytes_per_token",
                                "intensity", "flops_per_s", "bytes_per_s"}));
  std::vector<std::vector<double>> rows;
  for (const Json& row : data("context")["lengths"]) {
    rows.push_back({number(row["seconds"]), number(row["median_s"]), number(row["flops"]), number(row["bytes"])});
  }
  expect_table("context", rows);
  rows = pairs(padding["padded"], padding["ragged"], {"computed_tokens", "flops", "seconds"});
  rows.insert(rows.begin() + 1, {rows[0][0] - rows[0][1], 0});
  expect_table("padding", rows);
  const Json& logits = data("logits")["lengths"].back();
  rows.clear();
  for (const char* key : {"_s", "_rows", "_bytes", "_flops"}) {
    rows.push_back({number(logits[std::string("all") + key]), number(logits[std::string("last") + key])});
  }
  expect_table("logits", rows);
  rows.clear();
  for (const char* key : {"/seconds", "/tokens_per_s", "/steps", "/mean_occupancy", "/first_token_s/p50",
                          "/first_token_s/p95", "/first_token_s/p99", "/total_s/p50", "/total_s/p95", "/total_s/p99"}) {
    auto& row = rows.emplace_back();
    for (const char* way : {"none", "static", "continuous"}) {
      row.push_back(number(data("batching")[way][Json::json_pointer(key)]));
    }
  }
  expect_table("batching", rows);
}

TEST_F(LabPage, DrawsTheReportsNumbers) {
  Points each[2], sums[2], middle, fastest;
  double total[2] = {0, 0};
  std::vector<double> computed, cached, counts[2];
  for (const Json& step : data("cache")["steps"]) {
    for (std::size_t i = 0; i < 2; ++i) {
      const double seconds = number(step[i == 0 ? "without_s" : "with_s"]);
      each[i].emplace_back(number(step["length"]), seconds);
      sums[i].emplace_back(sums[i].size() + 1, total[i] += seconds);
      counts[i].push_back(number(step[i == 0 ? "computed_without" : "computed_with"]));
    }
    cached.insert(cached.end(), {number(step["length"]) - counts[1].back(), counts[1].back()});
  }
  for (Points* points : {each, sums}) points[0].insert(points[0].end(), points[1].begin(), points[1].end());
  expect_bars("cache", 0, counts[0], counts[0]);
  expect_bars("cache", 1, cached, counts[1]);
  expect_dots("cache", 2, each[0]);
  expect_dots("cache", 3, sums[0]);

  std::size_t plot = 0;
  for (const char* key : {"seconds_per_token", "intensity"}) {
    Points points;
    for (const Json& row : data("phases")["prefill"]) points.emplace_back(number(row["tokens"]), number(row[key]));
    points.emplace_back(1, number(data("phases")["decode"][key]));
    expect_dots("phases", plot++, points, true);
  }
  for (const Json& row : data("context")["lengths"]) {
    middle.emplace_back(number(row["context"]), number(row["median_s"]));
    fastest.emplace_back(number(row["context"]), number(row["seconds"]));
  }
  middle.insert(middle.end(), fastest.begin(), fastest.end());
  expect_dots("context", 0, middle);

  std::vector<double> cells, tokens;
  for (const Json& row : data("padding")["prompts"]) {
    cells.insert(cells.end(), {number(row["pads"]), number(row["tokens"])});
    tokens.push_back(number(row["tokens"]));
  }
  expect_bars("padding", 0, cells, tokens);
  const std::vector<double> times = {number(data("padding")["padded"]["seconds"]),
                                     number(data("padding")["ragged"]["seconds"])};
  expect_bars("padding", 1, times, times);

  Points all, last;
  for (const Json& row : data("logits")["lengths"]) {
    all.emplace_back(number(row["tokens"]), number(row["all_s"]));
    last.emplace_back(number(row["tokens"]), number(row["last_s"]));
  }
  all.insert(all.end(), last.begin(), last.end());
  expect_dots("logits", 0, all);
}

TEST_F(LabPage, DrawsHowTheTraceWasServed) {
  const Json& batching = data("batching");
  std::vector<double> rates;
  std::size_t way = 0;
  for (const char* name : {"none", "static", "continuous"}) {
    rates.push_back(number(batching[name]["tokens_per_s"]));
    Points occupancy;
    for (const Json& sample : batching[name]["occupancy"]) {
      occupancy.emplace_back(number(sample["at_s"]), number(sample["sequences"]));
    }
    for (const std::string& svg : drawings("batching", 1 + way)) {
      ASSERT_EQ(steps_of(svg).size(), 1u);
      expect_marks(svg, steps_of(svg)[0], occupancy);
    }
    for (const auto& [key, plot] : {std::pair{"first_token_s", 4}, {"total_s", 5}}) {
      double worst = 0;
      for (const char* other : {"none", "static", "continuous"}) {
        worst = std::max(worst, number(batching[other][key]["worst"]));
      }
      std::vector<double> seconds;
      for (const Json& request : batching[name]["requests"]) seconds.push_back(number(request[key]));
      std::sort(seconds.begin(), seconds.end());
      Points curve = {{0, 0}};
      for (const double value : seconds) {
        curve.emplace_back(value, static_cast<double>(curve.size()) / static_cast<double>(seconds.size()));
      }
      curve.emplace_back(worst, 1);
      for (const std::string& svg : drawings("batching", static_cast<std::size_t>(plot))) {
        expect_marks(svg, steps_of(svg).at(way), curve);
      }
    }
    ++way;
  }
  expect_bars("batching", 0, rates, rates);
}

// In words: "3.2 times as long" or, where that says little, "about as long".
TEST_F(LabPage, ComparesTheReportsNumbers) {
  const Texts said = all_between(all_between(page_, "<nav>", "</nav>").at(0), "<br/>", "</li>");
  ASSERT_EQ(said.size(), 6u);
  const auto expect_ratios = [&](std::size_t line, const std::vector<double>& ratios) {
    std::string text = said[line];
    for (const double ratio : ratios) {
      const std::size_t times = text.find("times"), about = text.find("about");
      if (about < times) {
        EXPECT_NEAR(ratio, 1, 0.0501) << text;
        text.erase(0, about + 5);
      } else {
        ASSERT_NE(times, text.npos) << said[line];
        std::size_t at = times - 2;  // the last byte of a space that doesn't break is between
        while (at > 0 && std::string("0123456789.,").find(text[at - 1]) != std::string::npos) --at;
        EXPECT_NEAR(std::strtod(text.c_str() + at, nullptr), ratio, 0.00501 * ratio) << text;
        text.erase(0, times + 5);
      }
    }
  };
  const auto ratio = [](const Json& a, const Json& b, const char* key) { return number(a[key]) / number(b[key]); };
  const Json &phases = data("phases"), &padding = data("padding"), &logits = data("logits")["lengths"].back();
  expect_ratios(0, {ratio(data("cache")["without"], data("cache")["with"], "total_s")});
  expect_ratios(1, {ratio(phases["decode"], phases["prefill"].back(), "seconds_per_token")});
  expect_ratios(3, {ratio(padding["padded"], padding["ragged"], "seconds")});
  expect_ratios(4, {number(logits["all_s"]) / number(logits["last_s"])});
  const Json& batching = data("batching");
  expect_ratios(5, {ratio(batching["continuous"], batching["none"], "tokens_per_s"),
                    ratio(batching["continuous"], batching["static"], "tokens_per_s")});
}

}  // namespace
}  // namespace backplane::test

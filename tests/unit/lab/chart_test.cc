#include "tools/lab/chart.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/well_formed.h"
#include "tools/lab/figures.h"

namespace backplane::lab {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

void expect_drawable(const Chart& chart) {
  for (const unsigned width : {340u, 720u}) {
    const std::string drawing = draw(chart, width);
    EXPECT_EQ(test::XmlCheck::fault(drawing), "");
    for (const char* bad : {"nan", "inf"}) EXPECT_EQ(drawing.find(bad), drawing.npos) << drawing;
  }
  EXPECT_EQ(test::XmlCheck::fault("<div>" + legend_html(chart) + "</div>"), "");
}

LineChart lines(std::vector<std::pair<double, double>> points) {
  return {.title = "a <title> & \"more\"",
          .x_label = "x",
          .y_label = "y",
          .x_text = plain_text,
          .y_text = seconds_text,
          .series = {{.name = "one & only", .points = std::move(points)}}};
}

TEST(Chart, HasRoundTicks) {
  EXPECT_EQ(round_ticks(10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(round_ticks(23, 5), (std::vector<double>{0, 5, 10, 15, 20, 25}));
  EXPECT_EQ(round_ticks(0, 5).back(), 1);
  EXPECT_EQ(round_ticks(kNan, 5).back(), 1);
  for (double most = 1e-9; most < 1e12; most *= 1.7) {
    const auto ticks = round_ticks(most, 5);
    EXPECT_GE(ticks.back(), most * 0.999);
    EXPECT_LE(ticks.back(), most * 2);
    EXPECT_LE(ticks.size(), 8u);
    EXPECT_GE(ticks.size(), 3u);
  }
}

TEST(Chart, PutsPointsWhereTheyBelong) {
  const std::string drawing = draw(Chart(lines({{0, 0}, {10, 2}})), 720);
  const std::size_t at = drawing.find("d=\"M");
  ASSERT_NE(at, drawing.npos);
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  ASSERT_EQ(std::sscanf(drawing.c_str() + at, "d=\"M%lf %lfL%lf %lf", &x1, &y1, &x2, &y2), 4);
  EXPECT_LT(x1, x2);
  EXPECT_GT(y1, y2);         // up is less
  EXPECT_EQ(y1, 270);        // on the base line
  EXPECT_NEAR(y2, 26, 0.1);  // at the topmost tick, which is 2 s
  EXPECT_NEAR(x2, 720 - 22, 0.1);
  EXPECT_NE(drawing.find("a &lt;title&gt; &amp; &quot;more&quot;"), drawing.npos);
  EXPECT_NE(drawing.find("<title>one &amp; only, 10: 2 s</title>"), drawing.npos);
}

TEST(Chart, DrawsWhateverTheFiguresAre) {
  expect_drawable(lines({}));
  expect_drawable(lines({{5, 0}}));
  expect_drawable(lines({{0, 0}, {1, kNan}, {2, std::numeric_limits<double>::infinity()}, {3, 1e-12}}));
  expect_drawable(lines({{1, -3}, {2, 1e15}}));
  LineChart chart = lines({{0, 1}, {1, 1}, {2, 3}, {64, 5}});
  chart.log_x = true;
  expect_drawable(chart);
  LineChart empty = lines({{1, kNan}});
  empty.log_x = true;
  expect_drawable(empty);
  chart.log_x = false;
  chart.x_from_first = chart.flat = true;
  for (const Mark mark : {Mark::kLine, Mark::kDots, Mark::kSteps, Mark::kFilled, Mark::kGuide}) {
    chart.series[0].mark = mark;
    expect_drawable(chart);
  }
  expect_drawable(BarChart{});
  expect_drawable(BarChart{.title = "t", .bars = {{.label = "zero", .segments = {{0, Color::kFirst}}, .note = "0"}}});
  expect_drawable(BarChart{.title = "t", .bars = {{.label = "bad", .segments = {{kNan, Color::kFirst}, {-1, {}}}}}});
}

TEST(Chart, DrawsABoxForEachUnit) {
  const BarChart chart{.title = "t",
                       .legend = {{"pads", Color::kMuted}},
                       .cells = true,
                       .bars = {{.label = "row", .segments = {{3, Color::kMuted}, {5, Color::kFirst}}, .note = "5"}}};
  const std::string drawing = draw(Chart(chart), 720);
  EXPECT_EQ(count(drawing, "<rect"), 2u);
  EXPECT_EQ(count(drawing, "class=\"cell\""), 7u);
  EXPECT_NE(legend_html(chart).find("pads"), std::string::npos);
  EXPECT_EQ(legend_html(BarChart{}), "");
}

}  // namespace
}  // namespace backplane::lab

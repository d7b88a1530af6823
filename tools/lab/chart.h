// Plots as inline SVG: no scripts, no styles of their own. Colors come from the page's classes, so that light and dark
// need one drawing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace backplane::lab {

using TextOf = std::string (*)(double value);  // with its unit

// Classes of the page: kMuted is for what is wasted or in the background.
enum class Color : std::uint8_t { kFirst, kSecond, kThird, kMuted };

enum class Mark : std::uint8_t {
  kLine,    // points joined
  kDots,    // points alone
  kSteps,   // each value holds until the next point
  kFilled,  // likewise, and the area below is filled
  kGuide    // a thin line in the background, such as a fit
};

struct Series {
  std::string name = {};
  Color color = Color::kFirst;
  Mark mark = Mark::kLine;
  std::vector<std::pair<double, double>> points = {};  // x ascending; what isn't finite is left out
};

// y begins at 0.
struct LineChart {
  std::string title = {};
  std::string x_label = {}, y_label = {};
  TextOf x_text = nullptr, y_text = nullptr;
  bool log_x = false;         // base 2; needs x > 0
  bool flat = false;          // of less height
  bool x_from_first = false;  // the x axis begins with the first point, not with 0
  double x_most = 0;          // the axes reach so far at least: for plots that are to be compared
  double y_most = 0;
  std::vector<Series> series = {};
};

struct Segment {
  double value = 0;
  Color color = Color::kFirst;
};

struct Bar {
  std::string label = {};
  std::vector<Segment> segments = {};  // one behind the other
  std::string note = {};               // behind the bar
};

// Horizontal bars.
struct BarChart {
  std::string title = {};
  std::vector<std::pair<std::string, Color>> legend = {};
  bool cells = false;  // values are small counts: each unit is drawn as a box
  std::vector<Bar> bars = {};
};

using Chart = std::variant<LineChart, BarChart>;

// For & < > and quotes.
std::string escaped(std::string_view text);

// An <svg> element, `width` CSS pixels wide. The title is read to those who can't see it.
std::string draw(const Chart& chart, unsigned width);
// Its legend as HTML, empty where one color needs no explanation.
std::string legend_html(const Chart& chart);

// Rising round numbers (1, 2 or 5 times a power of 10) from 0 to at least `most`, about `wanted` of them.
std::vector<double> round_ticks(double most, unsigned wanted);

}  // namespace backplane::lab

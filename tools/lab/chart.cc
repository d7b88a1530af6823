#include "tools/lab/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace backplane::lab {
namespace {

constexpr double kCharacter = 7.6;  // pixels: a wide digit of 12 px
constexpr unsigned kNarrow = 480;   // below, a plot has fewer ticks and labels of bars above them

std::string_view class_of(Color color) {
  constexpr std::string_view kNames[] = {"c0", "c1", "c2", "c3"};
  return kNames[static_cast<std::size_t>(color)];
}

// Of characters, not bytes.
double text_width(std::string_view text) {
  const auto characters = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
  return kCharacter * static_cast<double>(characters);
}

std::string label(double x, double y, std::string_view anchor, std::string_view text, std::string_view style = {}) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor,
                     style.empty() ? std::string() : fmt::format(" class=\"{}\"", style), escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1, y1,
                     x2, y2);
}

std::string open_svg(const std::string& title, unsigned width, double height) {
  return fmt::format(
      "<svg role=\"img\" aria-label=\"{0}\" viewBox=\"0 0 {1} {2:.0f}\" width=\"{1}\" height=\"{2:.0f}\">\n",
      escaped(title), width, height);
}

// Where the values of a line chart are on the drawing.
class Plane {
 public:
  Plane(const LineChart& chart, unsigned width) : chart_(chart), narrow_(width < kNarrow) {
    bool any = chart.x_most > 0;
    double most_y = chart.y_most;
    x_min_ = x_max_ = chart.x_most;
    for (const Series& series : chart.series) {
      for (const auto& [x, y] : series.points) {
        if (!drawable(x, y)) continue;
        x_min_ = any ? std::min(x_min_, x) : x;
        x_max_ = any ? std::max(x_max_, x) : x;
        most_y = std::max(most_y, y);
        any = true;
      }
    }
    if (!chart.log_x && !chart.x_from_first) x_min_ = std::min(x_min_, 0.0);
    if (chart.log_x && !(x_min_ > 0)) x_min_ = 1;  // there are no points
    if (!(x_max_ > x_min_)) x_max_ = x_min_ + 1;
    y_ticks_ = round_ticks(most_y, chart.flat ? 3 : narrow_ ? 4 : 5);
    y_max_ = y_ticks_.back();
    double widest = 0;
    for (const double tick : y_ticks_) widest = std::max(widest, text_width(chart.y_text(tick)));
    left = widest + 12;
    right = width - 22.0;
    bottom = chart.flat ? 116 : narrow_ ? 210 : 270;
  }

  bool drawable(double x, double y) const { return std::isfinite(x) && std::isfinite(y) && (!chart_.log_x || x > 0); }
  double x(double value) const {
    const double part =
        chart_.log_x ? std::log2(value / x_min_) / std::log2(x_max_ / x_min_) : (value - x_min_) / (x_max_ - x_min_);
    return left + part * (right - left);
  }
  double y(double value) const { return bottom - std::max(0.0, value) / y_max_ * (bottom - top); }
  const std::vector<double>& y_ticks() const { return y_ticks_; }

  // As many as have room side by side.
  std::vector<double> x_ticks() const {
    std::vector<double> ticks;
    if (!chart_.log_x) {
      for (const double tick : round_ticks(x_max_, narrow_ ? 4 : 7)) {
        if (tick >= x_min_ && tick <= x_max_ * 1.0001) ticks.push_back(tick);
      }
      return ticks;
    }
    const auto doublings = static_cast<unsigned>(std::log2(x_max_ / x_min_) + 1e-9);
    const unsigned every = doublings / (narrow_ ? 5 : 10) + 1;
    for (unsigned i = 0; i <= doublings; i += every) ticks.push_back(x_min_ * std::exp2(i));
    return ticks;
  }

  double left = 0, right = 0, top = 26, bottom = 0;

 private:
  const LineChart& chart_;
  bool narrow_;
  double x_min_ = 0, x_max_ = 0, y_max_ = 1;
  std::vector<double> y_ticks_;
};

std::string axes(const LineChart& chart, const Plane& plane) {
  std::string out = label(0, 12, "start", chart.y_label, "axis");
  for (const double tick : plane.y_ticks()) {
    out += line(plane.left, plane.y(tick), plane.right, plane.y(tick), tick == 0 ? "base" : "grid");
    out += label(plane.left - 6, plane.y(tick) + 4, "end", chart.y_text(tick));
  }
  for (const double tick : plane.x_ticks()) {
    out += line(plane.x(tick), plane.bottom, plane.x(tick), plane.bottom + 4, "base");
    out += label(plane.x(tick), plane.bottom + 18, "middle", chart.x_text(tick));
  }
  return out + label((plane.left + plane.right) / 2, plane.bottom + 38, "middle", chart.x_label, "axis");
}

std::string path_of(const Series& series, const Plane& plane) {
  std::string path;
  double before = 0;
  for (const auto& [x, y] : series.points) {
    if (!plane.drawable(x, y)) continue;
    if (path.empty()) {
      path += fmt::format("M{:.1f} {:.1f}", plane.x(x), plane.y(y));
    } else {
      if (series.mark == Mark::kSteps || series.mark == Mark::kFilled)
        path += fmt::format("L{:.1f} {:.1f}", plane.x(x), before);
      path += fmt::format("L{:.1f} {:.1f}", plane.x(x), plane.y(y));
    }
    before = plane.y(y);
  }
  return path;
}

// Classes of the page for a mark.
std::string_view style_of(Mark mark) {
  switch (mark) {
    case Mark::kGuide:
      return "guide";
    case Mark::kSteps:
    case Mark::kFilled:
      return "steps";
    default:
      return "line";
  }
}

std::string draw_series(const LineChart& chart, const Series& series, const Plane& plane) {
  std::string out;
  if (series.mark != Mark::kDots) {
    const std::string path = path_of(series, plane);
    if (path.empty()) return out;
    if (series.mark == Mark::kFilled) {
      out += fmt::format("<path class=\"area {}\" d=\"{}V{:.1f}H{:.1f}Z\"/>\n", class_of(series.color), path,
                         plane.bottom, plane.x(series.points.front().first));
    }
    out += fmt::format("<path class=\"{} {}\" d=\"{}\"/>\n", style_of(series.mark), class_of(series.color), path);
  }
  if (series.mark != Mark::kDots && (series.mark != Mark::kLine || series.points.size() > 40)) return out;
  for (const auto& [x, y] : series.points) {
    if (!plane.drawable(x, y)) continue;
    out += fmt::format("<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\"><title>{}</title></circle>\n",
                       class_of(series.color), plane.x(x), plane.y(y),
                       escaped(fmt::format("{}{}: {}", series.name.empty() ? "" : series.name + ", ", chart.x_text(x),
                                           chart.y_text(y))));
  }
  return out;
}

std::string draw(const LineChart& chart, unsigned width) {
  const Plane plane(chart, width);
  std::string out = open_svg(chart.title, width, plane.bottom + 48) + axes(chart, plane);
  for (const Series& series : chart.series) out += draw_series(chart, series, plane);
  return out + "</svg>\n";
}

double total(const Bar& bar) {
  double sum = 0;
  for (const Segment& segment : bar.segments) {
    if (std::isfinite(segment.value)) sum += std::max(0.0, segment.value);
  }
  return sum;
}

// Lines between the units of a bar that counts them, where a unit is wide enough to be seen.
std::string cell_lines(double left, double y, double height, double units, double unit) {
  std::string out;
  if (unit < 4) return out;
  for (double i = 1; i < units; ++i) out += line(left + i * unit, y, left + i * unit, y + height, "cell");
  return out;
}

std::string draw(const BarChart& chart, unsigned width) {
  const bool narrow = width < kNarrow;
  double labels = 0, notes = 0, longest = 0;
  for (const Bar& bar : chart.bars) {
    labels = std::max(labels, text_width(bar.label));
    notes = std::max(notes, text_width(bar.note));
    longest = std::max(longest, total(bar));
  }
  const double left = narrow ? 0 : labels + 12, room = std::max(40.0, width - left - notes - 10);
  const double thick = chart.cells ? 16 : 20, above = narrow && labels > 0 ? 18 : 0,
               pitch = thick + above + (narrow ? 10 : 8);
  std::string out = open_svg(chart.title, width, 4 + pitch * static_cast<double>(chart.bars.size()));
  double y = 2;
  for (const Bar& bar : chart.bars) {
    out += label(0, narrow ? y + 12 : y + thick / 2 + 4, "start", bar.label);
    double x = left;
    for (const Segment& segment : bar.segments) {
      if (!(segment.value > 0) || !std::isfinite(segment.value)) continue;
      const double length = longest > 0 ? segment.value / longest * room : 0;
      out += fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
                         class_of(segment.color), x, y + above, length, thick);
      x += length;
    }
    if (chart.cells && longest > 0) out += cell_lines(left, y + above, thick, total(bar), room / longest);
    out += label(x + 6, y + above + thick / 2 + 4, "start", bar.note, "note");
    y += pitch;
  }
  return out + "</svg>\n";
}

std::string legend_item(const std::string& drawing, unsigned width, const std::string& name) {
  return fmt::format("<li><svg width=\"{}\" height=\"12\" aria-hidden=\"true\">{}</svg> {}</li>", width, drawing,
                     escaped(name));
}

std::string legend_item(const Series& series) {
  const std::string_view color = class_of(series.color);
  if (series.mark == Mark::kDots) {
    return legend_item(fmt::format("<circle class=\"dot {}\" cx=\"6\" cy=\"6\" r=\"3.2\"/>", color), 12, series.name);
  }
  return legend_item(fmt::format("<path class=\"{} {}\" d=\"M1 6L23 6\"/>", style_of(series.mark), color), 24,
                     series.name);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

std::vector<double> round_ticks(double most, unsigned wanted) {
  if (!(most > 0) || !std::isfinite(most)) most = 1;
  const double raw = most / wanted, power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= raw * 0.9999) step = factor * power;
  }
  std::vector<double> ticks;
  for (unsigned i = 0; i == 0 || ticks.back() < most * 0.9999; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string draw(const Chart& chart, unsigned width) {
  return std::visit([width](const auto& one) { return draw(one, width); }, chart);
}

std::string legend_html(const Chart& chart) {
  std::string items;
  if (const auto* lines = std::get_if<LineChart>(&chart)) {
    for (const Series& series : lines->series) {
      if (!series.name.empty()) items += legend_item(series);
    }
  } else {
    for (const auto& [name, color] : std::get<BarChart>(chart).legend) {
      items += legend_item(fmt::format("<rect class=\"{}\" width=\"12\" height=\"12\"/>", class_of(color)), 12, name);
    }
  }
  return items.empty() ? items : "<ul class=\"legend\">" + items + "</ul>\n";
}

}  // namespace backplane::lab

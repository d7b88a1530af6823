#include "tools/lab/page.h"

#include <fmt/format.h>

#include "tools/lab/page_data.h"
#include "tools/lab/page_style.h"
#include "tools/lab/sections.h"

namespace backplane::lab {
namespace {

constexpr unsigned kWide = 720, kNarrow = 340;  // of plots, in CSS pixels

constexpr std::pair<const char*, const char*> kTerms[] = {
    {"Token", "A piece of text, about a short word, as the model reads and writes it."},
    {"Step", "One run through all layers of the model, for one token or for many."},
    {"KV cache",
     "For every layer and every token so far, a key (by which later tokens find it) and a value (what they take "
     "from it). Neither changes when the text goes on, so both can be kept."},
    {"Prefill",
     "Reading the prompt: all its tokens are known, so they go through the model together. It ends with the "
     "first token of the reply."},
    {"Decode",
     "Writing the reply: each token has to be chosen before the next one can be computed, so a step has one "
     "token of each reply."},
    {"Logits", "The model's scores for every entry of its vocabulary. The next token is chosen by them."},
    {"Sequence", "One text under way: a prompt and what has been generated after it."},
    {"Batch", "Several sequences that are computed in one step."},
    {"Pad",
     "A filler token that makes a short prompt as long as others. A mask, 1 for tokens and 0 for pads, keeps "
     "everybody from looking at it."},
    {"p50, p95, p99",
     "Percentiles. A p95 of 2 s: 95 of 100 requests had what they waited for within 2 s. p50 is the median."},
    {"FLOP",
     "A floating-point operation: one addition or multiplication. MFLOP is a million, GFLOP a billion of them."}};

std::string paragraph(const std::string& text) { return "<p>" + prose(text) + "</p>\n"; }

std::string list(const std::vector<std::string>& items, std::string_view style) {
  std::string out = fmt::format("<ul class=\"{}\">\n", style);
  for (const std::string& item : items) out += "<li>" + prose(item) + "</li>\n";
  return out + "</ul>\n";
}

std::string plot_html(const Plot& plot) {
  return fmt::format(
      "<figure>\n<figcaption>{}</figcaption>\n{}<div class=\"wide\">{}</div>\n<div "
      "class=\"narrow\">{}</div>\n</figure>\n",
      prose(plot.caption), legend_html(plot.chart), draw(plot.chart, kWide), draw(plot.chart, kNarrow));
}

std::string table_html(const Table& table) {
  std::string out = "<div class=\"scroll\"><table>\n";
  for (std::size_t row = 0; row < table.size(); ++row) {
    out += "<tr>";
    for (std::size_t i = 0; i < table[row].size(); ++i) {
      const bool header = row == 0 || i == 0;
      out += fmt::format("<{0}>{1}</{0}>", header ? "th" : "td", escaped(table[row][i]));
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string section_html(const Section& section, const Json& data, std::size_t number) {
  std::string out = fmt::format("<section id=\"{}\">\n<h2><span class=\"number\">{}</span> {}</h2>\n", section.id,
                                number, escaped(section.title));
  out += "<p class=\"question\">" + prose(section.question) + "</p>\n";
  if (!section.skipped.empty()) {
    return out + "<p class=\"skipped\">Not measured in this run: " + prose(section.skipped) + ".</p>\n</section>\n";
  }
  out += "<h3>What was done</h3>\n";
  for (const std::string& text : section.method) out += paragraph(text);
  for (const Plot& plot : section.plots) out += plot_html(plot);
  out += "<h3>What the numbers say</h3>\n" + table_html(section.table) + list(section.findings, "findings");
  out += "<h3>What to keep in mind</h3>\n" + list(section.caveats, "caveats");
  out += "<details><summary>All figures of this experiment</summary>\n" + data_html(data) + "</details>\n";
  return out + "</section>\n";
}

std::string header_html(const Json& report) {
  const Json& model = report["model"];
  std::string out =
      fmt::format("<header>\n<p class=\"kicker\">Backplane lab</p>\n<h1>{} on {}</h1>\n",
                  escaped(model["name"].get<std::string>()), escaped(report["device"].get<std::string>()));
  out += paragraph(
      fmt::format("What the KV cache and batching do for this model on this device, measured on {} in {}. A language "
                  "model with {} in {} "
                  "({}); a token in its KV cache takes {}.",
                  report["date"].get<std::string>(), seconds_text(value_of(report["seconds"])),
                  count_text(value_of(model["parameters"]), "parameter", "parameters"),
                  count_text(value_of(model["layers"]), "layer", "layers"), model["architecture"].get<std::string>(),
                  bytes_text(value_of(model["kv_bytes_per_token"]))));
  if (report["quick"].get<bool>()) {
    out += paragraph(
        "This was a quick run, which shows that everything works. Its sizes are too small for its times to "
        "mean much.");
  }
  return out + "</header>\n";
}

std::string summary_html(const std::vector<Section>& sections) {
  std::string out = "<nav>\n<h2>In short</h2>\n<ol>\n";
  for (const Section& section : sections) {
    out += fmt::format("<li><a href=\"#{}\">{}</a><br/>{}</li>\n", section.id, escaped(section.title),
                       section.skipped.empty() ? prose(section.headline) : std::string("Not measured in this run."));
  }
  return out + "</ol>\n</nav>\n";
}

std::string terms_html() {
  std::string out = "<details class=\"terms\" open=\"open\"><summary>The words on this page</summary>\n<dl>\n";
  for (const auto& [term, meaning] : kTerms) {
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(term), escaped(meaning));
  }
  return out + "</dl>\n</details>\n";
}

// What can't be missing, lest times be blamed on the wrong device.
std::string fallbacks_html(const Json& report) {
  if (report["fallbacks"].empty()) return {};
  return "<p class=\"warning\">" +
         prose(
             "Part of the work did not run on the device that was chosen. What did it instead, and why, is listed at "
             "the "
             "end of this page; the times below include it.") +
         "</p>\n";
}

}  // namespace

std::string lab_page(const Json& report) {
  const std::vector<Section> all = sections(report);
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>Backplane lab: "
      "{}</title>\n<style>{}</style>\n</head>\n"
      "<body>\n<main>\n",
      escaped(report["model"]["name"].get<std::string>()), kPageStyle);
  out += header_html(report) + fallbacks_html(report) + summary_html(all) + terms_html();
  for (std::size_t i = 0; i < all.size(); ++i) {
    out += section_html(all[i], report["experiments"][all[i].id], i + 1);
  }
  Json run = report;
  run.erase("experiments");
  out += "<section id=\"run\">\n<h2>About this run</h2>\n" +
         paragraph(
             "How long the experiments are was chosen by a short run before them (probe), so that all of them take "
             "about two minutes. Whatever else ran on the machine has left its mark on the times.") +
         data_html(run) + "</section>\n";
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace backplane::lab

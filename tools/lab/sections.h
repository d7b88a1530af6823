// What the report's figures say, in words and plots. Everything is computed from the report's JSON, and every sentence
// holds whatever the figures are.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/lab/chart.h"
#include "tools/lab/figures.h"

namespace backplane::lab {

struct Plot {
  std::string caption;
  Chart chart;
};

using Table = std::vector<std::vector<std::string>>;  // the first row and column are headers

struct Section {
  std::string id = {};  // its name in the report
  std::string title = {};
  std::string question = {};
  std::string headline = {};             // the main finding, in one sentence
  std::vector<std::string> method = {};  // paragraphs
  std::vector<Plot> plots = {};
  Table table = {};                        // the main figures
  std::vector<std::string> findings = {};  // what the numbers of this run say
  std::vector<std::string> caveats = {};
  std::string skipped = {};  // why there is nothing but title and question; empty: there is
};

// The experiments of a report, in the order in which they are to be read. An experiment that was skipped has "skipped",
// why, as its only member.
std::vector<Section> sections(const Json& report);

// One each; `data` is the experiment's own part.
void describe_cache(const Json& data, Section& section);
void describe_phases(const Json& data, Section& section);
void describe_padding(const Json& data, Section& section);
void describe_batching(const Json& data, Section& section);
void describe_logits(const Json& data, Section& section);
void describe_context(const Json& data, Section& section);

// For the texts: a figure of the report, NaN for null.
double value_of(const Json& figure);
// "the line rises by 31 µs for each token of text and explains 98% of ..." for what fit_json gave.
std::string fit_text(const Json& fit, const std::string& unit);

}  // namespace backplane::lab

#include "tools/lab/sections.h"

#include <fmt/format.h>

#include <limits>

namespace backplane::lab {
namespace {

struct Experiment {
  const char* id;
  const char* title;
  const char* question;
  void (*describe)(const Json& data, Section& section);
};

constexpr Experiment kExperiments[] = {
    {"cache", "Generating without and with the KV cache",
     "A model adds one token at a time, and every new token looks back at all tokens before it. What is gained by "
     "keeping their keys and values instead of computing them again?",
     describe_cache},
    {"phases", "Prefill against decode",
     "Reading the prompt (prefill) and writing the reply (decode) use the same model. Is a token of the "
     "prompt cheaper than a token of the reply, and why?",
     describe_phases},
    {"context", "A decode step against the length of the context",
     "With the cache, a step computes one token, but that token still reads the keys and values of all tokens before "
     "it. How does the time of a step grow with the number of tokens in the cache, N?",
     describe_context},
    {"padding", "A padded batch against a ragged one",
     "Prompts that are computed together rarely have the same length. What does it cost to fill the shorter ones up "
     "with "
     "pads until they form a rectangle, and does it change what the model says?",
     describe_padding},
    {"logits", "Logits for all positions against the last one only",
     "After the last layer each token's vector can be turned into logits, a score for every entry of the vocabulary. "
     "To "
     "choose the next token only the last position's are needed. What do the others cost?",
     describe_logits},
    {"batching", "No batching, static batching, continuous batching",
     "Requests come when they like and are of different lengths. What does it change for all of them together, and for "
     "each of them, how they are put into batches?",
     describe_batching},
};

}  // namespace

double value_of(const Json& figure) { return number(figure).value_or(std::numeric_limits<double>::quiet_NaN()); }

std::string fit_text(const Json& fit, const std::string& unit) {
  if (fit.is_null()) return "there are too few different lengths to fit a line";
  return fmt::format("the fitted line {} for {} and {}", slope_text(value_of(fit["slope"])), unit,
                     r2_text(number(fit["r2"])));
}

std::vector<Section> sections(const Json& report) {
  std::vector<Section> out;
  for (const Experiment& experiment : kExperiments) {
    Section section{.id = experiment.id, .title = experiment.title, .question = experiment.question};
    const Json& data = report["experiments"][experiment.id];
    if (data.contains("skipped")) {
      section.skipped = data["skipped"].get<std::string>();
    } else {
      experiment.describe(data, section);
    }
    out.push_back(std::move(section));
  }
  return out;
}

}  // namespace backplane::lab

#include "tools/score_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "core/sample/logprobs.h"
#include "tools/signals.h"

namespace backplane::tools {
namespace {

// Writes a line while its rows are computed: whole vocabularies at many positions need not be in memory at once.
class LineWriter {
 public:
  LineWriter(Output& out, const ScoreRow& row) : out_(out), row_(row) {}

  bool begun() const { return begun_; }

  void rows(const engine::ScoredRows& scored) {
    begin();
    for (std::size_t i = 0; i < scored.positions.size(); ++i) {
      out_ << (positions_.empty() ? "[" : ",[");
      positions_.push_back(scored.positions[i]);
      row_.top ? best(scored, scored.row(i)) : all(scored, scored.row(i));
      out_ << ']';
    }
  }

  void end(const std::vector<engine::StepRecord>& steps) {
    begin();
    out_ << fmt::format("],\"positions\":[{}],\"steps\":[", fmt::join(positions_, ","));
    const char* separator = "";
    for (const engine::StepRecord& step : steps) {
      out_ << separator
           << fmt::format("{{\"tokens\":{},\"sequences\":{},\"rows\":{},\"cached\":{},\"seconds\":{}}}", step.tokens,
                          step.sequences, step.rows, step.cached, step.seconds);
      separator = ",";
    }
    out_ << "]}\n";
    out_.flush();
  }

 private:
  void begin() {
    if (!begun_) out_ << (row_.top ? "{\"top\":[" : "{\"logits\":[");
    begun_ = true;
  }
  void number(const engine::ScoredRows& scored, double value) {
    scored.logits.type == DType::kF64 ? out_.number(value) : out_.number(static_cast<float>(value));
  }
  void all(const engine::ScoredRows& scored, std::span<const double> logits) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (i != 0) out_ << ',';
      number(scored, logits[i]);
    }
  }
  void best(const engine::ScoredRows& scored, std::span<const double> logits) {
    const char* separator = "";
    for (const sample::TokenLogit& each : sample::top_logits(logits, *row_.top)) {
      out_ << separator << fmt::format("{{\"id\":{},\"logit\":", each.id);
      number(scored, each.logit);
      out_ << '}';
      separator = ",";
    }
  }

  Output& out_;
  const ScoreRow& row_;
  bool begun_ = false;
  std::vector<std::uint32_t> positions_;
};

void write_error(Output& out, const Error& error) {
  out << json_text(json_error(error_code_name(error.code()), error.what())) << '\n';
}

}  // namespace

int score_one_by_one(engine::Scorer& scorer, const std::vector<ScoreRow>& rows, std::optional<std::uint32_t> chunk,
                     Output& out) {
  int status = 0;
  for (const ScoreRow& row : rows) {
    CatchInterrupts::check("scoring");
    LineWriter writer(out, row);
    try {
      if (row.error) throw *row.error;
      const auto steps =
          scorer.score({&row.line, 1}, {.chunk = chunk, .together = false}, [&](const engine::ScoredRows& scored) {
            CatchInterrupts::check("scoring");
            writer.rows(scored);
          });
      writer.end(steps.at(0));
    } catch (const Error& error) {
      if (writer.begun()) out << '\n';  // what there is of the line can't be taken back
      if (writer.begun() || (error.code() != ErrorCode::kUsage && error.code() != ErrorCode::kCapacity)) throw;
      write_error(out, error);
      status = error.exit_status();
    }
  }
  return status;
}

int score_together(engine::Scorer& scorer, const std::vector<ScoreRow>& rows, Output& out) {
  std::vector<engine::ScoreLine> lines;
  for (const ScoreRow& row : rows) {
    if (row.error) throw *row.error;
    lines.push_back(row.line);
  }
  // The steps are known, and the lines can be ended, only when all rows are there.
  struct Held {
    std::size_t line;
    std::vector<std::uint32_t> positions;
    std::uint32_t first_row;
  };
  std::vector<Held> held;
  std::optional<engine::Logits> logits;  // one step, so all rows are in these
  const auto keep = [&](const engine::ScoredRows& scored) {
    held.push_back({scored.line, {scored.positions.begin(), scored.positions.end()}, scored.first_row});
    if (!logits) logits = scored.logits;
  };
  const auto steps = scorer.score(lines, {.chunk = std::nullopt, .together = true}, keep);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    LineWriter writer(out, rows[i]);
    for (const Held& each : held) {
      if (each.line == i) writer.rows({each.line, each.positions, *logits, each.first_row});
    }
    writer.end(steps.at(i));
  }
  return 0;
}

}  // namespace backplane::tools

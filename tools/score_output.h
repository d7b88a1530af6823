// The JSON lines of `score`.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/engine/scorer.h"
#include "tools/json_lines.h"

namespace backplane::tools {

struct ScoreRow {
  engine::ScoreLine line;
  std::optional<std::uint32_t> top;  // the best ones, instead of all logits
  std::optional<Error> error;        // the line can't be used
};

// One line out for each row, as soon as it is computed: {logits or top, positions, steps}, or {error}. Returns the exit
// status: 0, or that of the last row that failed. Throws Error when the model fails, or on SIGINT.
int score_one_by_one(engine::Scorer& scorer, const std::vector<ScoreRow>& rows, std::optional<std::uint32_t> chunk,
                     Output& out);
// All rows in one step; throws the error of the first that can't be used.
int score_together(engine::Scorer& scorer, const std::vector<ScoreRow>& rows, Output& out);

}  // namespace backplane::tools

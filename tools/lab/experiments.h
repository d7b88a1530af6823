// The experiments. Each runs something and gives what it measured as JSON; tools/lab/sections.h says it in words and
// plots. A member "equal_tokens" tells whether ways that should give the same tokens did.
#pragma once

#include "tools/lab/figures.h"
#include "tools/lab/setup.h"
#include "tools/lab/sizes.h"

namespace backplane::lab {

Json run_cache(const Setup& setup, const CacheSizes& sizes);
Json run_phases(const Setup& setup, const PhaseSizes& sizes);
Json run_padding(const Setup& setup, const PaddingSizes& sizes);
Json run_batching(const Setup& setup, const BatchingSizes& sizes);
Json run_logits(const Setup& setup, const LogitsSizes& sizes);
Json run_context(const Setup& setup, const ContextSizes& sizes);

// The line through (x, y) as {"intercept", "slope", "r2"}; null where there is none.
Json fit_json(const std::vector<std::pair<double, double>>& points);

}  // namespace backplane::lab

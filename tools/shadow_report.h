// What a shadow found: for scripts and for people.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/loaded_model.h"

namespace backplane::tools {

// device, rate, steps, sampled, rows, ties, disagreements, by_op [{op, count}], latest [{step, position, got, want,
// margin, op, error}], largest_difference, mean_kl, failures, failure, dropped. What isn't known is null, and so is an
// infinite number.
nlohmann::ordered_json shadow_json(const Shadow& shadow);
// A line on stderr, and one for each of the ops that differed most.
void print_shadow(const Shadow& shadow);

}  // namespace backplane::tools

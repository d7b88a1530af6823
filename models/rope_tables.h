// Rotary frequencies of every scaling that configs know, in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/decoder_spec.h"

namespace backplane::models {

struct RopeTable {
  std::vector<double> inv_freq;  // [n_dims/2]
  double scale = 1;              // of cos and sin
};

// For a request of at most `planned_length` tokens of a model whose config says `max_context` positions. The formulas
// are those of the papers as HF transformers' modeling_rope_utils computes them: linear; dynamic NTK; YaRN (Peng et al.
// 2023); LongRoPE (Ding et al. 2024); Llama 3.1's.
RopeTable rope_table(const RopeSpec& spec, std::uint64_t max_context, std::uint64_t planned_length);

// The tokens a sequence may have where a scaling reaches beyond the positions its config gives.
std::uint32_t stretched_context(const formats::RopeSettings& settings, std::uint32_t max_context);

// Requests with the same class get the same table; it is 0 for all where length doesn't matter.
std::uint64_t rope_length_class(const RopeSpec& spec, std::uint64_t max_context, std::uint64_t planned_length);

// The least planned length that is of the same class in all specs: a number for the tables of a request that means the
// same wherever the model runs.
std::uint64_t rope_identity(std::span<const RopeSpec> specs, std::uint64_t max_context, std::uint64_t planned_length);

}  // namespace backplane::models

// How a model rotates its queries and keys, in one form whatever file it was read from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace backplane::formats {

// The readers check the ranges: factors and bases are finite and positive, partial_rotary_factor is in (0, 1].
struct RopeSettings {
  // "default" (no scaling), "linear", "dynamic", "yarn", "longrope" (also spelled "su" in files) or "llama3".
  std::string type = "default";
  double theta = 10000;
  double factor = 1;  // how far the context is stretched
  // The multiplier of cos and sin, final: nothing is to be multiplied to it. Absent: the type's own formula.
  std::optional<double> attention_factor;
  std::optional<double> beta_fast, beta_slow;               // yarn
  std::optional<double> low_freq_factor, high_freq_factor;  // llama3
  std::optional<double> mscale, mscale_all_dim;             // yarn
  bool truncate = true;                                     // yarn: round the correction range to whole dimensions
  std::optional<std::uint64_t> original_max_position_embeddings;  // the context before stretching, in tokens
  std::vector<double> short_factor, long_factor;                  // longrope: a divisor per inverse frequency
  double partial_rotary_factor = 1;                               // the rotated part of a head
  std::optional<std::uint64_t> rotary_dimensions;  // the same as a count of values, where the file says so
  // Divisors of the inverse frequencies that a GGUF computed beforehand (rope_freqs.weight); empty: none.
  std::vector<double> frequency_factors;
};

// Sliding-window layers may rotate differently from the others (Gemma 3): `sliding` is set where the file says so.
struct RopeSet {
  RopeSettings full;
  std::optional<RopeSettings> sliding;
};

}  // namespace backplane::formats

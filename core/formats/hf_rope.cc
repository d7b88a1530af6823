// rope_settings_from_config: every spelling of rotary settings in config.json files since 2023.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/error.h"
#include "core/formats/hf_config.h"

namespace backplane::formats {
namespace {

constexpr std::array<std::string_view, 6> kTypes = {"default", "linear", "dynamic", "yarn", "longrope", "llama3"};
constexpr std::array<std::string_view, 17> kKeys = {
    "type", "rope_type", "rope_theta", "factor", "attention_factor", "beta_fast", "beta_slow", "low_freq_factor",
    "high_freq_factor", "mscale", "mscale_all_dim", "truncate", "original_max_position_embeddings", "short_factor",
    "long_factor", "partial_rotary_factor",
    // How the weights came to be, nothing that a forward pass uses.
    "finetuned"};

[[noreturn]] void refuse(const HfConfig& config, const std::string& what) {
  throw Error(ErrorCode::kBadFile, what, config.where(), "this rotary setting isn't supported");
}

double positive(const HfConfig& config, std::string_view name, double value) {
  if (std::isfinite(value) && value > 0) return value;
  refuse(config, fmt::format("the rotary setting '{}' is {}, not a positive number", name, value));
}

std::optional<double> find_positive(const HfConfig& object, std::string_view key) {
  const auto value = object.find_f64(key);
  if (value) positive(object, key, *value);
  return value;
}

std::vector<double> positives(const HfConfig& object, std::string_view key) {
  auto values = object.numbers(key);
  for (const double value : values) positive(object, key, value);
  return values;
}

std::string read_type(const HfConfig& object) {
  const auto old_name = object.find_string("type");
  std::string type = object.find_string("rope_type").value_or(old_name.value_or("default"));
  if (type == "su") type = "longrope";  // Phi-3's first name for it
  if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end()) {
    refuse(object, fmt::format("the rope type '{}' isn't known", type));
  }
  return type;
}

// The top level's values serve where the object has none, except for the original context, where the top level's goes
// first: transformers does the same.
void fill_context(const HfConfig& config, const HfConfig& object, RopeSettings& rope) {
  const auto own = object.find_u64("original_max_position_embeddings");
  const auto outer = config.find_u64("original_max_position_embeddings");
  if (rope.type == "default" || rope.type == "linear") return;
  const auto longest = config.find_u64("max_position_embeddings");
  rope.original_max_position_embeddings = rope.type == "dynamic" ? longest : outer ? outer : own ? own : longest;
  if (!rope.original_max_position_embeddings || *rope.original_max_position_embeddings == 0) {
    refuse(object, fmt::format("the rope type '{}' needs max_position_embeddings", rope.type));
  }
}

void fill_factor(const HfConfig& config, const HfConfig& object, RopeSettings& rope) {
  const auto factor = find_positive(object, "factor");
  const auto longest = config.find_u64("max_position_embeddings");
  if (factor) {
    rope.factor = *factor;
  } else if ((rope.type == "longrope" || rope.type == "yarn") && longest) {
    const auto original = static_cast<double>(*rope.original_max_position_embeddings);
    rope.factor = positive(object, "factor", static_cast<double>(*longest) / original);
  } else if (rope.type != "default") {
    refuse(object, fmt::format("the rope type '{}' needs a factor", rope.type));
  }
}

void check_type_fields(const HfConfig& object, const RopeSettings& rope) {
  if (rope.type == "longrope" && (rope.short_factor.empty() || rope.short_factor.size() != rope.long_factor.size())) {
    refuse(object, "longrope needs short_factor and long_factor of one length");
  }
  if (rope.type == "llama3" &&
      !(rope.low_freq_factor && rope.high_freq_factor && *rope.low_freq_factor < *rope.high_freq_factor)) {
    refuse(object, "llama3 rope needs low_freq_factor and a larger high_freq_factor");
  }
}

// `base` has theta and partial_rotary_factor from the top level.
RopeSettings read_object(const HfConfig& config, const HfConfig& object, RopeSettings base) {
  for (const std::string& key : object.keys()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end() && object.has(key)) {
      refuse(object, fmt::format("the rotary setting '{}' isn't known", key));
    }
  }
  RopeSettings rope = std::move(base);
  object.ignore({"finetuned"});
  rope.type = read_type(object);
  rope.theta = find_positive(object, "rope_theta").value_or(rope.theta);
  rope.partial_rotary_factor = find_positive(object, "partial_rotary_factor").value_or(rope.partial_rotary_factor);
  rope.attention_factor = find_positive(object, "attention_factor");
  rope.beta_fast = find_positive(object, "beta_fast");
  rope.beta_slow = find_positive(object, "beta_slow");
  rope.low_freq_factor = find_positive(object, "low_freq_factor");
  rope.high_freq_factor = find_positive(object, "high_freq_factor");
  rope.mscale = object.find_f64("mscale");
  rope.mscale_all_dim = object.find_f64("mscale_all_dim");
  rope.truncate = object.boolean("truncate", true);
  rope.short_factor = positives(object, "short_factor");
  rope.long_factor = positives(object, "long_factor");
  fill_context(config, object, rope);
  fill_factor(config, object, rope);
  check_type_fields(object, rope);
  if (rope.partial_rotary_factor > 1) refuse(object, "partial_rotary_factor is above 1");
  return rope;
}

// Newer configs of models with several kinds of layers have an object per kind.
std::optional<RopeSet> read_nested(const HfConfig& config, const HfConfig& object, const RopeSettings& base,
                                   const RopeSettings& sliding_base) {
  std::optional<HfConfig> full, sliding;
  if (object.has("full_attention")) full = object.find_object("full_attention");
  if (object.has("sliding_attention")) sliding = object.find_object("sliding_attention");
  if (!full && !sliding) return std::nullopt;
  for (const std::string& key : object.keys()) {
    if (key != "full_attention" && key != "sliding_attention" && object.has(key)) {
      refuse(object, fmt::format("the rotary setting '{}' isn't known", key));
    }
  }
  RopeSet set;
  if (sliding) set.sliding = read_object(config, *sliding, sliding_base);
  set.full = full ? read_object(config, *full, base) : *set.sliding;
  return set;
}

}  // namespace

RopeSet rope_settings_from_config(const HfConfig& config, const RopeDefaults& defaults) {
  RopeSettings base, sliding_base;
  const auto theta = find_positive(config, "rope_theta"), old_theta = find_positive(config, "rotary_emb_base");
  base.theta = theta.value_or(old_theta.value_or(defaults.theta));
  const auto partial = find_positive(config, "partial_rotary_factor"), percent = find_positive(config, "rotary_pct");
  base.partial_rotary_factor = partial.value_or(percent.value_or(defaults.partial_rotary_factor));
  const auto local_theta = find_positive(config, "rope_local_base_freq");
  sliding_base.theta = local_theta.value_or(defaults.sliding_theta);
  sliding_base.partial_rotary_factor = base.partial_rotary_factor;

  // rope_scaling goes first where a file has both, as in transformers.
  const auto scaling = config.find_object("rope_scaling"), parameters = config.find_object("rope_parameters");
  const auto object = scaling && !scaling->keys().empty() ? scaling : parameters;
  const HfConfig nothing = HfConfig::from_text("{}", config.where());
  if (object) {
    if (auto nested = read_nested(config, *object, base, sliding_base)) return *std::move(nested);
  }
  RopeSet set;
  set.full = read_object(config, object.value_or(nothing), base);
  // rope_scaling concerns the layers with full attention only.
  if (local_theta) set.sliding = read_object(config, nothing, sliding_base);
  return set;
}

}  // namespace backplane::formats

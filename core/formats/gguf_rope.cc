#include "core/formats/gguf_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/base/error.h"

namespace backplane::formats {
namespace {

// What follows "{arch}.rope.".
constexpr std::array<std::string_view, 15> kKeys = {
    "dimension_count", "dimension_count_swa", "freq_base", "freq_base_swa", "scale_linear", "scaling.type",
    "scaling.factor", "scaling.original_context_length", "scaling.attn_factor", "scaling.yarn_ext_factor",
    "scaling.yarn_attn_factor", "scaling.yarn_beta_fast", "scaling.yarn_beta_slow", "scaling.yarn_log_multiplier",
    // How the weights came to be, nothing that a forward pass uses.
    "scaling.finetuned"};

class Reader {
 public:
  Reader(const Gguf& gguf, std::string_view arch) : gguf_(gguf), prefix_(std::string(arch) + ".rope.") {}

  RopeSet read() const;

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::kBadFile, what, gguf_.path().string(), "this rotary setting isn't supported");
  }
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  std::optional<double> positive(std::string_view name) const;
  std::vector<double> factors(std::string_view tensor) const;
  void check_keys() const;
  std::string type(const RopeSettings& rope, std::optional<double> factor) const;
  void read_scaling(RopeSettings& rope) const;
  void read_attention_factor(RopeSettings& rope) const;

  const Gguf& gguf_;
  std::string prefix_;
};

// Writers give 0 for "not set".
std::optional<double> Reader::positive(std::string_view name) const {
  const auto value = gguf_.find_f64(key(name));
  if (!value || *value == 0) return std::nullopt;
  if (std::isfinite(*value) && *value > 0) return value;
  refuse(fmt::format("key '{}' is {}, not a positive number", key(name), *value));
}

std::vector<double> Reader::factors(std::string_view name) const {
  const TensorInfo* tensor = gguf_.find(name);
  if (!tensor) return {};
  if (tensor->type != DType::kF32 || tensor->shape.size() != 1) {
    refuse(fmt::format("tensor '{}' isn't a list of F32 values", name));
  }
  std::vector<double> out;
  out.reserve(tensor->elements());
  for (std::size_t at = 0; at < tensor->data.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, tensor->data.data() + at, sizeof value);
    if (!std::isfinite(value) || value <= 0) refuse(fmt::format("tensor '{}' holds {}", name, value));
    out.push_back(value);
  }
  return out;
}

void Reader::check_keys() const {
  for (const GgufEntry& entry : gguf_.entries()) {
    if (!entry.key.starts_with(prefix_)) continue;
    const auto name = entry.key.substr(prefix_.size());
    if (std::find(kKeys.begin(), kKeys.end(), name) == kKeys.end()) {
      refuse(fmt::format("the rotary key '{}' isn't known", entry.key));
    }
  }
}

std::string Reader::type(const RopeSettings& rope, std::optional<double> factor) const {
  const auto name = gguf_.find_string(key("scaling.type"));
  // Converters leave the type out for Phi-3: the tensors of factors tell. A factor alone has always meant linear.
  if (!name) return !rope.long_factor.empty() ? "longrope" : factor && *factor != 1 ? "linear" : "default";
  if (*name == "none") return "default";
  if (*name == "linear" || *name == "yarn" || *name == "longrope") return std::string(*name);
  refuse(fmt::format("the rope scaling type '{}' isn't known", *name));
}

void Reader::read_attention_factor(RopeSettings& rope) const {
  const auto model = positive("scaling.attn_factor"), yarn = positive("scaling.yarn_attn_factor");
  if (!model && !yarn) return;
  // In these files the multiplier comes on top of yarn's own formula, elsewhere it stands alone.
  const double own = rope.type == "yarn" ? 1 + 0.1 * std::log(std::max(rope.factor, 1.0)) : 1;
  rope.attention_factor = own * model.value_or(1) * yarn.value_or(1);
}

void Reader::read_scaling(RopeSettings& rope) const {
  const auto factor = positive("scaling.factor"), old_factor = positive("scale_linear");
  const auto stretch = factor ? factor : old_factor;
  rope.type = type(rope, stretch);
  rope.factor = rope.type == "default" ? 1 : stretch.value_or(1);
  rope.original_max_position_embeddings = gguf_.find_u64(key("scaling.original_context_length"));
  if (rope.type == "yarn" || rope.type == "longrope") {
    // Both need it to compute anything; the context length is what remains when the file is silent.
    const auto longest = gguf_.find_u64(prefix_.substr(0, prefix_.size() - 5) + "context_length");
    auto& original = rope.original_max_position_embeddings;
    if (!original || *original == 0) original = longest;
    if (!original || *original == 0) refuse(fmt::format("{} rope scaling without a context length", rope.type));
    if (rope.type == "longrope" && !stretch && longest) {
      rope.factor = std::max(1.0, static_cast<double>(*longest) / static_cast<double>(*original));
    }
  }
  rope.beta_fast = positive("scaling.yarn_beta_fast");
  rope.beta_slow = positive("scaling.yarn_beta_slow");
  const auto extrapolation = gguf_.find_f64(key("scaling.yarn_ext_factor"));
  if (extrapolation && *extrapolation >= 0 && *extrapolation != (rope.type == "yarn" ? 1 : 0)) {
    refuse(fmt::format("key '{}' is {}", key("scaling.yarn_ext_factor"), *extrapolation));
  }
  const auto log_multiplier = gguf_.find_f64(key("scaling.yarn_log_multiplier"));
  if (log_multiplier && *log_multiplier != 0) {
    refuse(fmt::format("key '{}' is {}", key("scaling.yarn_log_multiplier"), *log_multiplier));
  }
  read_attention_factor(rope);
}

RopeSet Reader::read() const {
  check_keys();
  RopeSet set;
  RopeSettings& rope = set.full;
  rope.theta = positive("freq_base").value_or(rope.theta);
  rope.rotary_dimensions = gguf_.find_u64(key("dimension_count"));
  rope.frequency_factors = factors("rope_freqs.weight");
  rope.long_factor = factors("rope_factors_long.weight");
  rope.short_factor = factors("rope_factors_short.weight");
  if (rope.long_factor.size() != rope.short_factor.size()) {
    refuse("rope_factors_long.weight and rope_factors_short.weight differ in length");
  }
  read_scaling(rope);
  if (rope.type == "longrope" && rope.long_factor.empty()) refuse("longrope without its tensors of factors");
  const auto theta = positive("freq_base_swa");
  const auto dimensions = gguf_.find_u64(key("dimension_count_swa"));
  if (theta || dimensions) {
    // Scaling concerns the layers with full attention only.
    set.sliding.emplace();
    set.sliding->theta = theta.value_or(rope.theta);
    set.sliding->rotary_dimensions = dimensions ? dimensions : rope.rotary_dimensions;
  }
  return set;
}

}  // namespace

RopeSet rope_settings_from_gguf(const Gguf& gguf, std::string_view arch) { return Reader(gguf, arch).read(); }

}  // namespace backplane::formats

#include "backends/onednn/kernels.h"

#include <algorithm>
#include <cctype>
#include <deque>

#include "hwy/targets.h"

namespace backplane::onednn {
namespace {

// A function's static, because other files' initializers come here before this file's would have run.
std::deque<Kernels>& all() {
  static std::deque<Kernels> kernels;
  return kernels;
}

bool runs(const Kernels& kernels) {
  // The baseline, in whatever form, always runs; Highway lists what it found beyond.
  return (hwy::SupportedTargets() & kernels.target) != 0;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

}  // namespace

Kernels& kernels_for(std::int64_t target) {
  for (Kernels& kernels : all()) {
    if (kernels.target == target) return kernels;
  }
  Kernels& made = all().emplace_back();
  made.target = target;
  made.name = hwy::TargetName(target);
  return made;
}

const Kernels* best_kernels() {
  const Kernels* best = nullptr;
  for (const Kernels& kernels : all()) {  // Highway's lower bits are the better targets
    if (runs(kernels) && (best == nullptr || kernels.target < best->target)) best = &kernels;
  }
  return best;
}

const Kernels* kernels_by_name(const std::string& name) {
  for (const Kernels& kernels : all()) {
    if (runs(kernels) && upper(kernels.name) == upper(name)) return &kernels;
  }
  return nullptr;
}

std::string kernel_names() {
  std::string names;
  for (const Kernels& kernels : all()) {
    if (runs(kernels)) names += (names.empty() ? "" : " ") + kernels.name;
  }
  return names;
}

const Format* format_of(bp_type type) {
  static constexpr Format kFormats[] = {
      {BP_TYPE_Q4_0, 4, 1, 0, 128 + 16, 1, Offset::kCenter, 8},
      {BP_TYPE_Q4_1, 4, 1, 0, 128 + 32, 1, Offset::kMinimum, 0},
      {BP_TYPE_Q5_0, 5, 1, 0, 160 + 16, 1, Offset::kCenter, 16},
      {BP_TYPE_Q5_1, 5, 1, 0, 160 + 32, 1, Offset::kMinimum, 0},
      {BP_TYPE_Q8_0, 8, 1, 0, 256 + 16, 1, Offset::kNone, 0},
      {BP_TYPE_Q4_K, 4, 8, 32, 128 + 16, 1, Offset::kMinimum, 0},
      {BP_TYPE_Q5_K, 5, 8, 32, 160 + 16, 1, Offset::kMinimum, 0},
      {BP_TYPE_Q6_K, 6, 8, 16, 192 + 16, 2, Offset::kCenter, 32},
  };
  for (const Format& format : kFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

}  // namespace backplane::onednn

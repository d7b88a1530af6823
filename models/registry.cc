#include "models/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "models/check.h"

namespace backplane::models {
namespace {

[[noreturn]] void unknown(const formats::Container& container) {
  std::vector<std::string_view> known;
  for (const Architecture& a : architectures()) known.push_back(a.name);
  const std::string name = container.architecture();
  throw Error(ErrorCode::kBadFile,
              name.empty() ? "the file names no architecture" : fmt::format("unknown architecture {}", name),
              container.path().string(), fmt::format("known ones are {}", fmt::join(known, ", ")));
}

}  // namespace

std::span<const Architecture> architectures() {
  static const std::vector<Architecture> list = {gpt2(), llama(), mistral(), qwen2(), qwen3()};
  return list;
}

DecoderSpec read_spec(const formats::Container& container) {
  const auto* gguf = dynamic_cast<const formats::Gguf*>(&container);
  const auto* folder = dynamic_cast<const formats::HuggingFaceFolder*>(&container);
  if (!gguf && !folder) {
    throw Error(ErrorCode::kBadFile, "weights without a config", container.path().string(),
                "give the folder that also holds config.json");
  }
  const std::string name = container.architecture();
  for (const Architecture& a : architectures()) {
    const bool match = gguf ? a.from_gguf && name == a.name
                            : std::find(a.hf_names.begin(), a.hf_names.end(), name) != a.hf_names.end();
    if (!match) continue;
    DecoderSpec spec = gguf ? a.from_gguf(*gguf) : a.from_huggingface(*folder);
    spec.architecture = a.name;
    check_spec(spec, container);
    return spec;
  }
  unknown(container);
}

}  // namespace backplane::models

// The architectures that can be run: an explicit list, one file each.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/formats/gguf.h"
#include "core/formats/hf_folder.h"
#include "models/decoder_spec.h"

namespace backplane::models {

struct Architecture {
  std::string_view name;                   // general.architecture of a GGUF
  std::vector<std::string_view> hf_names;  // architectures[0] of a config.json, and model_type
  DecoderSpec (*from_gguf)(const formats::Gguf& gguf);
  DecoderSpec (*from_huggingface)(const formats::HuggingFaceFolder& folder);
};

std::span<const Architecture> architectures();

// Reads and checks. Throws Error{kBadFile}: an architecture that isn't in the list (the message lists them), a config
// that asks for what we don't have.
DecoderSpec read_spec(const formats::Container& container);

// One in each architecture's file.
Architecture gpt2();
Architecture llama();
Architecture mistral();
Architecture qwen2();
Architecture qwen3();

}  // namespace backplane::models

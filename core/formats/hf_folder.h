// A Hugging Face model folder: config.json and its weights in safetensors.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/formats/hf_config.h"
#include "core/formats/safetensors.h"

namespace backplane::formats {

class HuggingFaceFolder final : public Safetensors {
 public:
  // Takes model.safetensors, else model.safetensors.index.json. Throws Error{kBadFile} when there is no config.json or
  // no such weights: a folder with a tokenizer alone isn't a model.
  static std::shared_ptr<const HuggingFaceFolder> open(const std::filesystem::path& path);

  // With nothing read yet: each caller keeps its own record.
  HfConfig config() const { return config_.unread(); }
  // From generation_config.json when it has them, else from config.json; may be empty.
  const std::vector<std::uint64_t>& eos_token_ids() const { return eos_token_ids_; }

  std::string architecture() const override { return config_.unread().architecture(); }
  nlohmann::json metadata(std::size_t array_limit) const override;

 private:
  HuggingFaceFolder(std::filesystem::path path, Parts parts, HfConfig config, std::vector<std::uint64_t> eos_token_ids);

  HfConfig config_;
  std::vector<std::uint64_t> eos_token_ids_;
};

}  // namespace backplane::formats

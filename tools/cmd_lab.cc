// backplane lab: what the KV cache and batching do for a model on a device, measured, told and plotted.
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "core/base/error.h"
#include "plugins/host/host_table.h"
#include "tools/commands.h"
#include "tools/json_lines.h"
#include "tools/lab/lab.h"
#include "tools/lab/page.h"
#include "tools/loaded_model.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/signals.h"

namespace backplane::tools {
namespace {

constexpr std::size_t kMostRequests = 256;  // of a trace file

struct LabCommand {
  std::string model;
  std::optional<std::string> out, trace;
  std::uint64_t seed = 1;
  bool quick = false, json = false;
  DeviceOptions device;
};

[[noreturn]] void refuse_folder(const std::filesystem::path& path, std::string_view why) {
  throw Error(ErrorCode::kUsage, "can't write there", fmt::format("--out {}: {}", path.string(), why),
              "give a folder that can be written");
}

// A whole file or none: it is written beside its place and moved there.
void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::path part = path;
  part += ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(part, path, error);
  if (!file || error) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    throw Error(ErrorCode::kCapacity, "can't write the report", path.string(), "is the disk full?");
  }
}

// Before minutes of measuring, not after them.
void prepare_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) refuse_folder(folder, error.message());
  if (!std::filesystem::is_directory(folder, error)) refuse_folder(folder, "it is not a folder");
  const std::filesystem::path trial = folder / "lab.html.part";
  std::ofstream file(trial, std::ios::binary | std::ios::trunc);
  if (!file) refuse_folder(folder, "no file can be created in it");
  file.close();
  std::filesystem::remove(trial, error);
}

// With less context where memory doesn't suffice, down to what the experiments need at least.
LoadedModel load(const LabCommand& command, const OpenedModel& opened) {
  models::LoadOptions load;
  load.max_sequences = lab::kWantedRoom.sequences;
  load.max_step_tokens = lab::kWantedRoom.step_tokens;
  if (command.device.context) return load_model(opened, command.device, load, KvSize::kWhatFits);
  for (load.context = opened.context_for(lab::kWantedRoom.context, false);; load.context /= 2) {
    load.kv_tokens = std::uint64_t{load.context} * load.max_sequences / 2;  // pads and short prompts need few
    try {
      return load_model(opened, command.device, load);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCapacity || load.context / 2 < lab::kLeastContext) throw;
    }
  }
}

std::string now() {
  const std::time_t time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

// A bar for each experiment.
lab::Progress show_progress(const LabCommand& command, const std::string& title) {
  auto bar = std::make_shared<ProgressBar>(title, !command.device.no_progress, ProgressUnit::kCount);
  return [bar](std::uint64_t done, std::uint64_t total) {
    CatchInterrupts::check("measuring");
    bar->update(done, total);
  };
}

int run_lab(const LabCommand& command) {
  if (command.device.shadow || command.device.shadow_rate) {
    throw Error(ErrorCode::kUsage, "a shadow's work would be measured too", "--shadow", "leave it out");
  }
  const CatchInterrupts guard;
  if (command.out) prepare_folder(*command.out);
  std::optional<lab::Trace> trace;
  if (command.trace) trace = lab::read_trace(*command.trace, kMostRequests);
  const OpenedModel opened = open_model(command.model, command.device);
  LoadedModel loaded = load(command, opened);
  const lab::Json report =
      lab::run_lab({.file = opened.file,
                    .model = *loaded.model,
                    .device = loaded.devices.prefill.first(),
                    .tokenizer = opened.tokenizer_or_null(),
                    .device_name = loaded.device(),
                    .threads = plugins::host_threads(),
                    .memory = loaded.memory,
                    .quick = command.quick,
                    .seed = command.seed,
                    .trace = std::move(trace),
                    .date = now(),
                    .progress = [&](const std::string& title) { return show_progress(command, title); }});
  Output out;
  if (command.json) {
    out << json_text(report) << '\n';
  } else {
    out << lab::lab_text(report);
  }
  if (command.out) {
    const std::filesystem::path folder = *command.out;
    write_file(folder / "lab.json", json_text(report) + "\n");
    write_file(folder / "lab.html", lab::lab_page(report));
    if (!command.json) out << fmt::format("\nThe page with plots: {}\n", (folder / "lab.html").string());
  }
  out.flush();
  if (command.device.verbose) print_ledger(loaded);
  return 0;
}

}  // namespace

void add_lab(CommandLine& line) {
  auto options = std::make_shared<LabCommand>();
  Command command =
      line.command("lab", "Measure and show what KV caching, padding and batching do, in about two minutes");
  command.option("model", options->model, "MODEL", "A .gguf file, a Hugging Face folder, or a known name")
      .option("--out", options->out, "DIR", "Write lab.html, a page with plots and explanations, and lab.json into DIR")
      .option("--trace", options->trace, "FILE",
              "Requests to serve: CSV with TIMESTAMP,ContextTokens,GeneratedTokens (default: drawn at random)")
      .option("--seed", options->seed, "SEED", "Of what is drawn at random; default 1")
      .flag("--quick", options->quick, "The smallest sizes: to see that it works")
      .flag("--json", options->json, "One JSON object instead of the tables")
      .required("model");
  add_options(command, options->device);
  command
      .example(
          "backplane lab smollm2-135m-instruct --out lab\n"
          "  backplane lab model.gguf --device cpu:f32 --trace requests.csv")
      .action([options] { return run_lab(*options); });
}

}  // namespace backplane::tools

// backplane check: one model on two devices, op by op.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>

#include "core/base/error.h"
#include "plugins/host/host_table.h"
#include "tools/check_model.h"
#include "tools/check_steps.h"
#include "tools/commands.h"
#include "tools/json_lines.h"
#include "tools/loaded_model.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/prompt.h"
#include "tools/runtime.h"
#include "tools/signals.h"

namespace backplane::tools {
namespace {

constexpr const char* kReference = "cpu:f64";
constexpr std::uint32_t kStepTokens = 64;    // of a prompt, at most: what the ops of a step held is kept
constexpr std::uint32_t kFirstFusedOp = 64;  // BP_OP_ADD_NORM
constexpr std::size_t kMostPromptTokens = 4096;
constexpr std::uint32_t kMostThreads = 1024;

struct CheckOptions {
  std::string model;
  DeviceOptions device;
  std::string against = kReference, options, fusion = "off", json;
  std::optional<std::string> prompt, prompt_ids;
};

std::vector<check::Task> tasks_of(const CheckOptions& options, const OpenedModel& opened, std::uint32_t page) {
  const models::DecoderSpec& spec = opened.file.spec();
  if (!options.prompt && !options.prompt_ids) return check::builtin_tasks(spec.vocab_size, page, spec.max_context);
  const std::vector<TokenId> ids = options.prompt_ids
                                       ? parse_ids(*options.prompt_ids)
                                       : completion_prompt(*opened.need_tokenizer().tokenizer, *options.prompt);
  if (ids.empty()) throw Error(ErrorCode::kUsage, "the prompt is empty", {}, "give at least one token");
  if (ids.size() > kMostPromptTokens) {
    throw Error(ErrorCode::kCapacity, fmt::format("a prompt of {} tokens is too long to check", ids.size()), {},
                fmt::format("give at most {}", kMostPromptTokens));
  }
  return check::prompt_tasks(ids, kStepTokens);
}

models::LoadOptions load_options(const CheckOptions& options, const check::Needs& needs) {
  models::LoadOptions load;
  load.context = needs.context;
  load.max_sequences = needs.sequences;
  load.max_step_tokens = needs.step_tokens;
  load.kv_type = options.device.kv();
  load.executor.policy = options.device.policy();
  return load;
}

std::unique_ptr<models::LoadedModel> load_on(const plugins::Registry& registry, const OpenedModel& opened,
                                             const std::shared_ptr<device::Device>& device,
                                             const models::LoadOptions& load) {
  const std::string reference = reference_name(device->activation_type());
  return models::load(opened.file, device,
                      device->name() == reference ? device : open_device(registry.find_device(reference)), load);
}

void write_report(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << '\n';
  file.close();
  if (!file) throw Error(ErrorCode::kUsage, "can't write the report", path);
}

void run_tasks(check::PairModel& pair, const CheckOptions& options, const std::vector<check::Task>& tasks) {
  ProgressBar bar("checking", !options.device.no_progress, ProgressUnit::kCount);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    CatchInterrupts::check("checking the model");
    bar.update(i, tasks.size());
    check::run(pair, tasks[i]);
  }
  bar.update(tasks.size(), tasks.size());
}

int report(const check::CheckResult& result, const CheckOptions& options) {
  Output out;
  if (options.json == "-") {
    out << check::json(result) << '\n';
  } else {
    out << check::table(result, options.device.verbose);
  }
  out.flush();
  if (!options.json.empty() && options.json != "-") write_report(options.json, check::json(result));
  if (result.verdict() == check::Verdict::kNotCompared) {
    throw Error(ErrorCode::kDevice, "nothing could be compared", result.device,
                "the table says why for each op; try --fusion off, or another device");
  }
  return result.verdict() == check::Verdict::kBug ? static_cast<int>(ErrorCode::kCheckFailed) : 0;
}

void refuse_nonsense(const CheckOptions& options) {
  if (options.device.context) {
    throw Error(ErrorCode::kUsage, "a check makes room for what it computes", "--ctx", "leave it out");
  }
  if (options.device.threads.value_or(1) == 0 || options.device.threads.value_or(1) > kMostThreads) {
    throw Error(ErrorCode::kUsage, fmt::format("the number of threads must be 1 to {}", kMostThreads), "--threads");
  }
  if (options.device.prefill_device || options.device.decode_device) {
    throw Error(ErrorCode::kUsage, "a check is of one device", "--prefill-device, --decode-device",
                "name it with --device");
  }
  if (!options.device.device) {
    throw Error(ErrorCode::kUsage, "which device is to be checked?", "backplane check", "name it with --device");
  }
}

int check_model(const CheckOptions& options) {
  refuse_nonsense(options);
  const CatchInterrupts guard;
  const OpenedModel opened = open_model(options.model, options.device);
  const plugins::Registry registry(options.device.plugins.search());
  if (options.device.threads) plugins::set_host_threads(*options.device.threads);
  const plugins::DeviceRef ref = registry.find_device(*options.device.device);
  const auto subject =
      device::Device::open({&ref.plugin->tables(), ref.plugin->name()}, ref.index, false, options.options);
  const auto reference = open_device(registry.find_device(options.against));
  if (subject->name() == reference->name()) {
    throw Error(ErrorCode::kUsage, "a device can't be checked against itself", subject->name(),
                "name another one with --against");
  }
  // Pages must be the same on both.
  const models::LoadOptions liked =
      models::resolve(load_options(options, {}), opened.file.spec(), device::Devices{subject, reference});
  const std::vector<check::Task> tasks = tasks_of(options, opened, liked.page_size);
  models::LoadOptions load = load_options(options, check::needs_of(tasks));
  load.page_size = liked.page_size;
  const auto unfused = [](std::uint32_t code) { return code < kFirstFusedOp; };
  if (options.fusion == "off") load.executor.allow = unfused;
  const auto mine = load_on(registry, opened, subject, load);
  load.executor.allow = unfused;
  load.executor.policy = device::FallbackPolicy::kAllow;
  const auto theirs = load_on(registry, opened, reference, load);
  check::PairModel pair(*mine, *theirs);
  run_tasks(pair, options, tasks);
  check::CheckResult result = pair.result();
  result.model = opened.file.container().path().filename().string();
  result.device = subject->name();
  result.against = reference->name();
  result.fusion = options.fusion == "on";
  return report(result, options);
}

}  // namespace

void add_check(CommandLine& line) {
  auto options = std::make_shared<CheckOptions>();
  Command command =
      line.command("check", "Compare a model on two devices, op by op: what is rounding, and what is a fault");
  command.option("model", options->model, "MODEL", "A .gguf file, a Hugging Face folder, or a known name")
      .option("--against", options->against, "DEVICE", "The device to compare with (default: cpu:f64)")
      .option("-p,--prompt", options->prompt, "TEXT",
              "What to compute; by default a few sequences of ids: short, over pages, ragged, prefill then decode")
      .option("--prompt-ids", options->prompt_ids, "IDS", "The same as token ids: 1,2,3")
      .choice("--fusion", options->fusion, {"off", "on"},
              "Let the device fuse ops (default: off, so that every op is seen; fused ones are not compared)")
      .option("--options", options->options, "KEY=VALUE,...", "Passed to the plugin when the device is opened")
      .option("--json", options->json, "FILE", "Write a report with everything; - for standard output, no table then")
      .only_one_of({"--prompt", "--prompt-ids"})
      .required("model");
  add_options(command, options->device);
  command.example("backplane check model.gguf --device cpu:f32\n  backplane check model.gguf --device cuda:0 --json -")
      .action([options] { return check_model(*options); });
}

}  // namespace backplane::tools

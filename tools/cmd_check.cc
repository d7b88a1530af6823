// backplane check: one model on two devices, op by op.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
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
constexpr std::uint32_t kLargestStep = 256;  // of what is built in, where the devices have no limit
constexpr std::uint32_t kFirstFusedOp = 64;  // BP_OP_ADD_NORM
constexpr std::size_t kMostPromptTokens = 4096;
constexpr std::uint32_t kMostThreads = 1024;

struct CheckOptions {
  std::string model;
  DeviceOptions device;
  std::string against = kReference, options, fusion = "off", json;
  std::optional<std::string> prompt, prompt_ids;
};

// In steps that the devices can have: `liked` is what they agree on.
std::vector<check::Task> tasks_of(const CheckOptions& options, const OpenedModel& opened,
                                  const models::LoadOptions& liked) {
  const models::DecoderSpec& spec = opened.file.spec();
  if (!options.prompt && !options.prompt_ids) {
    return check::builtin_tasks(spec.vocab_size, liked.page_size, spec.max_context, liked.max_step_tokens);
  }
  const std::vector<TokenId> ids = options.prompt_ids
                                       ? parse_ids(*options.prompt_ids)
                                       : completion_prompt(*opened.need_tokenizer().tokenizer, *options.prompt);
  if (ids.empty()) throw Error(ErrorCode::kUsage, "the prompt is empty", {}, "give at least one token");
  if (ids.size() > kMostPromptTokens) {
    throw Error(ErrorCode::kCapacity, fmt::format("a prompt of {} tokens is too long to check", ids.size()), {},
                fmt::format("give at most {}", kMostPromptTokens));
  }
  return check::prompt_tasks(ids, std::min(kStepTokens, liked.max_step_tokens));
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
  std::optional<Error> error;
  if (result.verdict() == check::Verdict::kNotCompared) {
    error.emplace(ErrorCode::kDevice, "nothing could be compared", result.device,
                  "the table says why for each op; try --fusion off, or another device");
  }
  const std::string json = check::json(result, error ? &*error : nullptr);
  Output out;
  out << (options.json == "-" ? json + '\n' : check::table(result, options.device.verbose));
  out.flush();
  if (!options.json.empty() && options.json != "-") write_report(options.json, json);
  if (error && options.json != "-") throw *error;
  if (error) {  // the object on stdout has it already
    std::fprintf(stderr, "backplane: error: %s\n", error->what());
    return error->exit_status();
  }
  return result.verdict() == check::Verdict::kBug ? static_cast<int>(ErrorCode::kCheckFailed) : 0;
}

void refuse_nonsense(const CheckOptions& options) {
  const auto refuse = [](std::string_view what, std::string_view where, std::string_view todo) {
    throw Error(ErrorCode::kUsage, what, where, todo);
  };
  const DeviceOptions& device = options.device;
  if (device.context) refuse("a check makes room for what it computes", "--ctx", "leave it out");
  if (device.threads.value_or(1) == 0 || device.threads.value_or(1) > kMostThreads) {
    refuse(fmt::format("the number of threads must be 1 to {}", kMostThreads), "--threads", "");
  }
  if (device.prefill_device || device.decode_device) {
    refuse("a check runs prompts and replies on the same devices", "--prefill-device, --decode-device",
           "check one after the other with --device");
  }
  if (device.failover) {
    refuse("a check of a device that is lost has nothing more to say", "--failover",
           "leave it out, and check that device with --device");
  }
  if (device.shadow || device.shadow_rate) {
    refuse("a check compares every step already", "--shadow", "name the device to compare with by --against");
  }
  if (!device.device) refuse("which device is to be checked?", "backplane check", "name it with --device");
  if (!options.options.empty() && device.device->find(',') != std::string::npos) {
    refuse("options are for one device", "--options", "leave them out, or check one device at a time");
  }
}

device::Devices all_of(const Devices& subject, const Devices& reference) {
  device::Devices all;
  for (const Devices* each : {&subject, &reference}) {
    for (const models::DeviceChoice& choice : each->chosen) all.push_back(choice.device);
  }
  return all;
}

int check_model(const CheckOptions& options) {
  refuse_nonsense(options);
  const CatchInterrupts guard;
  const OpenedModel opened = open_model(options.model, options.device);
  const plugins::Registry registry(options.device.plugins.search());
  if (options.device.threads) plugins::set_host_threads(*options.device.threads);
  const Devices subject = open_list(registry, *options.device.device, {options.options, options.device.deterministic});
  const Devices reference = open_list(registry, options.against);
  if (subject.name() == reference.name()) {
    throw Error(ErrorCode::kUsage, "a device can't be checked against itself", subject.name(),
                "name another one with --against");
  }
  // Pages and steps must be the same on both.
  const models::LoadOptions liked =
      models::resolve(load_options(options, {.context = opened.file.spec().max_context, .step_tokens = kLargestStep}),
                      opened.file.spec(), all_of(subject, reference));
  const std::vector<check::Task> tasks = tasks_of(options, opened, liked);
  models::LoadOptions load = load_options(options, check::needs_of(tasks));
  load.page_size = liked.page_size;
  const auto unfused = [](std::uint32_t code) { return code < kFirstFusedOp; };
  if (options.fusion == "off") load.executor.allow = unfused;
  const auto mine = models::load(opened.file, subject.chosen, subject.reference, load);
  load.executor.allow = unfused;
  load.executor.policy = device::FallbackPolicy::kAllow;
  const auto theirs = models::load(opened.file, reference.chosen, reference.reference, load);
  check::PairModel pair(*mine, *theirs);
  run_tasks(pair, options, tasks);
  check::CheckResult result = pair.result();
  result.model = opened.file.container().path().filename().string();
  result.device = subject.name();
  result.against = reference.name();
  result.fusion = options.fusion == "on";
  return report(result, options);
}

}  // namespace

void add_check(CommandLine& line) {
  auto options = std::make_shared<CheckOptions>();
  Command command =
      line.command("check", "Compare a model on two devices, op by op: what is rounding, and what is a fault");
  command.option("model", options->model, "MODEL", "A .gguf file, a Hugging Face folder, or a known name")
      .option("--against", options->against, "DEVICE", "What to compare with, as --device (default: cpu:f64)")
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

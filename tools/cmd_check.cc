// backplane check: one model on two devices, op by op.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>

#include "core/base/error.h"
#include "core/engine/scorer.h"
#include "plugins/host/host_table.h"
#include "tools/check_model.h"
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
constexpr std::uint32_t kStepTokens = 64;    // at most; what the ops of a step held is kept
constexpr std::uint32_t kFirstFusedOp = 64;  // BP_OP_ADD_NORM
constexpr std::size_t kMostPromptTokens = 4096;

struct CheckOptions {
  std::string model;
  DeviceOptions device;
  std::string against = kReference, options, fusion = "off", json;
  std::optional<std::string> prompt, prompt_ids;
};

// Lines that are computed in the same way.
struct Task {
  std::vector<engine::ScoreLine> lines;
  engine::ScoreOptions how;
};

// The same ids on every machine.
engine::ScoreLine some_line(std::uint32_t length, std::uint32_t vocabulary, std::uint32_t limit) {
  engine::ScoreLine line;
  line.positions.which = engine::Positions::kAll;
  std::uint64_t state = length;
  for (std::uint32_t i = 0; i < std::max(1u, std::min(length, limit)); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    line.ids.push_back(static_cast<TokenId>((state >> 33) % vocabulary));
  }
  return line;
}

// Short; over a page's border; two of different lengths in one step; in chunks that see what is cached, the last of one
// token, which is a decode; decodes from the second token on.
std::vector<Task> builtin_tasks(const models::DecoderSpec& spec, std::uint32_t page) {
  const auto line = [&](std::uint32_t length) { return some_line(length, spec.vocab_size, spec.max_context); };
  return {{{line(3)}, {}},
          {{line(page + 5)}, {}},
          {{line(page + 1), line(7)}, {.together = true}},
          {{line(2 * page + 1)}, {.chunk = page}},
          {{line(4)}, {.chunk = 1}}};
}

// The user's prompt at once, and with its last token as a decode.
std::vector<Task> prompt_tasks(std::vector<TokenId> ids) {
  if (ids.empty()) throw Error(ErrorCode::kUsage, "the prompt is empty", {}, "give at least one token");
  if (ids.size() > kMostPromptTokens) {
    throw Error(ErrorCode::kCapacity, fmt::format("a prompt of {} tokens is too long to check", ids.size()), {},
                fmt::format("give at most {}", kMostPromptTokens));
  }
  engine::ScoreLine line;
  line.ids = std::move(ids);
  line.positions.which = engine::Positions::kAll;
  const auto length = static_cast<std::uint32_t>(line.ids.size());
  std::vector<Task> tasks = {{{line}, {}}};
  if (length > 1) tasks.push_back({{line}, {.chunk = std::min(kStepTokens, length - 1)}});
  return tasks;
}

std::vector<Task> tasks_of(const CheckOptions& options, const OpenedModel& opened, std::uint32_t page) {
  if (options.prompt_ids) return prompt_tasks(parse_ids(*options.prompt_ids));
  if (options.prompt) return prompt_tasks(completion_prompt(*opened.need_tokenizer().tokenizer, *options.prompt));
  return builtin_tasks(opened.file.spec(), page);
}

models::LoadOptions load_options(const CheckOptions& options, const std::vector<Task>& tasks) {
  models::LoadOptions load;
  load.max_step_tokens = kStepTokens;
  for (const Task& task : tasks) {
    std::uint32_t total = 0;
    for (const engine::ScoreLine& line : task.lines) {
      const auto length = static_cast<std::uint32_t>(line.ids.size());
      load.context = std::max(load.context, length);
      total += length;
    }
    load.max_sequences = std::max(load.max_sequences, static_cast<std::uint32_t>(task.lines.size()));
    if (task.how.together) load.max_step_tokens = std::max(load.max_step_tokens, total);
    if (task.how.chunk) load.max_step_tokens = std::max(load.max_step_tokens, *task.how.chunk);
  }
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

void run_tasks(check::PairModel& pair, const CheckOptions& options, const std::vector<Task>& tasks) {
  ProgressBar bar("checking", !options.device.no_progress, ProgressUnit::kCount);
  engine::Scorer scorer(pair);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    bar.update(i, tasks.size());
    scorer.score(tasks[i].lines, tasks[i].how,
                 [](const engine::ScoredRows&) { CatchInterrupts::check("checking the model"); });
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

int check_model(const CheckOptions& options) {
  if (options.device.prefill_device || options.device.decode_device) {
    throw Error(ErrorCode::kUsage, "a check is of one device", "--prefill-device, --decode-device",
                "name it with --device");
  }
  if (!options.device.device) {
    throw Error(ErrorCode::kUsage, "which device is to be checked?", "backplane check", "name it with --device");
  }
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
  const std::vector<Task> tasks = tasks_of(options, opened, liked.page_size);
  models::LoadOptions load = load_options(options, tasks);
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

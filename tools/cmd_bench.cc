// backplane bench: how fast a model is on a device, beside what the machine could do.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <optional>

#include "core/base/error.h"
#include "plugins/host/host_table.h"
#include "tools/bench_model/bench_report.h"
#include "tools/commands.h"
#include "tools/json_lines.h"
#include "tools/loaded_model.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/signals.h"

namespace backplane::tools {
namespace {

using bench::Case;
using bench::Kind;

constexpr std::uint32_t kMostRepeats = 10000, kMostBatch = 4096, kMostTokens = 1u << 24;
constexpr std::uint64_t kPrompts = 3;  // any seed: of prompts for a model without tokenizer

struct BenchCommand {
  std::string model;
  std::string prefill = "512", depth = "0,1024", batch = "1,8,32";
  std::uint32_t decode = 128, batch_tokens = 64, batch_depth = 0, repeats = 5;
  std::uint32_t step_tokens = engine::EngineOptions{}.token_budget;
  bool no_roofs = false, json = false;
  DeviceOptions device;
};

[[noreturn]] void refuse(std::string_view option, std::string_view value, std::string_view hint) {
  throw Error(ErrorCode::kUsage, "not a number that can be measured", fmt::format("{} {}", option, value), hint);
}

void check_range(std::string_view option, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value < least || value > most) {
    refuse(option, std::to_string(value), fmt::format("give one from {} to {}", least, most));
  }
}

// "1,8,32"; "none" for an empty list. Each value once.
std::vector<std::uint32_t> parse_list(std::string_view option, std::string_view text, std::uint32_t least,
                                      std::uint32_t most) {
  std::vector<std::uint32_t> values;
  if (text == "none") return values;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    std::uint32_t value = 0;
    const auto [after, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || error != std::errc() || after != word.data() + word.size()) {
      refuse(option, text, "give numbers with commas between them, or none");
    }
    check_range(option, value, least, most);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    at = end + 1;
  }
  return values;
}

// In the order in which they are told.
std::vector<Case> cases_of(const BenchCommand& command) {
  check_range("--decode", command.decode, 1, kMostTokens);
  check_range("--batch-tokens", command.batch_tokens, 1, kMostTokens);
  check_range("--batch-depth", command.batch_depth, 0, kMostTokens);
  check_range("--step-tokens", command.step_tokens, 1, kMostTokens);
  check_range("--repeat", command.repeats, 1, kMostRepeats);
  std::vector<Case> cases;
  for (const std::uint32_t tokens : parse_list("--prefill", command.prefill, 1, kMostTokens)) {
    cases.push_back({.kind = Kind::kPrefill, .tokens = tokens, .batch = 1, .depth = 0});
  }
  for (const std::uint32_t depth : parse_list("--depth", command.depth, 0, kMostTokens)) {
    cases.push_back({.kind = Kind::kDecode, .tokens = command.decode, .batch = 1, .depth = depth});
  }
  for (const std::uint32_t batch : parse_list("--batch", command.batch, 1, kMostBatch)) {
    const bool known = std::any_of(cases.begin(), cases.end(), [&](const Case& each) {
      return each.kind == Kind::kDecode && each.batch == batch && each.depth == command.batch_depth;
    });
    if (known) continue;
    cases.push_back(
        {.kind = Kind::kDecode, .tokens = command.batch_tokens, .batch = batch, .depth = command.batch_depth});
  }
  if (cases.empty()) throw Error(ErrorCode::kUsage, "there is nothing to measure", "--prefill, --depth, --batch");
  return cases;
}

// Moves those with longer sequences than the context to `skipped`.
void drop_long(std::vector<Case>& cases, std::vector<bench::Skipped>& skipped, std::uint64_t context) {
  std::erase_if(cases, [&](const Case& each) {
    if (each.length() <= context) return false;
    skipped.push_back(
        {each, fmt::format("a sequence of {} tokens doesn't fit into the context of {}", each.length(), context)});
    return true;
  });
  if (cases.empty()) {
    throw Error(ErrorCode::kCapacity, "nothing can be measured", skipped.front().reason,
                "use smaller numbers for --prefill, --decode, --depth, --batch, --batch-tokens and --batch-depth");
  }
}

models::LoadOptions room_for(const std::vector<Case>& cases, std::uint32_t step_tokens) {
  constexpr std::uint64_t kPage = 256;  // no smaller than a device's pages: the last one of each sequence isn't full
  models::LoadOptions load;
  load.max_step_tokens = step_tokens;
  for (const Case& each : cases) {
    load.context = std::max(load.context, each.length());
    load.max_sequences = std::max(load.max_sequences, each.batch);
    load.max_step_tokens = std::max(load.max_step_tokens, each.batch);  // a token of each in one step
    load.kv_tokens = std::max(load.kv_tokens, each.batch * (each.length() + kPage));
  }
  return load;
}

// The most memory that this process has had resident.
std::uint64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

// Of one prompt and of one reply, the first that are measured.
void measure_ops(const bench::Bench& bench, const std::vector<Case>& cases, bench::Report& report) {
  for (device::Executor* executor : report.model.executors()) {
    if (executor->synchronous()) continue;
    report.no_ops = fmt::format("{} works behind the host's back, in a stream", executor->chosen().name());
    return;
  }
  for (const Kind kind : {Kind::kPrefill, Kind::kDecode}) {
    const auto found = std::find_if(cases.begin(), cases.end(), [&](const Case& each) { return each.kind == kind; });
    if (found != cases.end()) report.ops.push_back(bench::op_table(bench, *found));
  }
}

int run_bench(const BenchCommand& command) {
  if (command.device.shadow || command.device.shadow_rate) {
    throw Error(ErrorCode::kUsage, "a shadow's work would be measured too", "--shadow", "leave it out");
  }
  std::vector<Case> cases = cases_of(command);
  std::vector<bench::Skipped> skipped;
  const CatchInterrupts guard;
  const OpenedModel opened = open_model(command.model, command.device);
  drop_long(cases, skipped, command.device.context.value_or(opened.file.spec().max_context));
  LoadedModel loaded = load_model(opened, command.device, room_for(cases, command.step_tokens));
  device::Device& device = loaded.devices.prefill.first();
  const lab::StepWork work(opened.file, device, loaded.model->kv_type());
  const lab::Prompts prompts(opened.tokenizer_or_null(), opened.file.spec().vocab_size, kPrompts);
  const bench::Bench setup{*loaded.model, prompts, lab::measure_room(*loaded.model)};
  bench::Report report{.file = opened.file,
                       .model = *loaded.model,
                       .device = loaded.device(),
                       .threads = plugins::host_threads(),
                       .load_s = loaded.seconds,
                       .memory = loaded.memory,
                       .peak_bytes = 0,
                       .measured = {},
                       .skipped = std::move(skipped),
                       .ops = {},
                       .no_ops = {},
                       .roofs = std::nullopt,
                       .work = work,
                       .step_tokens = setup.room.step_tokens};
  {
    ProgressBar bar("measuring", !command.device.no_progress, ProgressUnit::kCount);
    report.measured = bench::measure(setup, cases, command.repeats,
                                     [&](std::uint64_t done, std::uint64_t total) { bar.update(done, total); });
    measure_ops(setup, cases, report);
  }
  report.peak_bytes = peak_bytes();
  if (!command.no_roofs) report.roofs = bench::probe_roofs(plugins::host_pool());
  const lab::Json json = bench::report_json(report);
  Output out;
  if (command.json) {
    out << json_text(json) << '\n';
  } else {
    out << bench::report_text(json);
  }
  out.flush();
  if (command.device.verbose) print_ledger(loaded);
  return 0;
}

}  // namespace

void add_bench(CommandLine& line) {
  auto options = std::make_shared<BenchCommand>();
  Command command = line.command("bench", "Measure how fast a model is on a device, beside what the machine could do");
  command.option("model", options->model, "MODEL", "A .gguf file, a Hugging Face folder, or a known name")
      .option("--prefill", options->prefill, "N[,N...]", "Tokens of prompts, or none; default 512")
      .option("--decode", options->decode, "N", "Greedy tokens of a reply; default 128")
      .option("--depth", options->depth, "N[,N...]", "Tokens in the cache before the reply, or none; default 0,1024")
      .option("--batch", options->batch, "N[,N...]", "Replies at once, or none; default 1,8,32")
      .option("--batch-tokens", options->batch_tokens, "N", "Tokens of each reply of a batch; default 64")
      .option("--batch-depth", options->batch_depth, "N", "Tokens in the cache before each of them; default 0")
      .option("--step-tokens", options->step_tokens, "N",
              "Tokens computed in a step at most, or one of each reply of a batch; default 2048")
      .option("--repeat", options->repeats, "N", "Repetitions, of which the median counts; default 5")
      .flag("--no-roofs", options->no_roofs, "Don't probe memory and arithmetic")
      .flag("--json", options->json, "One JSON object instead of the tables")
      .required("model");
  add_options(command, options->device);
  command
      .example(
          "backplane bench smollm2-135m-instruct --threads 2\n"
          "  backplane bench model.gguf --prefill 128,2048 --depth 0,4096 --batch none --json")
      .action([options] { return run_bench(*options); });
}

}  // namespace backplane::tools

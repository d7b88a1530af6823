// backplane batch: a file of requests, answered together, without a server.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "core/engine/service.h"
#include "tools/batch_results.h"
#include "tools/batch_run.h"
#include "tools/commands.h"
#include "tools/json_lines.h"
#include "tools/loaded_model.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/prompt.h"
#include "tools/serving_options.h"
#include "tools/shadow_report.h"
#include "tools/signals.h"

namespace backplane::tools {
namespace {

using Json = nlohmann::ordered_json;

struct BatchCommand {
  std::string model, input, output;
  std::optional<std::string> model_name;
  std::uint64_t seed = 0;
  bool retry_failed = false;
  ServingOptions serving;
  DeviceOptions device;
  bool json = false;
};

// The file of requests, open.
class Input {
 public:
  explicit Input(const std::string& path) : name_(path == "-" ? "standard input" : path) {
    descriptor_ = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) {
      throw Error(ErrorCode::kBadFile, std::string("can't read the requests: ") + std::strerror(errno), path);
    }
    struct stat status {};
    if (::fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode)) {
      throw Error(ErrorCode::kBadFile, "can't read the requests: it is a folder", path);
    }
  }
  ~Input() {
    if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  const std::string& name() const { return name_; }
  int descriptor() const { return descriptor_; }

  bool is_the_file_of(int other) const {
    struct stat a {
    }, b{};
    return ::fstat(descriptor_, &a) == 0 && ::fstat(other, &b) == 0 && S_ISREG(a.st_mode) && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
  }

  // For the progress bar; 0 where it can't be known before reading.
  std::uint64_t count_lines() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
    std::uint64_t lines = 0;
    char last = '\n';
    std::vector<char> buffer(std::size_t{1} << 20);
    off_t at = ::lseek(descriptor_, 0, SEEK_CUR);
    for (ssize_t got = 0; (got = ::pread(descriptor_, buffer.data(), buffer.size(), at)) > 0; at += got) {
      lines += static_cast<std::uint64_t>(std::count(buffer.data(), buffer.data() + got, '\n'));
      last = buffer[static_cast<std::size_t>(got) - 1];
    }
    return lines + (last != '\n' ? 1 : 0);
  }

 private:
  std::string name_;
  int descriptor_;
};

// What is printed at the end.
struct Summary {
  BatchCounts counts;
  std::uint64_t kept = 0;
  engine::ServiceStats stats;
  double seconds = 0;
};

double per_second(std::uint64_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; }

Json summary_json(const Summary& done, const LoadedModel& loaded) {
  Json out = {
      {"completed", done.counts.completed},
      {"failed", done.counts.failed},
      {"skipped", done.counts.skipped},
      {"kept", done.kept},
      {"usage",
       {{"prompt_tokens", done.counts.prompt_tokens},
        {"completion_tokens", done.counts.completion_tokens},
        {"total_tokens", done.counts.prompt_tokens + done.counts.completion_tokens}}},
      {"device", loaded.device()},
      {"device_at_end", loaded.device_now()},
      {"context", loaded.context},
      {"kv_tokens", loaded.kv_tokens},
      {"steps", done.stats.steps},
      {"preempted", done.stats.engine.preempted},
      {"prefix_cache", {{"queried", done.stats.engine.prefix.queried}, {"found", done.stats.engine.prefix.found}}},
      {"timings", {{"load_s", loaded.seconds}, {"run_s", done.seconds}, {"step_s", done.stats.step_seconds}}}};
  if (loaded.shadow) out["shadow"] = shadow_json(*loaded.shadow);
  return out;
}

void print_summary(const Summary& done) {
  const BatchCounts& counts = done.counts;
  std::string line = fmt::format("backplane: {} done, {} failed", counts.completed, counts.failed);
  if (counts.skipped > 0) line += fmt::format(", {} had their result before", counts.skipped);
  line += fmt::format("; {} tokens in, {} out in {:.1f} s, {:.1f} tokens/s", counts.prompt_tokens,
                      counts.completion_tokens, done.seconds, per_second(counts.completion_tokens, done.seconds));
  std::fprintf(stderr, "%s\n", line.c_str());
}

Summary run_batch(const BatchCommand& command, const OpenedModel& opened, const Input& input, ResultsFile& results,
                  LoadedModel& loaded) {
  std::optional<ChatPrompt> chat;
  if (opened.tokenizer && opened.tokenizer->chat_template) chat.emplace(*opened.tokenizer);
  const openai::ServedModel served{opened.tokenizer_or_null(), chat ? &*chat : nullptr, opened.end_ids()};
  // As many wait in the engine as run, so that it never lacks any.
  const std::size_t max_open = 2 * std::size_t{command.serving.max_running};
  // The service counts a request as ended a moment after it has told so.
  engine::Service service(*loaded.model, command.serving.service(opened, max_open + 1));

  ProgressBar bar("batch", !command.device.no_progress, ProgressUnit::kCount);
  const std::uint64_t total = bar.enabled() ? input.count_lines() : 0;
  BatchOptions options{.model_name = command.model_name.value_or(command.model),
                       .only_model_name = command.model_name.has_value(),
                       .seed = command.seed,
                       .max_open = max_open,
                       .lost = [&loaded] { return loaded.lost(); },
                       .progress = [&](std::uint64_t results_so_far) { bar.update(results_so_far, total); }};
  LineReader lines(input.descriptor(), kLongestLine, input.name());
  Summary done;
  done.kept = results.kept();
  const auto start = std::chrono::steady_clock::now();
  BatchRun run(service, served, results, std::move(options));
  done.counts = run.run(lines);
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  done.stats = service.stats();
  return done;
}

int batch(const BatchCommand& command) {
  if (command.json && command.output == "-") {
    throw Error(ErrorCode::kUsage, "the summary and the results would both be on standard output", "--json",
                "name a file with -o");
  }
  const models::LoadOptions load = command.serving.load();
  const CatchInterrupts guard;
  const Input input(command.input);
  ResultsFile results(command.output, command.retry_failed);
  if (input.is_the_file_of(results.descriptor())) {
    throw Error(ErrorCode::kUsage, "requests and results are the same file", command.output, "name another one");
  }
  const OpenedModel opened = open_model(command.model, command.device);
  LoadedModel loaded = load_model(opened, command.device, load, KvSize::kWhatFits);
  const Summary done = run_batch(command, opened, input, results, loaded);
  if (command.json) {
    Output out;
    out << json_text(summary_json(done, loaded)) << '\n';
    out.flush();
  } else if (stderr_is_terminal() || command.device.verbose || done.counts.failed > 0) {
    print_summary(done);
  }
  if (command.device.verbose) print_ledger(loaded);
  return 0;
}

}  // namespace

void add_batch(CommandLine& line) {
  auto options = std::make_shared<BatchCommand>();
  Command command =
      line.command("batch", "Answer a file of requests together (OpenAI's batch format), without a server");
  command.option("model", options->model, "MODEL", "A .gguf file, a Hugging Face folder, or a known name")
      .option("-i,--input", options->input, "FILE",
              "Requests, one a line: {\"custom_id\", \"method\": \"POST\", \"url\", \"body\"}, of /v1/chat/completions "
              "and /v1/completions; - is standard input")
      .option("-o,--output", options->output, "FILE",
              "Results, one a line, in the order in which they are done; - is standard output. Results that are there "
              "stay, and their requests are skipped: after an interruption, run the same command again")
      .required("model")
      .required("--input")
      .required("--output");
  add_options(command, options->serving);
  command
      .option("--seed", options->seed, "SEED",
              "For requests that have none: each gets one made of this and its custom_id; default 0")
      .option("--model-name", options->model_name, "NAME",
              "Refuse requests whose body names another model (default: any name is taken)")
      .flag("--retry-failed", options->retry_failed, "Do requests again whose results in FILE are failures");
  add_options(command, options->device);
  command.flag("--json", options->json, "A summary as one JSON object on standard output")
      .example(
          "echo '{\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": "
          "{\"messages\": "
          "[{\"role\": \"user\", \"content\": \"Hello\"}], \"max_tokens\": 32}}' > requests.jsonl\n"
          "  backplane batch smollm2-135m-instruct -i requests.jsonl -o results.jsonl")
      .action([options] { return batch(*options); });
}

}  // namespace backplane::tools

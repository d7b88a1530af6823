// backplane score: logits of given tokens, and the perplexity of a text.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/engine/scorer.h"
#include "tools/commands.h"
#include "tools/json_lines.h"
#include "tools/loaded_model.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/score_output.h"
#include "tools/signals.h"

namespace backplane::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kWindow = 512;          // of --text, when the user doesn't say
constexpr std::uint32_t kStepTokens = 2048;     // of a step, at most, when all lines aren't to be in one
constexpr std::uint32_t kMostTogether = 65536;  // tokens of one ragged step

struct ScoreCommand {
  std::string model;
  std::optional<std::string> text;
  std::optional<std::uint32_t> window, chunk;
  bool together = false;
  DeviceOptions device;
  bool json = false;
};

engine::Positions parse_positions(const Json& row) {
  engine::Positions positions;
  const auto found = row.find("positions");
  if (found == row.end() || *found == "last") return positions;
  if (*found == "all") {
    positions.which = engine::Positions::kAll;
    return positions;
  }
  const auto wrong = [] { throw Error(ErrorCode::kUsage, "\"positions\" must be \"last\", \"all\" or a list"); };
  if (!found->is_array()) wrong();
  positions.which = engine::Positions::kList;
  for (const Json& each : *found) {
    if (!each.is_number_integer() || each < 0 || each > UINT32_MAX) wrong();
    positions.list.push_back(each.get<std::uint32_t>());
  }
  return positions;
}

std::optional<std::uint32_t> parse_top(const Json& row) {
  const auto found = row.find("top");
  if (found == row.end() || found->is_null()) return std::nullopt;
  if (!found->is_number_integer() || *found < 1 || *found > INT32_MAX) {
    throw Error(ErrorCode::kUsage, "\"top\" must be a number of tokens");
  }
  return found->get<std::uint32_t>();
}

// All lines at once: the model is loaded with as much context as they need.
std::vector<ScoreRow> read_rows() {
  LineReader lines(STDIN_FILENO);
  std::vector<ScoreRow> rows;
  std::string line;
  while (lines.next(line) == LineReader::Got::kLine) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    ScoreRow& row = rows.emplace_back();
    try {
      const Json object = parse_object(line);
      row.line.ids = json_ids(object);
      row.line.positions = parse_positions(object);
      row.top = parse_top(object);
    } catch (const Error& error) {
      row.error = error;
    }
  }
  CatchInterrupts::check("reading standard input");
  return rows;
}

std::uint32_t longest_line(const std::vector<ScoreRow>& rows) {
  std::size_t longest = 1;
  for (const ScoreRow& row : rows) longest = std::max(longest, row.line.ids.size());
  return static_cast<std::uint32_t>(std::min<std::size_t>(longest, UINT32_MAX));
}

models::LoadOptions load_options(const ScoreCommand& command, const OpenedModel& opened,
                                 const std::vector<ScoreRow>& rows) {
  const std::uint32_t longest = longest_line(rows);
  std::uint64_t total = 0;
  for (const ScoreRow& row : rows) total += row.line.ids.size();
  models::LoadOptions load;
  if (!command.device.context) load.context = opened.context_for(longest, true);
  load.max_step_tokens = std::min(longest, command.chunk.value_or(kStepTokens));
  if (command.together) {
    if (total > kMostTogether) {
      throw Error(ErrorCode::kCapacity, fmt::format("{} tokens are too many for one step", total), "--together",
                  fmt::format("give at most {}", kMostTogether));
    }
    load.max_step_tokens = static_cast<std::uint32_t>(std::max<std::uint64_t>(total, 1));
    load.max_sequences = static_cast<std::uint32_t>(std::max<std::size_t>(rows.size(), 1));
  }
  return load;
}

int score_lines(const ScoreCommand& command, const OpenedModel& opened) {
  const std::vector<ScoreRow> rows = read_rows();
  if (rows.empty()) return 0;
  LoadedModel loaded = load_model(opened, command.device, load_options(command, opened, rows));
  engine::Scorer scorer(*loaded.model);
  Output out;
  std::optional<std::uint32_t> chunk;
  if (command.chunk) chunk = std::min(*command.chunk, longest_line(rows));
  const int status = command.together ? score_together(scorer, rows, out) : score_one_by_one(scorer, rows, chunk, out);
  out.flush();
  if (command.device.verbose) print_ledger(loaded);
  return status;
}

int score_text(const ScoreCommand& command, const OpenedModel& opened) {
  const MappedFile file(*command.text);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const text::Tokenizer& tokenizer = *opened.need_tokenizer().tokenizer;
  const std::vector<TokenId> ids = tokenizer.encode(text);
  const std::optional<TokenId> bos =
      tokenizer.add_bos() && tokenizer.bos() != text::kNoToken ? std::optional(tokenizer.bos()) : std::nullopt;
  const std::uint32_t window = command.window.value_or(std::min(kWindow, opened.file.spec().max_context));
  models::LoadOptions load;
  if (!command.device.context) load.context = opened.context_for(window, true);
  LoadedModel loaded = load_model(opened, command.device, load);
  engine::Scorer scorer(*loaded.model);
  engine::Perplexity result;
  {
    ProgressBar bar("scoring", !command.device.no_progress, ProgressUnit::kCount);
    result = scorer.perplexity(ids, window, bos, [&](std::uint64_t done, std::uint64_t total) {
      CatchInterrupts::check("scoring the text");
      bar.update(done, total);
    });
  }
  Output out;
  if (command.json) {
    out << json_text(Json{{"tokens", result.tokens},
                          {"nll", result.nll},
                          {"mean_nll", result.mean_nll()},
                          {"perplexity", result.value()},
                          {"context", window},
                          {"device", loaded.device()},
                          {"device_at_end", loaded.device_now()}})
        << '\n';
  } else {
    out << fmt::format("perplexity {:.6g} over {} tokens (windows of {}; mean -ln p {:.6g})\n", result.value(),
                       result.tokens, window, result.mean_nll());
  }
  out.flush();
  if (command.device.verbose) print_ledger(loaded);
  return 0;
}

int score(const ScoreCommand& command) {
  const auto refuse = [](std::string_view what, std::string_view where, std::string_view todo) {
    throw Error(ErrorCode::kUsage, what, where, todo);
  };
  if (!command.text && !command.json) {
    refuse("logits are for scripts", "backplane score", "add --json, or give a text with --text");
  }
  if (command.text && (command.chunk || command.together)) {
    refuse("a text is cut by its own rule", "--text", "leave out --chunk and --together");
  }
  if (!command.text && command.window) refuse("windows are for a text", "--context", "add --text FILE");
  if (command.chunk == 0u) refuse("a step needs at least one token", "--chunk 0", "give a larger number");
  const CatchInterrupts guard;
  const OpenedModel opened = open_model(command.model, command.device);
  return command.text ? score_text(command, opened) : score_lines(command, opened);
}

}  // namespace

void add_score(CommandLine& line) {
  auto options = std::make_shared<ScoreCommand>();
  Command command = line.command("score", "Logits of given tokens as JSON lines, or the perplexity of a text");
  command.option("model", options->model, "MODEL", "A .gguf file, a Hugging Face folder, or a known name")
      .flag("--json", options->json,
            "JSON lines: {ids, positions: \"last\", \"all\" or a list, top} in, {positions, logits or top, steps} out")
      .option("--chunk", options->chunk, "N", "Prefill in steps of N tokens")
      .flag("--together", options->together, "Run all lines as one ragged step")
      .option("--text", options->text, "FILE", "Compute the perplexity of this text instead")
      .option("--context", options->window, "N", "With --text: tokens of a window (default 512, or the model's own)")
      .only_one_of({"--chunk", "--together"})
      .required("model");
  add_options(command, options->device);
  command
      .example(
          "echo '{\"ids\": [1, 2, 3], \"positions\": \"last\", \"top\": 5}' | backplane score model.gguf --json\n"
          "  backplane score model.gguf --text book.txt")
      .action([options] { return score(*options); });
}

}  // namespace backplane::tools

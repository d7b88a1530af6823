// backplane run: complete a prompt, answer it, or chat.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/engine/engine.h"
#include "core/engine/generation.h"
#include "plugins/host/host_table.h"
#include "tools/chat.h"
#include "tools/commands.h"
#include "tools/json_lines.h"
#include "tools/loaded_model.h"
#include "tools/options.h"
#include "tools/prompt.h"
#include "tools/run_options.h"
#include "tools/run_report.h"
#include "tools/signals.h"

namespace backplane::tools {
namespace {

void check(const RunOptions& options) {
  const auto refuse = [](std::string_view what, std::string_view where, std::string_view todo) {
    throw Error(ErrorCode::kUsage, what, where, todo);
  };
  if (options.prompt_ids && (options.chat || options.system)) {
    refuse("ids are given to the model as they are, without a chat", "--prompt-ids", "leave out --chat and --system");
  }
  if (options.raw && options.system) refuse("a raw completion has no system message", "--system", "leave out --raw");
  for (const auto& [name, count] :
       {std::pair("--top-logprobs", options.top_logprobs), std::pair("--prompt-logprobs", options.prompt_logprobs)}) {
    if (count && !options.json) refuse("log-probabilities are for scripts", name, "add --json");
    if (count.value_or(0) > kMostTopLogprobs) refuse(fmt::format("at most {} are given", kMostTopLogprobs), name, "");
  }
}

bool chats(const RunOptions& options, const OpenedModel& opened) {
  if (options.chat) return true;
  return !options.raw && !options.prompt_ids && opened.tokenizer && opened.tokenizer->chat_template;
}

// What the user says: -p, or standard input without its last line end.
std::string prompt_text(const RunOptions& options) {
  if (options.prompt) return *options.prompt;
  if (stdin_is_terminal()) {
    throw Error(ErrorCode::kUsage, "there is no prompt", "backplane run",
                "give one with -p or --prompt-ids, or on standard input");
  }
  std::string text = read_all(STDIN_FILENO);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::vector<TokenId> prompt_ids(const RunOptions& options, const OpenedModel& opened, bool chat) {
  if (options.prompt_ids) return parse_ids(*options.prompt_ids);
  const formats::TokenizerBundle& bundle = opened.need_tokenizer();
  const std::string text = prompt_text(options);
  if (!chat) return completion_prompt(*bundle.tokenizer, text);
  std::vector<ChatMessage> messages;
  if (options.system) messages.push_back({"system", *options.system});
  messages.push_back({"user", text});
  return ChatPrompt(bundle).ids(messages);
}

// Writes each piece of text as soon as it is certain; ids where there is no tokenizer.
engine::TokenCallback printer(Output& out, bool has_text) {
  return [&out, has_text](const engine::Event& event) {
    if (has_text) {
      out << event.text;
    } else if (event.token >= 0) {
      out << fmt::format("{} ", event.token);
    }
    out.flush();
  };
}

// Several answers one below the other, since all are written at once.
void print_answers(Output& out, const std::vector<engine::Generation>& answers, bool has_text) {
  for (std::size_t i = 0; i < answers.size(); ++i) {
    out << fmt::format("[{}]\n", i + 1);
    if (has_text) {
      out << answers[i].text << '\n';
    } else {
      out << fmt::format("{}\n", fmt::join(answers[i].ids, " "));
    }
  }
}

models::LoadOptions load_options(const RunOptions& options, const OpenedModel& opened, const engine::Request& request) {
  models::LoadOptions load;
  if (!options.device.context) load.context = opened.context_for(request.prompt.size() + *request.max_tokens, false);
  load.max_sequences = request.n;
  return load;
}

int run_once(const RunOptions& options, const OpenedModel& opened, bool chat) {
  engine::Request request = make_request(options, opened, chat);
  request.prompt = prompt_ids(options, opened, chat);
  const std::vector<TokenId> prompt = request.prompt;
  LoadedModel loaded = load_model(opened, options.device, load_options(options, opened, request));

  engine::EngineOptions engine_options;
  engine_options.tokenizer = opened.tokenizer_or_null();
  engine_options.pool = &plugins::host_pool();
  engine::Engine engine(*loaded.model, engine_options);
  Output out;
  const bool has_text = engine_options.tokenizer != nullptr, streams = !options.json && request.n == 1;
  const std::uint64_t seed = request.sampling.seed;
  const std::vector<engine::Generation> answers = engine::generate_all(
      engine, std::move(request), streams ? printer(out, has_text) : engine::TokenCallback(), &CatchInterrupts::flag());
  const RunReport report{.answers = answers,
                         .loaded = loaded,
                         .tokenizer = engine_options.tokenizer,
                         .prompt_ids = prompt,
                         .seed = seed,
                         .steps = options.top_logprobs.has_value(),
                         .prompt_steps = options.prompt_logprobs.has_value()};
  if (options.json) {
    out << json_text(report_json(report)) << '\n';
  } else if (streams) {
    out << '\n';
  } else {
    print_answers(out, answers, has_text);
  }
  out.flush();
  if (options.device.verbose) print_summary(report);
  const std::optional<Error> error = error_of(answers);
  if (!error) return 0;
  if (!options.json) throw *error;
  std::fprintf(stderr, "backplane: error: %s\n", error->what());  // the object on stdout has it already
  return error->exit_status();
}

int run(const RunOptions& options) {
  check(options);
  const CatchInterrupts guard;
  const OpenedModel opened = open_model(options.model, options.device);
  const bool chat = chats(options, opened);
  if (options.prompt || options.prompt_ids || options.json || !stdin_is_terminal()) {
    return run_once(options, opened, chat);
  }
  if (!chat) {
    throw Error(ErrorCode::kUsage, "there is no prompt", "backplane run",
                "give a text to complete with -p or on standard input");
  }
  if (options.answers != 1) {
    throw Error(ErrorCode::kUsage, "a conversation goes on from one answer", "--n", "give a prompt with -p");
  }
  return chat_on_terminal(options, opened);
}

}  // namespace

void add_run(CommandLine& line) {
  auto options = std::make_shared<RunOptions>();
  Command command = line.command("run", "Answer a prompt, complete a text, or chat on the terminal");
  command
      .option("model", options->model, "MODEL",
              "A .gguf file, a Hugging Face folder, or a name that `backplane pull` lists (it is fetched first)")
      .option("-p,--prompt", options->prompt, "TEXT",
              "The prompt; by default standard input, or, when that is a terminal, a conversation")
      .option("--prompt-ids", options->prompt_ids, "IDS", "The prompt as token ids: 1,2,3; nothing is added to them")
      .flag("--chat", options->chat, "Answer, through the model's chat template (default where it has one)")
      .flag("--raw", options->raw, "Complete the text as it is")
      .option("--system", options->system, "TEXT", "The system message of a chat")
      .only_one_of({"--prompt", "--prompt-ids"})
      .only_one_of({"--chat", "--raw"})
      .required("model");
  add_sampling(command, *options);
  add_options(command, options->device);
  command.flag("--json", options->json, "One JSON object instead of text")
      .example(
          "backplane run smollm2-135m-instruct -p 'What is gravity?'\n"
          "  backplane run smollm2-135m-instruct                  (chat)\n"
          "  backplane run model.gguf --raw -p 'Once upon a time' --temperature 0 -n 64")
      .action([options] { return run(*options); });
}

}  // namespace backplane::tools

#include "tools/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/engine/engine.h"
#include "core/engine/session.h"
#include "plugins/host/host_table.h"
#include "tools/json_lines.h"
#include "tools/prompt.h"
#include "tools/run_report.h"
#include "tools/signals.h"

namespace backplane::tools {
namespace {

constexpr std::uint32_t kChatContext = 8192;  // when the user doesn't say, and the model has that much

constexpr std::string_view kHelp =
    "  /reset  forget the conversation\n"
    "  /exit   leave (Ctrl-D, or Ctrl-C twice, do too)\n"
    "  /help   this\n"
    "Ctrl-C stops a reply.\n";

class Chat {
 public:
  Chat(const RunOptions& options, const OpenedModel& opened, LoadedModel& loaded)
      : options_(options),
        opened_(opened),
        loaded_(loaded),
        prompt_(opened.need_tokenizer()),
        engine_(*loaded.model, engine_options(opened)) {
    reset();
  }

  // One line of the user's. False: the chat is over.
  bool take(const std::string& line) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) return true;
    if (line == "/exit" || line == "/quit") return false;
    if (line == "/help") {
      out_ << kHelp;
    } else if (line == "/reset") {
      reset();
      out_ << "The conversation starts anew.\n";
    } else if (line.front() == '/' && line.find(' ') == std::string::npos) {
      out_ << "There is no such command; /help lists them.\n";
    } else {
      answer(line);
    }
    out_.flush();
    return true;
  }

 private:
  static engine::EngineOptions engine_options(const OpenedModel& opened) {
    engine::EngineOptions options;
    options.tokenizer = opened.tokenizer_or_null();
    options.pool = &plugins::host_pool();
    return options;
  }

  void reset() {
    messages_.clear();
    if (options_.system) messages_.push_back({"system", *options_.system});
    session_.emplace(engine_);
  }

  // A turn that can't be had leaves the conversation as it was.
  void answer(const std::string& line) {
    messages_.push_back({"user", line});
    try {
      messages_.push_back({"assistant", reply()});
    } catch (const Error& error) {
      messages_.pop_back();
      const char* advice = error.code() == ErrorCode::kCapacity ? " (/reset starts anew)" : "";
      std::fprintf(stderr, "backplane: error: %s%s\n", error.what(), advice);
    }
  }

  std::string reply() {
    engine::Request request = make_request(options_, opened_, true);
    const std::vector<TokenId> ids = request.prompt = prompt_.ids(messages_);
    const std::uint64_t seed = request.sampling.seed;
    const engine::Generation done = session_->generate(
        std::move(request),
        [this](const engine::Event& event) {
          out_ << event.text;
          out_.flush();
        },
        &CatchInterrupts::flag());
    const bool stopped = CatchInterrupts::pending();
    CatchInterrupts::clear();
    out_ << (stopped ? " [stopped]\n" : "\n");
    if (done.finish == engine::FinishReason::kLength) out_ << "[cut: -n or the context is used up]\n";
    out_.flush();
    if (options_.device.verbose) {
      print_summary({.answers = {&done, 1},
                     .loaded = loaded_,
                     .tokenizer = opened_.tokenizer_or_null(),
                     .prompt_ids = ids,
                     .seed = seed,
                     .steps = false});
    }
    if (done.finish == engine::FinishReason::kError) throw *error_of(done);
    return done.text;
  }

  const RunOptions& options_;
  const OpenedModel& opened_;
  LoadedModel& loaded_;
  ChatPrompt prompt_;
  engine::Engine engine_;
  std::optional<engine::Session> session_;
  std::vector<ChatMessage> messages_;
  Output out_;
};

}  // namespace

int chat_on_terminal(const RunOptions& options, const OpenedModel& opened) {
  models::LoadOptions load;
  if (!options.device.context) load.context = opened.context_for(kChatContext, false);
  LoadedModel loaded = load_model(opened, options.device, load);
  Chat chat(options, opened, loaded);
  std::fputs("Type a message; /help lists the commands.\n", stderr);
  LineReader lines(STDIN_FILENO);
  std::string line;
  bool warned = false;  // a Ctrl-C at the prompt has been seen, and nothing since
  while (true) {
    std::fputs("> ", stderr);
    std::fflush(stderr);
    switch (lines.next(line)) {
      case LineReader::Got::kLine:
        warned = false;
        if (!chat.take(line)) return 0;
        break;
      case LineReader::Got::kEnd:
        std::fputs("\n", stderr);
        return 0;
      case LineReader::Got::kInterrupted:
        CatchInterrupts::clear();
        std::fputs(warned ? "\n" : "\n(Ctrl-C again, or Ctrl-D, leaves)\n", stderr);
        if (warned) return 0;
        warned = true;
        break;
    }
  }
}

}  // namespace backplane::tools

// The `backplane` program.
#include <string_view>

#include "core/base/error.h"
#include "tools/commands.h"
#include "tools/report.h"
#include "tools/signals.h"

namespace {

int run(int argc, const char* const* argv) {
  namespace tools = backplane::tools;
  tools::CommandLine line("Backplane runs language models on devices that plugins supply.", BACKPLANE_VERSION);
  for (const auto add :
       {tools::add_run, tools::add_batch, tools::add_devices, tools::add_inspect, tools::add_tokenize, tools::add_score,
        tools::add_template, tools::add_pull, tools::add_conform, tools::add_check, tools::add_bench, tools::add_lab}) {
    add(line);
  }
  return line.run(argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  backplane::tools::handle_interrupts();
  bool json = false;  // wrong arguments have to be reported in JSON too
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    json = json || argument == "--json" || argument.starts_with("--json=");
  }
  return backplane::tools::report_errors([&] { return run(argc, argv); }, json);
}

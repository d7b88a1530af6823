// The subcommands, one file each: cmd_NAME.cc.
#pragma once

#include "tools/command_line.h"

namespace backplane::tools {

void add_batch(CommandLine& line);
void add_bench(CommandLine& line);
void add_check(CommandLine& line);
void add_conform(CommandLine& line);
void add_devices(CommandLine& line);
void add_inspect(CommandLine& line);
void add_lab(CommandLine& line);
void add_pull(CommandLine& line);
void add_run(CommandLine& line);
void add_score(CommandLine& line);
void add_template(CommandLine& line);
void add_tokenize(CommandLine& line);

}  // namespace backplane::tools

#include "tools/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <optional>
#include <sstream>

#include "core/base/error.h"

namespace backplane::tools {

struct CommandLine::Impl {
  CLI::App app;
  std::map<const CLI::App*, std::function<int()>> actions;
};

struct Command::Impl {
  CLI::App* app;
  std::map<const CLI::App*, std::function<int()>>* actions;
};

namespace {

template <class T>
struct Bare {
  using type = T;
};
template <class T>
struct Bare<std::optional<T>> {
  using type = T;
};

constexpr std::size_t kWidth = 100;  // of the help, in columns
constexpr std::size_t kIndent = 28;  // where descriptions begin

// Breaks at spaces; lines after the first start `indent` columns in.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string out;
  std::size_t column = indent;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool first = column == indent;
    if (!first && column + 1 + word.size() > kWidth) {
      out.append("\n").append(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

std::string entry(std::string head, const std::string& description) {
  head.insert(0, "  ");
  if (head.size() + 2 > kIndent) {
    head.append("\n").append(kIndent, ' ');
  } else {
    head.append(kIndent - head.size(), ' ');
  }
  return head + wrapped(description, kIndent) + "\n";
}

// Options as "-n,--max-tokens N", descriptions in a column, everything wrapped.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::string head = positional ? option->get_name(true) : option->get_name(false, true);
    if (positional) head = option->get_type_name();
    if (!positional && !option->get_type_name().empty()) head += " " + option->get_type_name();
    return entry(head, option->get_description());
  }
  std::string make_usage(const CLI::App* app, std::string) const override {
    if (app->get_parent() == nullptr) return "Usage: backplane COMMAND [OPTIONS]\n";
    std::string line = "Usage: backplane " + app->get_name() + " [OPTIONS]";
    for (const CLI::Option* option : app->get_options([](const CLI::Option* each) { return each->get_positional(); })) {
      const std::string name = option->get_type_name();
      line += option->get_required() ? " " + name : " [" + name + "]";
    }
    return line + "\n";
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), 0) + "\n\n";
  }
  std::string make_subcommand(const CLI::App* app) const override {
    return entry(app->get_name(), app->get_description());
  }
  std::string make_footer(const CLI::App* app) const override {
    return app->get_footer().empty() ? "" : app->get_footer() + "\n";
  }
};

// The library's message as one of ours: no capital, no full stop.
[[noreturn]] void refuse(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* chosen = app.get_subcommands().empty() ? nullptr : app.get_subcommands().front();
  const std::string where = chosen ? "backplane " + chosen->get_name() : "";
  std::string what = error.what();
  while (!what.empty() && (what.back() == '.' || what.back() == '\n')) what.pop_back();
  if (what.size() > 1 && std::islower(static_cast<unsigned char>(what[1]))) {
    what[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(what[0])));
  }
  throw Error(ErrorCode::kUsage, what.empty() ? "wrong arguments" : what, where,
              "see `" + (chosen ? where : std::string("backplane")) + " --help`");
}

}  // namespace

Command::Command(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Command::Command(Command&&) noexcept = default;
Command::~Command() = default;

Command& Command::flag(const std::string& names, bool& value, const std::string& help) {
  impl_->app->add_flag(names, value, help);
  return *this;
}

template <class T>
Command& Command::option(const std::string& names, T& value, const std::string& shown, const std::string& help) {
  using Value = typename Bare<T>::type;
  impl_->app
      ->add_option_function<Value>(
          names, [&value](const Value& given) { value = given; }, help)
      ->type_name(shown);
  return *this;
}

template Command& Command::option(const std::string&, std::string&, const std::string&, const std::string&);
template Command& Command::option(const std::string&, std::uint32_t&, const std::string&, const std::string&);
template Command& Command::option(const std::string&, std::uint64_t&, const std::string&, const std::string&);
template Command& Command::option(const std::string&, double&, const std::string&, const std::string&);
template Command& Command::option(const std::string&, std::int64_t&, const std::string&, const std::string&);
template Command& Command::option(const std::string&, std::optional<std::string>&, const std::string&,
                                  const std::string&);
template Command& Command::option(const std::string&, std::optional<double>&, const std::string&, const std::string&);
template Command& Command::option(const std::string&, std::optional<std::uint32_t>&, const std::string&,
                                  const std::string&);
template Command& Command::option(const std::string&, std::optional<std::uint64_t>&, const std::string&,
                                  const std::string&);

Command& Command::list(const std::string& names, std::vector<std::string>& values, const std::string& shown,
                       const std::string& help) {
  // Without extra arguments, "[a,b]" is one value and not a list, and a positional argument may follow.
  impl_->app->add_option(names, values, help)->type_name(shown)->allow_extra_args(false);
  return *this;
}

Command& Command::choice(const std::string& names, std::string& value, const std::vector<std::string>& allowed,
                         const std::string& help) {
  std::string shown;
  for (const std::string& each : allowed) shown += (shown.empty() ? "" : "|") + each;
  impl_->app
      ->add_option_function<std::string>(
          names, [&value](const std::string& given) { value = given; }, help)
      ->check(CLI::IsMember(allowed).description(""))
      ->type_name(shown);
  return *this;
}

Command& Command::required(const std::string& name) {
  impl_->app->get_option(name)->required();
  return *this;
}

Command& Command::only_one_of(const std::vector<std::string>& names) {
  for (const std::string& one : names) {
    for (const std::string& other : names) {
      if (one < other) impl_->app->get_option(one)->excludes(impl_->app->get_option(other));
    }
  }
  return *this;
}

Command& Command::example(const std::string& text) {
  impl_->app->footer("Example:\n  " + text);
  return *this;
}

void Command::action(std::function<int()> work) { (*impl_->actions)[impl_->app] = std::move(work); }

CommandLine::CommandLine(const std::string& description, const std::string& version) : impl_(new Impl) {
  impl_->app.description(description);
  impl_->app.name("backplane");
  impl_->app.set_version_flag("--version", version);
  impl_->app.require_subcommand(1);
  impl_->app.formatter(std::make_shared<HelpFormatter>());
}

CommandLine::~CommandLine() = default;

Command CommandLine::command(const std::string& name, const std::string& description) {
  CLI::App* app = impl_->app.add_subcommand(name, description);
  auto impl = std::make_unique<Command::Impl>();
  impl->app = app;
  impl->actions = &impl_->actions;
  return Command(std::move(impl));
}

int CommandLine::run(int argc, const char* const* argv) {
  const bool known = std::any_of(impl_->actions.begin(), impl_->actions.end(),
                                 [&](const auto& each) { return argc > 1 && each.first->get_name() == argv[1]; });
  if (argc > 1 && argv[1][0] != '-' && !known) {  // the library would only say that a subcommand is missing
    throw Error(ErrorCode::kUsage, "there is no such command", std::string(argv[1]).substr(0, 100),
                "see `backplane --help`");
  }
  try {
    impl_->app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = impl_->app.get_subcommands();
    std::fputs((chosen.empty() ? impl_->app.help() : chosen.front()->help()).c_str(), stdout);
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::puts(version.what());
    return 0;
  } catch (const CLI::ParseError& error) {
    refuse(impl_->app, error);
  }
  return impl_->actions.at(impl_->app.get_subcommands().front())();
}

}  // namespace backplane::tools

// backplane template: render a chat template.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/formats/tokenizer_bundle.h"
#include "core/text/jinja/chat_template.h"
#include "core/text/utf8.h"
#include "tools/commands.h"
#include "tools/json_lines.h"
#include "tools/model_source.h"

namespace backplane::tools {
namespace {

using Json = nlohmann::ordered_json;
using text::jinja::ChatTemplate;

constexpr std::size_t kLargestTemplate = std::size_t{16} << 20;

struct TemplateOptions {
  std::string source;
  bool json = false;
};

struct Source {
  ChatTemplate chat_template;
  std::optional<std::string> bos_token, eos_token;  // of a model
};

bool is_model(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return true;
  const MappedFile file(path);
  return file.bytes().size() >= 4 && std::memcmp(file.bytes().data(), "GGUF", 4) == 0;
}

Source open_source(const std::string& name) {
  const std::filesystem::path path = resolve_model(name, true);
  if (is_model(path)) {
    formats::TokenizerBundle bundle = formats::load_tokenizer(path);
    if (!bundle.chat_template) {
      throw Error(ErrorCode::kBadFile, "the model has no chat template", path.string(), "give a Jinja file");
    }
    return {ChatTemplate(*bundle.chat_template, path.string()), bundle.bos_token, bundle.eos_token};
  }
  const MappedFile file(path);
  if (file.bytes().size() > kLargestTemplate) {
    throw Error(ErrorCode::kBadFile, "too large for a template", path.string(), "give a Jinja file or a model");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (text.find('\0') != text.npos) {
    throw Error(ErrorCode::kBadFile, "not a text file", path.string(), "give a Jinja file or a model");
  }
  return {ChatTemplate(text::to_valid_utf8(text), path.string()), {}, {}};
}

// SOURCE_DATE_EPOCH, as reproducible builds use it, stands still for the clock that templates may ask.
text::jinja::RenderOptions render_options() {
  text::jinja::RenderOptions options;
  const char* epoch = std::getenv("SOURCE_DATE_EPOCH");
  if (!epoch) return options;
  const std::string_view text = epoch;
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  std::tm parts{};
  const std::time_t time = seconds;
  if (error != std::errc() || end != text.data() + text.size() || !::gmtime_r(&time, &parts)) {
    throw Error(ErrorCode::kUsage, "not a number of seconds", "SOURCE_DATE_EPOCH",
                "unset it, or give seconds since 1970");
  }
  options.clock = [parts] { return parts; };
  return options;
}

Json render(const Source& source, const text::jinja::RenderOptions& options, std::string_view line) {
  Json variables = parse_object(line);
  if (source.bos_token && !variables.contains("bos_token")) variables["bos_token"] = *source.bos_token;
  if (source.eos_token && !variables.contains("eos_token")) variables["eos_token"] = *source.eos_token;
  return {{"text", source.chat_template.render(variables, options)}};
}

int render_lines(const TemplateOptions& options) {
  const Source source = open_source(options.source);
  const text::jinja::RenderOptions render_with = render_options();
  LineReader lines(STDIN_FILENO);
  Output out;
  std::string line;
  int status = 0;
  while (lines.next(line) == LineReader::Got::kLine) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      const Json answer = render(source, render_with, line);
      out << (options.json ? json_text(answer) : answer["text"].get_ref<const std::string&>()) << '\n';
    } catch (const Error& error) {
      // A template that raises is an answer; variables that are no object are wrong use.
      if (!options.json) throw;
      out << json_text(json_error(error_code_name(error.code()), error.what())) << '\n';
      if (error.code() == ErrorCode::kUsage) status = error.exit_status();
    }
  }
  out.flush();
  return status;
}

}  // namespace

void add_template(CommandLine& line) {
  auto options = std::make_shared<TemplateOptions>();
  Command command = line.command("template", "Render a chat template with variables from standard input");
  command.option("source", options->source, "FILE|MODEL", "A Jinja file, or a model that has a template")
      .flag("--json", options->json,
            "JSON lines out: {text} or {error}; the input is JSON lines of variables in any case")
      .required("source")
      .example(
          "echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"add_generation_prompt\": true}' |\n"
          "    backplane template smollm2-135m-instruct")
      .action([options] { return render_lines(*options); });
}

}  // namespace backplane::tools

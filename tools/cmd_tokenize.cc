// backplane tokenize: text to ids and back.
#include <fmt/format.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/formats/tokenizer_bundle.h"
#include "core/text/utf8.h"
#include "tools/commands.h"
#include "tools/json_lines.h"
#include "tools/model_source.h"
#include "tools/prompt.h"

namespace backplane::tools {
namespace {

using Json = nlohmann::ordered_json;

struct TokenizeOptions {
  std::string model;
  std::optional<std::string> prompt;
  bool decode = false;
  bool add_special = false, parse_special = false;
  bool json = false;
};

// The answer to one line.
Json answer(const text::Tokenizer& tokenizer, const Json& row, const TokenizeOptions& options) {
  if (options.decode) return {{"text", text::to_valid_utf8(tokenizer.decode(json_ids(row)))}};
  const auto text = row.find("text");
  if (text == row.end() || !text->is_string()) throw Error(ErrorCode::kUsage, "\"text\" must be a string");
  return {{"ids", tokenizer.encode(text->get_ref<const std::string&>(),
                                   {.add_special = json_flag(row, "add_special", options.add_special),
                                    .parse_special = json_flag(row, "parse_special", options.parse_special)})}};
}

// As many lines out as in: a line that can't be answered gives an error object, and status 2 at the end.
int json_lines(const text::Tokenizer& tokenizer, const TokenizeOptions& options) {
  LineReader lines(STDIN_FILENO);
  Output out;
  std::string line;
  int status = 0;
  while (lines.next(line) == LineReader::Got::kLine) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      out << json_text(answer(tokenizer, parse_object(line), options)) << '\n';
    } catch (const Error& error) {
      out << json_text(json_error(error_code_name(error.code()), error.what())) << '\n';
      status = error.exit_status();
    }
  }
  out.flush();
  return status;
}

int plain(const text::Tokenizer& tokenizer, const TokenizeOptions& options) {
  const std::string input = options.prompt ? *options.prompt : read_all(STDIN_FILENO);
  Output out;
  if (options.decode) {
    out << text::to_valid_utf8(tokenizer.decode(parse_ids(input))) << '\n';
  } else {
    const auto ids = tokenizer.encode(input, {options.add_special, options.parse_special});
    for (const TokenId id : ids) {
      out << fmt::format("{:>8}  ", id) << json_string(text::to_valid_utf8(tokenizer.token_bytes(id))) << '\n';
    }
    out << fmt::format("{} tokens, {} bytes\n", ids.size(), input.size());
  }
  out.flush();
  return 0;
}

int tokenize(const TokenizeOptions& options) {
  if (options.json && options.prompt) {
    throw Error(ErrorCode::kUsage, "--json takes its texts as JSON lines from standard input", "-p",
                "leave out one of the two");
  }
  const auto bundle = formats::load_tokenizer(resolve_model(options.model, true));
  return options.json ? json_lines(*bundle.tokenizer, options) : plain(*bundle.tokenizer, options);
}

}  // namespace

void add_tokenize(CommandLine& line) {
  auto options = std::make_shared<TokenizeOptions>();
  Command command = line.command("tokenize", "Turn text into token ids, or ids into text");
  command
      .option("model", options->model, "MODEL",
              "A model, or a bare tokenizer: tokenizer.json, tokenizer.model, a GGUF with only a vocabulary, a folder "
              "with encoder.json and vocab.bpe")
      .option("-p,--prompt", options->prompt, "TEXT", "The text (or, to decode, the ids); by default standard input")
      .flag("--decode", options->decode, "Ids to text")
      .flag("--add-special", options->add_special, "Add BOS and the like as the tokenizer's own policy says")
      .flag("--parse-special", options->parse_special, "Special tokens written in the text become those tokens")
      .flag("--json", options->json,
            "JSON lines: {text, add_special, parse_special} in, {ids} out; to decode, {ids} in, {text} out")
      .required("model")
      .example("backplane tokenize smollm2-135m-instruct -p 'Hello there'")
      .action([options] { return tokenize(*options); });
}

}  // namespace backplane::tools

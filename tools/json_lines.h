// JSON and lines in and out, as scripts use them: a line ends with \n and nothing else, numbers give back their bits.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/ids.h"

namespace backplane::tools {

inline constexpr std::size_t kLongestLine = std::size_t{64} << 20;

// Lines of a file descriptor. The longest line is bounded, so that no input can fill the memory.
class LineReader {
 public:
  explicit LineReader(int descriptor, std::size_t longest = kLongestLine, std::string name = "standard input")
      : descriptor_(descriptor), longest_(longest), name_(std::move(name)) {}

  enum class Got { kLine, kEnd, kInterrupted };  // the last: SIGINT came, inside a CatchInterrupts
  // Waits for a line and gives it without its end. The last line may lack the end. Throws Error: kBadFile when reading
  // fails, kUsage for a line that is too long.
  Got next(std::string& line);
  // After an error about the length: to the end of that line, which isn't kept.
  Got skip();

 private:
  bool fill();

  int descriptor_;
  std::size_t longest_;
  std::string name_;  // for messages
  std::string buffer_;
  std::size_t at_ = 0;
  bool end_ = false;
};

// Everything until the end. Throws as LineReader, and Error{kInterrupted} on SIGINT.
std::string read_all(int descriptor, std::size_t limit = std::size_t{64} << 20);
bool stdin_is_terminal();

// Buffered standard output whose failures are errors: a full disk must not look like success.
class Output {
 public:
  Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output();  // writes what is left, ignoring failures: call flush() first

  Output& operator<<(std::string_view text) {
    buffer_ += text;
    if (buffer_.size() >= kFull) flush();
    return *this;
  }
  Output& operator<<(char c) { return *this << std::string_view(&c, 1); }
  void flush();  // throws Error

  // The shortest digits that give back the same value, read as double and rounded to the type; null for what isn't
  // finite.
  void number(float value);
  void number(double value);

 private:
  static constexpr std::size_t kFull = std::size_t{1} << 16;
  std::string buffer_;
};

// One line, no line end; invalid UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& value);
std::string json_text(const nlohmann::json& value);
// Quoted and escaped.
std::string json_string(std::string_view text);

// {"error": {"code", "message"}}
nlohmann::ordered_json json_error(std::string_view code, std::string_view message);

// Parses one line. Throws Error{kUsage} for anything that isn't one JSON object of sensible depth.
nlohmann::ordered_json parse_object(std::string_view line);

// Members of such an object. Throw Error{kUsage} when they are of another kind; an absent or null flag is `fallback`.
bool json_flag(const nlohmann::ordered_json& row, const char* key, bool fallback);
std::vector<TokenId> json_ids(const nlohmann::ordered_json& row);  // "ids", which must be there

}  // namespace backplane::tools

#include "tools/json_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "tools/signals.h"

namespace backplane::tools {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 16;
constexpr int kDeepest = 256;

// Waits for input; 0 at its end, nothing when SIGINT came inside a CatchInterrupts.
std::optional<std::size_t> read_some(int descriptor, char* to, std::size_t size, const std::string& name) {
  while (true) {
    pollfd waiting[] = {{descriptor, POLLIN, 0}, {CatchInterrupts::wake_descriptor(), POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0 && errno != EINTR) break;
    if (CatchInterrupts::pending()) return std::nullopt;
    if (waiting[0].revents == 0) continue;
    const ssize_t got = ::read(descriptor, to, size);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR && errno != EAGAIN) break;
  }
  throw Error(ErrorCode::kBadFile, std::string("can't read the input: ") + std::strerror(errno), name);
}

template <class T>
std::size_t shortest(T value, char (&digits)[64]) {
  char* end = std::to_chars(digits, digits + sizeof digits - 2, value).ptr;
  // "-0" is an integer in JSON, and loses its sign in many readers.
  if (value == 0 && std::signbit(value)) end = std::strcpy(digits, "-0.0") + 4;
  return static_cast<std::size_t>(end - digits);
}

// Characters that JSON leaves as they are and that some readers of lines take for a line end: NEL, U+2028, U+2029. They
// can only be inside strings.
std::string escape_line_ends(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kEscapes[] = {
      {"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}};
  for (const auto& [character, escape] : kEscapes) {
    for (std::size_t at = text.find(character); at != text.npos; at = text.find(character, at + escape.size())) {
      text.replace(at, character.size(), escape);
    }
  }
  return text;
}

}  // namespace

LineReader::Got LineReader::next(std::string& line) {
  std::size_t searched = at_;
  while (true) {
    const std::size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      line.assign(buffer_, at_, end - at_);
      at_ = end + 1;
      return Got::kLine;
    }
    if (end_) {
      if (at_ == buffer_.size()) return Got::kEnd;
      line.assign(buffer_, at_);
      at_ = buffer_.size();
      return Got::kLine;
    }
    if (buffer_.size() - at_ > longest_) {
      throw Error(ErrorCode::kUsage, "a line is longer than " + std::to_string(longest_) + " bytes", name_);
    }
    searched = buffer_.size() - at_;
    if (!fill()) return Got::kInterrupted;
  }
}

LineReader::Got LineReader::skip() {
  while (true) {
    const std::size_t end = buffer_.find('\n', at_);
    at_ = end == std::string::npos ? buffer_.size() : end + 1;
    if (end != std::string::npos) return Got::kLine;
    if (end_) return Got::kEnd;
    if (!fill()) return Got::kInterrupted;
  }
}

// Drops what has been given out and reads more; false when interrupted.
bool LineReader::fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  const std::size_t size = buffer_.size();
  buffer_.resize(size + kChunk);
  const auto got = read_some(descriptor_, buffer_.data() + size, kChunk, name_);
  buffer_.resize(size + got.value_or(0));
  end_ = got == std::size_t{0};
  return got.has_value();
}

std::string read_all(int descriptor, std::size_t limit) {
  std::string text;
  while (true) {
    const std::size_t size = text.size();
    text.resize(size + kChunk);
    const auto got = read_some(descriptor, text.data() + size, kChunk, "standard input");
    text.resize(size + got.value_or(0));
    CatchInterrupts::check("reading standard input");
    if (got == 0u) return text;
    if (text.size() > limit) {
      throw Error(ErrorCode::kUsage, "the input is larger than " + std::to_string(limit) + " bytes", "standard input");
    }
  }
}

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }

Output::~Output() {
  try {
    flush();
  } catch (const Error&) {
    // The program is already on its way out with another error.
  }
}

void Output::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t wrote = ::write(STDOUT_FILENO, rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      const int error = errno;
      buffer_.clear();
      throw Error(error == ENOSPC ? ErrorCode::kCapacity : ErrorCode::kBadFile,
                  std::string("can't write the output: ") + std::strerror(error), "standard output");
    }
    rest.remove_prefix(static_cast<std::size_t>(wrote));
  }
  buffer_.clear();
}

void Output::number(float value) {
  if (!std::isfinite(value)) {
    *this << "null";
    return;
  }
  char digits[64];
  std::size_t size = shortest(value, digits);
  // Readers parse a double and round that: rarely, rounding twice would miss the float that these digits stand for.
  double parsed = 0;
  std::from_chars(digits, digits + size, parsed);
  if (static_cast<float>(parsed) != value) size = shortest(static_cast<double>(value), digits);
  *this << std::string_view(digits, size);
}

void Output::number(double value) {
  if (!std::isfinite(value)) {
    *this << "null";
    return;
  }
  char digits[64];
  const std::size_t size = shortest(value, digits);
  *this << std::string_view(digits, size);
}

std::string json_text(const nlohmann::ordered_json& value) {
  return escape_line_ends(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

std::string json_text(const nlohmann::json& value) {
  return escape_line_ends(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string json_string(std::string_view text) { return json_text(nlohmann::json(text)); }

nlohmann::ordered_json json_error(std::string_view code, std::string_view message) {
  return {{"error", {{"code", code}, {"message", message}}}};
}

nlohmann::ordered_json parse_object(std::string_view line) {
  const auto shallow = [](int depth, nlohmann::ordered_json::parse_event_t, nlohmann::ordered_json&) {
    if (depth > kDeepest) throw Error(ErrorCode::kUsage, "the JSON is nested too deeply");
    return true;
  };
  try {
    auto value = nlohmann::ordered_json::parse(line, shallow);
    if (value.is_object()) return value;
  } catch (const nlohmann::json::exception& error) {
    std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    const std::size_t after = what.find("] ");
    throw Error(ErrorCode::kUsage, "not JSON", after == what.npos ? what : what.substr(after + 2));
  }
  throw Error(ErrorCode::kUsage, "a JSON object is wanted on each line");
}

bool json_flag(const nlohmann::ordered_json& row, const char* key, bool fallback) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return fallback;
  if (!found->is_boolean()) throw Error(ErrorCode::kUsage, fmt::format("\"{}\" must be true or false", key));
  return found->get<bool>();
}

std::vector<TokenId> json_ids(const nlohmann::ordered_json& row) {
  const auto found = row.find("ids");
  if (found == row.end() || !found->is_array()) throw Error(ErrorCode::kUsage, "\"ids\" must be a list of token ids");
  std::vector<TokenId> ids;
  ids.reserve(found->size());
  for (const nlohmann::ordered_json& id : *found) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      throw Error(ErrorCode::kUsage, "\"ids\" must be a list of token ids", json_text(id).substr(0, 40));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

}  // namespace backplane::tools

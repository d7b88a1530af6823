#include "tools/batch_results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

#include "core/base/error.h"
#include "tools/json_lines.h"
#include "tools/signals.h"

namespace backplane::tools {
namespace {

constexpr std::size_t kAnyLength = std::numeric_limits<std::size_t>::max() / 2;  // answers may be long

void write_all(int descriptor, std::string_view rest, const std::string& where) {
  while (!rest.empty()) {
    const ssize_t wrote = ::write(descriptor, rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      const int error = errno;
      throw Error(error == ENOSPC ? ErrorCode::kCapacity : ErrorCode::kBadFile,
                  std::string("can't write the results: ") + std::strerror(error), where,
                  "what was finished before is in the file: run the same command again to go on");
    }
    rest.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

// A line that ended with the file, before its own end.
bool starts_a_result(std::string_view text) {
  const std::size_t common = std::min(text.size(), kResultStart.size());
  return text.substr(0, common) == kResultStart.substr(0, common);
}

bool is_regular(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

ResultsFile::ResultsFile(const std::string& path, bool retry_failed) : path_(path) {
  if (path == "-") {
    path_ = "standard output";
    descriptor_ = STDOUT_FILENO;
    return;
  }
  open();
  try {
    if (!is_regular(descriptor_)) return;  // a pipe or a device: there is nothing to go on from
    lock();
    const std::uint64_t whole = read(retry_failed);
    if (::ftruncate(descriptor_, static_cast<off_t>(whole)) != 0) refuse(std::strerror(errno));
    if (retry_failed) rewrite_without_failed();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

ResultsFile::~ResultsFile() {
  if (descriptor_ != STDOUT_FILENO) ::close(descriptor_);
}

void ResultsFile::refuse(std::string_view what, std::string_view todo) const {
  throw Error(ErrorCode::kBadFile, fmt::format("can't keep results there: {}", what), path_, todo);
}

void ResultsFile::open() {
  struct stat status {};
  // A pipe is not to be read here, and waits for its reader.
  const bool stream = ::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
  descriptor_ = ::open(path_.c_str(), (stream ? O_WRONLY : O_RDWR | O_CREAT) | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) refuse(std::strerror(errno));
}

// Two programs on one file would do each request twice. A file system without locks has to do without.
void ResultsFile::lock() const {
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  refuse("another program is writing to it", "wait for that one, or name another file");
}

void ResultsFile::keep(const ResultKey& key) {
  ++kept_;
  kept_failed_ += key.failed ? 1 : 0;
  if (key.line) {
    lines_.insert(*key.line);
  } else {
    ids_.emplace(key.custom_id, false);
  }
}

// How many bytes of the file are whole results.
std::uint64_t ResultsFile::read(bool retry_failed) {
  const auto size = static_cast<std::uint64_t>(::lseek(descriptor_, 0, SEEK_END));
  ::lseek(descriptor_, 0, SEEK_SET);
  LineReader lines(descriptor_, kAnyLength, path_);
  std::uint64_t at = 0, number = 0;
  for (std::string line; lines.next(line) == LineReader::Got::kLine;) {
    ++number;
    const bool whole = at + line.size() < size;
    std::optional<ResultKey> key;
    if (whole) key = parse_result(line);
    if (!key && (whole || !starts_a_result(line))) {
      refuse(fmt::format("its line {} is no result of a batch", number), "name another file");
    }
    if (!whole) return at;
    at += line.size() + 1;
    if (!(retry_failed && key->failed)) keep(*key);
  }
  CatchInterrupts::check("reading the results that are there");
  return at;
}

void ResultsFile::rewrite_without_failed() {
  const std::string real = std::filesystem::canonical(path_).string(), next = real + ".new";
  struct stat status {};
  const int to = ::open(next.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (to < 0) refuse(std::strerror(errno));
  try {
    if (::flock(to, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) refuse("another program is rewriting it");
    if (::fstat(descriptor_, &status) != 0 || ::fchmod(to, status.st_mode) != 0) refuse(std::strerror(errno));
    ::lseek(descriptor_, 0, SEEK_SET);
    LineReader lines(descriptor_, kAnyLength, path_);
    for (std::string line; lines.next(line) == LineReader::Got::kLine;) {
      const auto key = parse_result(line);
      if (key && !key->failed) write_all(to, line + '\n', next);
    }
    CatchInterrupts::check("taking out the results that failed");
    if (::fsync(to) != 0 || ::rename(next.c_str(), real.c_str()) != 0) refuse(std::strerror(errno));
  } catch (...) {
    ::unlink(next.c_str());
    ::close(to);
    throw;
  }
  ::close(descriptor_);
  descriptor_ = to;
}

ResultsFile::Known ResultsFile::meet(const std::string& custom_id) {
  const auto [it, added] = ids_.emplace(custom_id, true);
  if (added) return Known::kNew;
  if (std::exchange(it->second, true)) return Known::kDuplicate;
  return Known::kFinished;
}

void ResultsFile::write(std::string_view line) { write_all(descriptor_, line, path_); }

}  // namespace backplane::tools

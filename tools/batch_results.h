// The results file of a batch: what is in it already stays, and more is added line by line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "tools/batch_lines.h"

namespace backplane::tools {

// One thread at a time. However the program ends, the file holds whole lines and perhaps the beginning of one, which
// the next start cuts off. Of what is done it remembers the ids, nothing else.
class ResultsFile {
 public:
  // "-" is standard output. Makes the file, or reads it and keeps its results; with `retry_failed` those that failed
  // are taken out, in one go. Throws Error{kBadFile}: it can't be written, another program writes to it, or it holds
  // what isn't a result, in which case it is left as it is; kInterrupted inside a CatchInterrupts.
  ResultsFile(const std::string& path, bool retry_failed);
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  enum class Known : std::uint8_t { kNew, kFinished, kDuplicate };
  // What is known of a custom_id that has come in the input, where each may come once. kFinished: its result is here.
  Known meet(const std::string& custom_id);
  // Whether a line of the input that is no request has its result here.
  bool has_line(std::uint64_t line) const { return lines_.contains(line); }

  // Appends a line that ends with \n. Throws Error: kCapacity when the disk is full, else kBadFile.
  void write(std::string_view line);

  std::uint64_t kept() const { return kept_; }                // results that were there
  std::uint64_t kept_failed() const { return kept_failed_; }  // of these
  int descriptor() const { return descriptor_; }

 private:
  void open();
  void lock() const;
  std::uint64_t read(bool retry_failed);
  void rewrite_without_failed();
  void keep(const ResultKey& key);
  [[noreturn]] void refuse(std::string_view what, std::string_view todo = {}) const;

  std::string path_;
  int descriptor_ = -1;
  std::unordered_map<std::string, bool> ids_;  // finished or met; whether met
  std::unordered_set<std::uint64_t> lines_;
  std::uint64_t kept_ = 0, kept_failed_ = 0;
};

}  // namespace backplane::tools

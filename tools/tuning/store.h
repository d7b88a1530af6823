// What was found out about settings, in a small JSON file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace backplane::tuning {

// What a device should be opened with.
struct Setting {
  unsigned threads = 0;  // of the host; 0: its default
  std::string options;   // of the device, "key=value"; empty: none

  bool operator==(const Setting&) const = default;
};

struct Entry {
  std::string key;    // what it holds for
  std::string build;  // of the plugin that was tried; another one may be faster elsewhere
  Setting setting;
  std::string why;
  // How often a trial was disturbed; `setting` is the default then, until nothing is tried any more.
  std::uint32_t disturbed = 0;
};

// One file, shared by all processes of the user. A file that is damaged, whatever is in it, counts as an empty one;
// of entries, too, only those that are in order count. find() warns of it, and keep() repairs it.
class Store {
 public:
  explicit Store(std::filesystem::path file) : file_(std::move(file)) {}

  std::optional<Entry> find(const std::string& key) const;
  // Puts it in the place of the one with its key. The new file replaces the old one at once; of two processes that
  // write at a time, one's entry is lost, and tried again. False, with a warning: it can't be written.
  bool keep(const Entry& entry) const;
  // Whether keep() is likely to work; makes the folder. Silent.
  bool writable() const;

 private:
  std::vector<Entry> read(bool warn) const;

  std::filesystem::path file_;
};

// ${XDG_CACHE_HOME:-~/.cache}/backplane/tuned.json; nothing when no variable says where.
std::optional<std::filesystem::path> store_path();

}  // namespace backplane::tuning

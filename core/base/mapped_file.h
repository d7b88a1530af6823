// A read-only memory mapping of a whole file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace backplane {

// Move-only; unmapped on destruction. Reading it is free-threaded. A file that another process truncates while it is
// mapped raises SIGBUS on access, as with any mapping: model files must not be rewritten in place.
class MappedFile {
 public:
  // Throws Error{kBadFile}: absent, unreadable, a folder, or not a regular file. An empty file maps to an empty span.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  // Tells the kernel that the pages of the range won't be read soon, so that their memory can be reused. The contents
  // stay valid: a later read takes them from the file again. `range` lies inside bytes().
  void release(std::span<const std::byte> range) const;

 private:
  void unmap() noexcept;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace backplane

#include "plugins/host/library_check.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <system_error>

namespace backplane::plugins {

bool is_cut_short(const std::filesystem::path& path) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (error || !file.read(reinterpret_cast<char*>(&header), sizeof(header))) return false;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return false;
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const std::uint64_t at = header.e_phoff + std::uint64_t{i} * sizeof(Elf64_Phdr);
    Elf64_Phdr segment{};
    if (at > size || !file.seekg(static_cast<std::streamoff>(at)) ||
        !file.read(reinterpret_cast<char*>(&segment), sizeof(segment))) {
      return true;
    }
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) return true;
  }
  return false;
}

}  // namespace backplane::plugins

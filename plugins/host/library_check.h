// A look at a shared library before the system's loader gets it.
#pragma once

#include <filesystem>

namespace backplane::plugins {

// Whether the file ends before what its ELF headers say is to be mapped, as after an interrupted copy. The system's
// loader maps such a file all the same, and the process dies of SIGBUS. False for files that aren't 64-bit ELF: those
// the loader refuses itself.
bool is_cut_short(const std::filesystem::path& path);

}  // namespace backplane::plugins

// Kernels' names for reports. Plugins hide their symbols, so the dynamic table doesn't know them; the file's own does.
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include "tests/cuda_emulation/runtime.h"

namespace cuda_emulation {

namespace {

struct Symbol {
  std::uintptr_t end;
  std::string name;
};
using Symbols = std::map<std::uintptr_t, Symbol>;  // by offset in the loaded file

Symbols read_symbols(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Symbols result;
  if (bytes.size() < sizeof(Elf64_Ehdr)) return result;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header->e_shoff);
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char* names = bytes.data() + sections[sections[i].sh_link].sh_offset;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(bytes.data() + sections[i].sh_offset);
    for (std::size_t k = 0; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k) {
      if (ELF64_ST_TYPE(symbols[k].st_info) != STT_FUNC || symbols[k].st_size == 0) continue;
      result[symbols[k].st_value] = {symbols[k].st_value + symbols[k].st_size, names + symbols[k].st_name};
    }
  }
  return result;
}

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? text.get() : name;
}

std::string find_name(const void* kernel) {
  Dl_info info{};
  if (dladdr(kernel, &info) == 0 || info.dli_fname == nullptr) return "a kernel";
  static std::map<std::string, Symbols> files;
  const auto [file, is_new] = files.try_emplace(info.dli_fname);
  if (is_new) file->second = read_symbols(info.dli_fname);
  const auto address = reinterpret_cast<std::uintptr_t>(kernel);
  const std::uintptr_t offset = address - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  for (const std::uintptr_t place : {offset, address}) {  // a program that isn't relocatable has absolute addresses
    auto found = file->second.upper_bound(place);
    if (found == file->second.begin()) continue;
    --found;
    if (place < found->second.end) return demangled(found->second.name);
  }
  return info.dli_sname != nullptr ? demangled(info.dli_sname) : "a kernel";
}

}  // namespace

std::string kernel_name(const void* kernel) {
  static std::mutex mutex;
  static std::map<const void*, std::string> known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace(kernel);
  if (is_new) found->second = find_name(kernel);
  return found->second;
}

}  // namespace cuda_emulation

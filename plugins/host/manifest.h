// The small JSON file beside a plugin's library, which says what it is without loading it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace backplane::plugins {

struct Manifest {
  std::string name;  // letters, digits, _ and -; at most 32
  std::uint32_t abi_major = 0;
  std::filesystem::path library;  // in the manifest's own folder; may not exist
  std::string description;        // may be empty
  // What is worth trying on a machine before its devices are used: "threads", and options of its devices, "key=value".
  std::vector<std::string> tune;
};

// Throws Error{kDevice}: unreadable, larger than 64 KiB, not such JSON, or a value that is out of bounds. Members it
// doesn't know are left alone.
Manifest read_manifest(const std::filesystem::path& path);

// Letters, digits, _ and -, and for a device also a dot; 1 to 32 (device: 31) characters.
bool is_plugin_name(std::string_view text);
bool is_device_name(std::string_view text);

// Text of a plugin's for people: bounded, in one line, without control characters.
std::string printable(std::string_view text, std::size_t longest);

}  // namespace backplane::plugins

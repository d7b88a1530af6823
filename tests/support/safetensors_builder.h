// Writes small safetensors files for tests from header text and data.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace backplane::test {

inline std::string safetensors_file(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  out += header;
  out += data;
  return out;
}

}  // namespace backplane::test

// Writes small zip archives with stored (not compressed) members for tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/support/gguf_builder.h"

namespace backplane::test {

inline std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

// One member. `claimed_crc` lets it lie.
inline std::string zip_file(std::string_view name, std::string_view data, std::uint32_t claimed_crc) {
  const auto size = static_cast<std::uint32_t>(data.size());
  const auto common = [&](Bytes& out) {
    out.put<std::uint16_t>(20).put<std::uint16_t>(0).put<std::uint16_t>(0).put<std::uint32_t>(0x21);
    out.put(claimed_crc).put(size).put(size);
    out.put(static_cast<std::uint16_t>(name.size())).put<std::uint16_t>(0);
  };
  Bytes out;
  out.raw("PK\x03\x04");
  common(out);
  out.raw(name).raw(data);
  const auto directory = static_cast<std::uint32_t>(out.size());
  out.raw("PK\x01\x02").put<std::uint16_t>(20);
  common(out);
  out.put<std::uint16_t>(0).put<std::uint16_t>(0).put<std::uint16_t>(0).put<std::uint32_t>(0).put<std::uint32_t>(0);
  out.raw(name);
  const auto end = static_cast<std::uint32_t>(out.size());
  out.raw("PK\x05\x06").put<std::uint32_t>(0).put<std::uint16_t>(1).put<std::uint16_t>(1);
  out.put(end - directory).put(directory).put<std::uint16_t>(0);
  return out.str();
}

inline std::string zip_file(std::string_view name, std::string_view data) { return zip_file(name, data, crc32(data)); }

}  // namespace backplane::test

// Open-addressing hash tables for vocabularies: built once, then only read.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/token_id.h"

namespace backplane::text {

inline std::uint64_t mix_bits(std::uint64_t x) {
  x *= 0x9E3779B97F4A7C15u;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  return x ^ x >> 29;
}

inline std::uint64_t hash_bytes(std::string_view bytes) {
  const char* p = bytes.data();
  std::size_t n = bytes.size();
  std::uint64_t hash = n * 0xA0761D6478BD642Fu;
  std::uint64_t word = 0;
  for (; n >= 8; n -= 8, p += 8) {
    std::memcpy(&word, p, 8);
    hash = mix_bits(hash ^ word);
  }
  if (n >= 4) {  // two reads that may overlap cover 4 to 7 bytes
    std::uint32_t low = 0, high = 0;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + n - 4, 4);
    word = low | std::uint64_t{high} << 32;
  } else if (n > 0) {
    const auto byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(p[i])}; };
    word = byte(0) | byte(n / 2) << 8 | byte(n - 1) << 16;
  } else {
    word = 0;
  }
  return mix_bits(hash ^ word);
}

// Byte strings -> ids. The bytes live in one arena that the caller owns and passes to every call.
class PieceTable {
 public:
  explicit PieceTable(std::size_t capacity = 0) : slots_(std::bit_ceil(capacity * 2 + 2)), mask_(slots_.size() - 1) {}

  // Adds arena[offset, offset + size) unless an equal string is there; at most `capacity` times.
  bool insert(const std::string& arena, std::uint32_t offset, std::uint32_t size, TokenId id) {
    const std::string_view key(arena.data() + offset, size);
    const std::uint64_t hash = hash_bytes(key);
    for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
      Slot& slot = slots_[at];
      if (slot.id == kNoToken) {
        slot = {static_cast<std::uint32_t>(hash >> 32), offset, size, id};
        return true;
      }
      if (matches(slot, arena, key, hash)) return false;
    }
  }

  // The id of `key`, or kNoToken.
  TokenId find(const std::string& arena, std::string_view key) const {
    const std::uint64_t hash = hash_bytes(key);
    for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.id == kNoToken) return kNoToken;
      if (matches(slot, arena, key, hash)) return slot.id;
    }
  }

 private:
  struct Slot {
    std::uint32_t tag = 0, offset = 0, size = 0;
    TokenId id = kNoToken;
  };

  static bool matches(const Slot& slot, const std::string& arena, std::string_view key, std::uint64_t hash) {
    return slot.tag == static_cast<std::uint32_t>(hash >> 32) && slot.size == key.size() &&
           std::memcmp(arena.data() + slot.offset, key.data(), key.size()) == 0;
  }

  std::vector<Slot> slots_;
  std::size_t mask_;
};

// Pairs of 32-bit numbers -> 64 bits. The pair {~0, ~0} can't be a key.
class PairTable {
 public:
  explicit PairTable(std::size_t capacity = 0) : slots_(std::bit_ceil(capacity * 2 + 2)), mask_(slots_.size() - 1) {}

  // Sets the value of a key; at most `capacity` different keys.
  void set(std::uint32_t first, std::uint32_t second, std::uint64_t value) {
    const std::uint64_t key = join(first, second);
    std::size_t at = mix_bits(key) & mask_;
    while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask_;
    slots_[at] = {key, value};
  }

  // The value, or nullptr.
  const std::uint64_t* find(std::uint32_t first, std::uint32_t second) const {
    const std::uint64_t key = join(first, second);
    for (std::size_t at = mix_bits(key) & mask_;; at = (at + 1) & mask_) {
      if (slots_[at].key == key) return &slots_[at].value;
      if (slots_[at].key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty, value = 0;
  };

  static std::uint64_t join(std::uint32_t first, std::uint32_t second) { return std::uint64_t{first} << 32 | second; }

  std::vector<Slot> slots_;
  std::size_t mask_;
};

}  // namespace backplane::text

// Between GGUF's blocks and records of panels. The bits of a weight are spread over a block of eight rows like this,
// for lane r (row of the panel), j < 8 and i < 4, column c = 4j + i of 32:
//   4 bits    byte 32 (j % 4) + 4r + i: the low half for j < 4, the high half otherwise
//   5th bit   byte 128 + 4r + i: bit j
//   5th, 6th  byte 128 + 32 (j / 4) + 4r + i: bits 2 (j % 4) and the next
//   8 bits    byte 32 j + 4r + i
// then come the scales of the eight rows, one kind after another.
#include <cstring>

#include "backends/onednn/packed.h"

namespace backplane::onednn {
namespace {

using Byte = std::uint8_t;

constexpr int kColumns = 32;

Byte* bytes(std::byte* p) { return reinterpret_cast<Byte*>(p); }
const Byte* bytes(const std::byte* p) { return reinterpret_cast<const Byte*>(p); }

int column(int j, int i) { return 4 * j + i; }

// ---- Weights of 32 columns as numbers below 2^bits (of 8 bits: as bytes)

void put_weights(int bits, const Byte* q, Byte* block, std::int64_t lane) {
  Byte* at = block + 4 * lane;
  for (int i = 0; i < 4; ++i) {
    if (bits == 8) {
      for (int j = 0; j < 8; ++j) at[32 * j + i] = q[column(j, i)];
      continue;
    }
    for (int j = 0; j < 4; ++j) {
      at[32 * j + i] = static_cast<Byte>((q[column(j, i)] & 15) | (q[column(j + 4, i)] & 15) << 4);
    }
    if (bits == 5) {
      unsigned high = 0;
      for (int j = 0; j < 8; ++j) high |= static_cast<unsigned>(q[column(j, i)] >> 4 & 1) << j;
      at[128 + i] = static_cast<Byte>(high);
    }
    if (bits == 6) {
      for (int h = 0; h < 2; ++h) {
        unsigned high = 0;
        for (int j = 0; j < 4; ++j) high |= static_cast<unsigned>(q[column(j + 4 * h, i)] >> 4 & 3) << 2 * j;
        at[128 + 32 * h + i] = static_cast<Byte>(high);
      }
    }
  }
}

void get_weights(int bits, const Byte* block, std::int64_t lane, Byte* q) {
  const Byte* at = block + 4 * lane;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 8; ++j) {
      Byte& to = q[column(j, i)];
      if (bits == 8) {
        to = at[32 * j + i];
        continue;
      }
      to = static_cast<Byte>(at[32 * (j % 4) + i] >> (j < 4 ? 0 : 4) & 15);
      if (bits == 5) to = static_cast<Byte>(to | (at[128 + i] >> j & 1) << 4);
      if (bits == 6) to = static_cast<Byte>(to | (at[128 + 32 * (j / 4) + i] >> 2 * (j % 4) & 3) << 4);
    }
  }
}

// ---- Types with blocks of 32: scales first, then the fifth bits, then the others

struct Simple {
  int scale_bytes;  // d, or d and m
  int high_bytes;   // 4 where there is a fifth bit
};

Simple simple_of(const Format& format) { return {format.offset == Offset::kMinimum ? 4 : 2, format.bits == 5 ? 4 : 0}; }

// The order of columns inside a file's nibbles is that of the record, so these are moved as they are.
constexpr int kNibbleWords = 4, kByteWords = 8;

int words_of(const Format& format) { return format.bits == 8 ? kByteWords : kNibbleWords; }

// Where d of a lane lies in a block; m is 16 bytes further on.
int scale_offset(const Format& format) { return format.bits == 8 ? 256 : format.bits == 5 ? 160 : 128; }

void pack_simple(const Format& format, const Byte* file, Byte* block, std::int64_t lane) {
  const Simple simple = simple_of(format);
  const Byte* q = file + simple.scale_bytes + simple.high_bytes;
  for (int j = 0; j < words_of(format); ++j) std::memcpy(block + 32 * j + 4 * lane, q + 4 * j, 4);
  if (simple.high_bytes != 0) {
    std::uint32_t high = 0;
    std::memcpy(&high, file + simple.scale_bytes, sizeof(high));
    for (int i = 0; i < 4; ++i) {
      unsigned byte = 0;
      for (int j = 0; j < 8; ++j) byte |= (high >> column(j, i) & 1) << j;
      block[128 + 4 * lane + i] = static_cast<Byte>(byte);
    }
  }
  Byte* scales = block + scale_offset(format) + 2 * lane;
  std::memcpy(scales, file, 2);
  if (simple.scale_bytes == 4) std::memcpy(scales + 16, file + 2, 2);
}

void unpack_simple(const Format& format, const Byte* block, std::int64_t lane, Byte* file) {
  const Simple simple = simple_of(format);
  Byte* q = file + simple.scale_bytes + simple.high_bytes;
  for (int j = 0; j < words_of(format); ++j) std::memcpy(q + 4 * j, block + 32 * j + 4 * lane, 4);
  if (simple.high_bytes != 0) {
    std::uint32_t high = 0;
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 8; ++j) {
        high |= static_cast<std::uint32_t>(block[128 + 4 * lane + i] >> j & 1) << column(j, i);
      }
    }
    std::memcpy(file + simple.scale_bytes, &high, sizeof(high));
  }
  const Byte* scales = block + scale_offset(format) + 2 * lane;
  std::memcpy(file, scales, 2);
  if (simple.scale_bytes == 4) std::memcpy(file + 2, scales + 16, 2);
}

// ---- Q4_K and Q5_K: d, dmin, twelve bytes of scales and minima of 6 bits, [32 bytes of fifth bits], 128 of nibbles

// Scale and minimum of block b.
void get_scales(const Byte* scales, int b, Byte& scale, Byte& minimum) {
  if (b < 4) {
    scale = scales[b] & 63;
    minimum = scales[b + 4] & 63;
  } else {
    scale = static_cast<Byte>((scales[b + 4] & 15) | (scales[b - 4] >> 6) << 4);
    minimum = static_cast<Byte>(scales[b + 4] >> 4 | (scales[b] >> 6) << 4);
  }
}

void put_scales(Byte* scales, int b, Byte scale, Byte minimum) {
  if (b < 4) {
    scales[b] = static_cast<Byte>(scales[b] | scale);
    scales[b + 4] = static_cast<Byte>(scales[b + 4] | minimum);
  } else {
    scales[b + 4] = static_cast<Byte>((scale & 15) | (minimum & 15) << 4);
    scales[b - 4] = static_cast<Byte>(scales[b - 4] | (scale >> 4) << 6);
    scales[b] = static_cast<Byte>(scales[b] | (minimum >> 4) << 6);
  }
}

void pack_super(const Format& format, const Byte* file, Byte* record, std::int64_t lane) {
  std::memcpy(record + 2 * lane, file, 2);
  std::memcpy(record + 16 + 2 * lane, file + 2, 2);
  const Byte* high = file + 16;
  const Byte* low = high + (format.bits == 5 ? 32 : 0);
  for (int b = 0; b < format.blocks; ++b) {
    Byte* block = record + format.super_bytes + b * format.block_bytes;
    Byte q[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      q[c] = static_cast<Byte>(low[b / 2 * 32 + c] >> (b % 2 * 4) & 15);
      if (format.bits == 5) q[c] = static_cast<Byte>(q[c] | (high[c] >> b & 1) << 4);
    }
    put_weights(format.bits, q, block, lane);
    Byte* scales = block + scale_offset(format);
    get_scales(file + 4, b, scales[lane], scales[8 + lane]);
  }
}

void unpack_super(const Format& format, const Byte* record, std::int64_t lane, Byte* file) {
  Byte* high = file + 16;
  Byte* low = high + (format.bits == 5 ? 32 : 0);
  std::memset(file, 0, static_cast<std::size_t>(low + 128 - file));
  std::memcpy(file, record + 2 * lane, 2);
  std::memcpy(file + 2, record + 16 + 2 * lane, 2);
  for (int b = 0; b < format.blocks; ++b) {
    const Byte* block = record + format.super_bytes + b * format.block_bytes;
    Byte q[kColumns];
    get_weights(format.bits, block, lane, q);
    for (int c = 0; c < kColumns; ++c) {
      Byte& to = low[b / 2 * 32 + c];
      to = static_cast<Byte>(to | (q[c] & 15) << (b % 2 * 4));
      if (format.bits == 5) high[c] = static_cast<Byte>(high[c] | (q[c] >> 4) << b);
    }
    const Byte* scales = block + scale_offset(format);
    put_scales(file + 4, b, scales[lane], scales[8 + lane]);
  }
}

// ---- Q6_K: 128 bytes of low bits, 64 of high ones, 16 scales of 8 bits, d

constexpr int kSixScales = 192;  // in a block of eight rows

// Where columns of block b lie among the low and the high bits.
struct SixBits {
  explicit SixBits(int b)
      : low(b / 4 * 64 + b % 2 * 32), low_shift(b % 4 / 2 * 4), high(b / 4 * 32), high_shift(b % 4 * 2) {}
  int low, low_shift, high, high_shift;
};

void pack_six(const Format& format, const Byte* file, Byte* record, std::int64_t lane) {
  std::memcpy(record + 2 * lane, file + 208, 2);
  for (int b = 0; b < format.blocks; ++b) {
    Byte* block = record + format.super_bytes + b * format.block_bytes;
    const SixBits at(b);
    Byte q[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      const int low = file[at.low + c] >> at.low_shift & 15, high = file[128 + at.high + c] >> at.high_shift & 3;
      q[c] = static_cast<Byte>(low | high << 4);
    }
    put_weights(6, q, block, lane);
    block[kSixScales + lane] = file[192 + 2 * b];
    block[kSixScales + 8 + lane] = file[192 + 2 * b + 1];
  }
}

void unpack_six(const Format& format, const Byte* record, std::int64_t lane, Byte* file) {
  std::memset(file, 0, 210);
  std::memcpy(file + 208, record + 2 * lane, 2);
  for (int b = 0; b < format.blocks; ++b) {
    const Byte* block = record + format.super_bytes + b * format.block_bytes;
    const SixBits at(b);
    Byte q[kColumns];
    get_weights(6, block, lane, q);
    for (int c = 0; c < kColumns; ++c) {
      Byte &low = file[at.low + c], &high = file[128 + at.high + c];
      low = static_cast<Byte>(low | (q[c] & 15) << at.low_shift);
      high = static_cast<Byte>(high | (q[c] >> 4) << at.high_shift);
    }
    file[192 + 2 * b] = block[kSixScales + lane];
    file[192 + 2 * b + 1] = block[kSixScales + 8 + lane];
  }
}

float half_at(const Byte* p) {
  std::uint16_t half = 0;
  std::memcpy(&half, p, sizeof(half));
  return plugin::half_to_float(half);
}

// d and m of a block, as floats: of two scales, those of its halves.
struct Scales {
  float d, d2, m;
};

Scales scales_of(const Format& format, const Byte* record, const Byte* block, std::int64_t lane) {
  Scales scales{};
  if (format.type == BP_TYPE_Q6_K) {
    const auto* of_half = reinterpret_cast<const std::int8_t*>(block + kSixScales);
    scales.d = half_at(record + 2 * lane) * static_cast<float>(of_half[lane]);
    scales.d2 = half_at(record + 2 * lane) * static_cast<float>(of_half[8 + lane]);
    return scales;
  }
  const Byte* at = block + scale_offset(format);
  if (format.blocks > 1) {
    scales.d = half_at(record + 2 * lane) * static_cast<float>(at[lane]);
    scales.m = -(half_at(record + 16 + 2 * lane) * static_cast<float>(at[8 + lane]));
  } else {
    scales.d = half_at(at + 2 * lane);
    if (format.offset == Offset::kMinimum) scales.m = half_at(at + 16 + 2 * lane);
  }
  scales.d2 = scales.d;
  return scales;
}

}  // namespace

void pack_record(const Format& format, const std::byte* file, std::byte* record, std::int64_t lane) {
  if (format.type == BP_TYPE_Q6_K) return pack_six(format, bytes(file), bytes(record), lane);
  if (format.blocks > 1) return pack_super(format, bytes(file), bytes(record), lane);
  pack_simple(format, bytes(file), bytes(record), lane);
}

void unpack_record(const Format& format, const std::byte* record, std::int64_t lane, std::byte* file) {
  if (format.type == BP_TYPE_Q6_K) return unpack_six(format, bytes(record), lane, bytes(file));
  if (format.blocks > 1) return unpack_super(format, bytes(record), lane, bytes(file));
  unpack_simple(format, bytes(record), lane, bytes(file));
}

void read_record(const Format& format, const std::byte* record, std::int64_t lane, float* out) {
  for (int b = 0; b < format.blocks; ++b, out += kColumns) {
    const Byte* block = bytes(record) + format.super_bytes + b * format.block_bytes;
    const Scales scales = scales_of(format, bytes(record), block, lane);
    Byte q[kColumns];
    get_weights(format.bits, block, lane, q);
    for (int c = 0; c < kColumns; ++c) {
      const int value = format.bits == 8 ? static_cast<std::int8_t>(q[c]) : q[c];
      const float d = c < 16 ? scales.d : scales.d2;
      out[c] = d * static_cast<float>(value - format.center);
      if (format.offset == Offset::kMinimum) out[c] += scales.m;
    }
  }
}

}  // namespace backplane::onednn

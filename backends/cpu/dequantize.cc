#include "backends/cpu/dequantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

// The expressions of the block formats fix the order of float operations: another order gives other bits. (The target
// is built without contraction to fused multiply-adds for the same reason.)
namespace backplane::cpu {
namespace {

using Byte = std::uint8_t;

float half_at(const Byte* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return plugin::half_to_float(bits);
}

std::uint32_t word_at(const Byte* at) {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

int signed_byte(Byte value) { return static_cast<std::int8_t>(value); }

// Blocks of 32: the low nibbles are values 0 to 15, the high ones 16 to 31.

void q4_0(const Byte* block, float* out) {
  const float d = half_at(block);
  const Byte* q = block + 2;
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>((q[i] & 15) - 8);
  for (int i = 0; i < 16; ++i) out[i + 16] = d * static_cast<float>((q[i] >> 4) - 8);
}

void q4_1(const Byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  const Byte* q = block + 4;
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(q[i] & 15) + m;
  for (int i = 0; i < 16; ++i) out[i + 16] = d * static_cast<float>(q[i] >> 4) + m;
}

void q5_0(const Byte* block, float* out) {
  const float d = half_at(block);
  const std::uint32_t high = word_at(block + 2);  // bit i is the fifth bit of value i
  const Byte* q = block + 6;
  for (int i = 0; i < 16; ++i) {
    const int low_half = (q[i] & 15) | static_cast<int>(high >> i & 1) << 4;
    const int high_half = (q[i] >> 4) | static_cast<int>(high >> (i + 16) & 1) << 4;
    out[i] = d * static_cast<float>(low_half - 16);
    out[i + 16] = d * static_cast<float>(high_half - 16);
  }
}

void q5_1(const Byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  const std::uint32_t high = word_at(block + 4);
  const Byte* q = block + 8;
  for (int i = 0; i < 16; ++i) {
    const int low_half = (q[i] & 15) | static_cast<int>(high >> i & 1) << 4;
    const int high_half = (q[i] >> 4) | static_cast<int>(high >> (i + 16) & 1) << 4;
    out[i] = d * static_cast<float>(low_half) + m;
    out[i + 16] = d * static_cast<float>(high_half) + m;
  }
}

void q8_0(const Byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(signed_byte(block[2 + i]));
}

constexpr std::int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void iq4_nl(const Byte* block, float* out) {
  const float d = half_at(block);
  const Byte* q = block + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIq4Values[q[i] & 15]);
    out[i + 16] = d * static_cast<float>(kIq4Values[q[i] >> 4]);
  }
}

void mxfp4(const Byte* block, float* out) {
  // Twice the values of E2M1, so that all are integers; the scale, a power of two with bias 127, is halved instead.
  constexpr std::int8_t kValues[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const std::uint32_t e = block[0];
  const float d = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  const Byte* q = block + 1;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kValues[q[i] & 15]);
    out[i + 16] = d * static_cast<float>(kValues[q[i] >> 4]);
  }
}

// Blocks of 256 in groups of 16 or 32, with a scale (and a minimum) for each group.

void q2_k(const Byte* block, float* out) {
  const Byte *scales = block, *q = block + 16;
  const float d = half_at(block + 80), dmin = half_at(block + 82);
  for (int group = 0; group < 16; ++group) {
    // 128 values share 32 bytes: groups 2j and 2j+1 take bits 2j and 2j+1 of their halves.
    const Byte* bytes = q + (group / 8) * 32 + (group % 2) * 16;
    const int shift = (group % 8) / 2 * 2;
    const float scale = d * static_cast<float>(scales[group] & 15);
    const float minimum = dmin * static_cast<float>(scales[group] >> 4);
    for (int i = 0; i < 16; ++i) out[group * 16 + i] = scale * static_cast<float>(bytes[i] >> shift & 3) - minimum;
  }
}

void q3_k(const Byte* block, float* out) {
  const Byte *mask = block, *q = block + 32, *scales = block + 96;
  const float d = half_at(block + 108);
  for (int group = 0; group < 16; ++group) {
    // Six bits of scale: four in a nibble of the first eight bytes, two in the last four bytes.
    const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
    const int high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const Byte* bytes = q + (group / 8) * 32 + (group % 2) * 16;
    const Byte* bits = mask + (group % 2) * 16;
    const int shift = (group % 8) / 2 * 2;
    const int bit = group / 2;
    for (int i = 0; i < 16; ++i) {
      const int offset = (bits[i] >> bit & 1) != 0 ? 0 : 4;
      out[group * 16 + i] = scale * static_cast<float>((bytes[i] >> shift & 3) - offset);
    }
  }
}

struct ScaleAndMinimum {
  int scale, minimum;
};

// Q4_K and Q5_K pack eight pairs of six bits into twelve bytes.
ScaleAndMinimum packed_scale(const Byte* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4, packed[group + 4] >> 4 | (packed[group] >> 6) << 4};
}

void q4_k(const Byte* block, float* out) {
  const float d = half_at(block), dmin = half_at(block + 2);
  const Byte *scales = block + 4, *q = block + 16;
  for (int group = 0; group < 8; ++group) {
    const auto [s, m] = packed_scale(scales, group);
    const float scale = d * static_cast<float>(s), minimum = dmin * static_cast<float>(m);
    const Byte* bytes = q + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) out[group * 32 + i] = scale * static_cast<float>(bytes[i] >> shift & 15) - minimum;
  }
}

void q5_k(const Byte* block, float* out) {
  const float d = half_at(block), dmin = half_at(block + 2);
  const Byte *scales = block + 4, *high = block + 16, *q = block + 48;
  for (int group = 0; group < 8; ++group) {
    const auto [s, m] = packed_scale(scales, group);
    const float scale = d * static_cast<float>(s), minimum = dmin * static_cast<float>(m);
    const Byte* bytes = q + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int value = (bytes[i] >> shift & 15) | (high[i] >> group & 1) << 4;
      out[group * 32 + i] = scale * static_cast<float>(value) - minimum;
    }
  }
}

void q6_k(const Byte* block, float* out) {
  const Byte *q = block, *high = block + 128, *scales = block + 192;
  const float d = half_at(block + 208);
  for (int group = 0; group < 16; ++group) {
    // 128 values: 64 bytes with their low four bits, 32 bytes with the upper two.
    const int half = group / 8, part = group % 8 / 2, start = group % 2 * 16;
    const Byte* low_bits = q + half * 64 + part % 2 * 32 + start;
    const Byte* high_bits = high + half * 32 + start;
    const float scale = d * static_cast<float>(signed_byte(scales[group]));
    for (int i = 0; i < 16; ++i) {
      const int value = (low_bits[i] >> (part / 2 * 4) & 15) | (high_bits[i] >> (part * 2) & 3) << 4;
      out[group * 16 + i] = scale * static_cast<float>(value - 32);
    }
  }
}

void iq4_xs(const Byte* block, float* out) {
  const float d = half_at(block);
  const unsigned high = block[2] | block[3] << 8;
  const Byte *low = block + 4, *q = block + 8;
  for (int group = 0; group < 8; ++group) {
    const int scale = (low[group / 2] >> (group % 2 * 4) & 15) | static_cast<int>(high >> (group * 2) & 3) << 4;
    const float dl = d * static_cast<float>(scale - 32);
    for (int i = 0; i < 16; ++i) {
      const Byte byte = q[group * 16 + i];
      out[group * 32 + i] = dl * static_cast<float>(kIq4Values[byte & 15]);
      out[group * 32 + i + 16] = dl * static_cast<float>(kIq4Values[byte >> 4]);
    }
  }
}

template <void (*kBlock)(const Byte*, float*)>
void each_block(bp_type type, const std::byte* data, std::int64_t count, float* out) {
  const plugin::TypeInfo info = plugin::type_info(type);
  const auto* block = reinterpret_cast<const Byte*>(data);
  for (std::int64_t i = 0; i < count; i += info.block_elements, block += info.block_bytes) kBlock(block, out + i);
}

// Elements of a plain type, without asking for alignment.
template <class Stored, class Real, class Convert>
void convert(const std::byte* data, std::int64_t count, Real* out, Convert to_real) {
  for (std::int64_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, data + static_cast<std::size_t>(i) * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<Real>(to_real(stored));
  }
}

template <class Stored, class Real, class Convert>
void convert_back(const Real* values, std::int64_t count, std::byte* out, Convert to_stored) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto stored = static_cast<Stored>(to_stored(values[i]));
    std::memcpy(out + static_cast<std::size_t>(i) * sizeof(Stored), &stored, sizeof(Stored));
  }
}

template <class Real>
void to_q8_0(const Real* values, std::byte* block) {
  float largest = 0;
  bool finite = true;
  for (int i = 0; i < 32; ++i) {
    const float magnitude = std::fabs(static_cast<float>(values[i]));
    finite = finite && std::isfinite(magnitude);
    largest = std::max(largest, magnitude);
  }
  const float d = largest / 127;
  const std::uint16_t half = finite ? plugin::float_to_half(d) : std::uint16_t{0x7e00};
  std::memcpy(block, &half, sizeof(half));
  const float inverse = finite && half != 0 ? 1 / d : 0;
  for (int i = 0; i < 32; ++i) {
    const float scaled = inverse == 0 ? 0 : static_cast<float>(values[i]) * inverse;
    block[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(scaled)));
  }
}

// Objects instead of the functions themselves, so that the loops above are compiled with them inside.
constexpr auto kSame = [](auto x) { return x; };
constexpr auto kFromHalf = [](std::uint16_t x) { return plugin::half_to_float(x); };
constexpr auto kFromBfloat = [](std::uint16_t x) { return plugin::bfloat_to_float(x); };
constexpr auto kFromE4m3 = [](std::uint8_t x) { return plugin::e4m3_to_float(x); };
constexpr auto kToE4m3 = [](double x) { return plugin::float_to_cached_e4m3(x); };
constexpr auto kToHalf = [](double x) { return plugin::float_to_half(x); };
constexpr auto kToBfloat = [](double x) { return plugin::float_to_bfloat(x); };

}  // namespace

void dequantize(bp_type type, const std::byte* data, std::int64_t count, float* out) {
  switch (type) {
    case BP_TYPE_F64:
      return convert<double>(data, count, out, kSame);
    case BP_TYPE_F32:
      return convert<float>(data, count, out, kSame);
    case BP_TYPE_F16:
      return convert<std::uint16_t>(data, count, out, kFromHalf);
    case BP_TYPE_BF16:
      return convert<std::uint16_t>(data, count, out, kFromBfloat);
    case BP_TYPE_F8_E4M3:
      return convert<std::uint8_t>(data, count, out, kFromE4m3);
    case BP_TYPE_Q4_0:
      return each_block<q4_0>(type, data, count, out);
    case BP_TYPE_Q4_1:
      return each_block<q4_1>(type, data, count, out);
    case BP_TYPE_Q5_0:
      return each_block<q5_0>(type, data, count, out);
    case BP_TYPE_Q5_1:
      return each_block<q5_1>(type, data, count, out);
    case BP_TYPE_Q8_0:
      return each_block<q8_0>(type, data, count, out);
    case BP_TYPE_Q2_K:
      return each_block<q2_k>(type, data, count, out);
    case BP_TYPE_Q3_K:
      return each_block<q3_k>(type, data, count, out);
    case BP_TYPE_Q4_K:
      return each_block<q4_k>(type, data, count, out);
    case BP_TYPE_Q5_K:
      return each_block<q5_k>(type, data, count, out);
    case BP_TYPE_Q6_K:
      return each_block<q6_k>(type, data, count, out);
    case BP_TYPE_IQ4_NL:
      return each_block<iq4_nl>(type, data, count, out);
    case BP_TYPE_IQ4_XS:
      return each_block<iq4_xs>(type, data, count, out);
    case BP_TYPE_MXFP4:
      return each_block<mxfp4>(type, data, count, out);
    default:
      return;
  }
}

template <class Real>
void read_elements(bp_type type, const std::byte* data, std::int64_t count, Real* out) {
  if constexpr (std::is_same_v<Real, float>) {
    dequantize(type, data, count, out);
  } else {
    if (type == BP_TYPE_F64) return convert<double>(data, count, out, kSame);
    const plugin::TypeInfo info = plugin::type_info(type);
    constexpr std::int64_t kChunk = 256;  // a multiple of every block size
    float chunk[kChunk];
    for (std::int64_t i = 0; i < count; i += kChunk) {
      const std::int64_t n = std::min(kChunk, count - i);
      dequantize(type, data + i / info.block_elements * info.block_bytes, n, chunk);
      for (std::int64_t j = 0; j < n; ++j) out[i + j] = static_cast<Real>(chunk[j]);
    }
  }
}

double read_element(bp_type type, const std::byte* data) {
  double value = 0;
  read_elements(type, data, 1, &value);
  return value;
}

template <class Real>
void write_elements(bp_type type, const Real* values, std::int64_t count, std::byte* out) {
  switch (type) {
    case BP_TYPE_F64:
      return convert_back<double>(values, count, out, kSame);
    case BP_TYPE_F32:
      return convert_back<float>(values, count, out, kSame);
    case BP_TYPE_F16:
      return convert_back<std::uint16_t>(values, count, out, kToHalf);
    case BP_TYPE_BF16:
      return convert_back<std::uint16_t>(values, count, out, kToBfloat);
    case BP_TYPE_F8_E4M3:
      return convert_back<std::uint8_t>(values, count, out, kToE4m3);
    case BP_TYPE_Q8_0:
      for (std::int64_t i = 0; i + 32 <= count; i += 32, out += 34) to_q8_0(values + i, out);
      return;
    default:
      return;
  }
}

template void read_elements(bp_type, const std::byte*, std::int64_t, float*);
template void read_elements(bp_type, const std::byte*, std::int64_t, double*);
template void write_elements(bp_type, const float*, std::int64_t, std::byte*);
template void write_elements(bp_type, const double*, std::int64_t, std::byte*);

}  // namespace backplane::cpu

// GGUF's quantized blocks, as a table: where each format keeps the bits of its values and scales.
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "numbers.h"

namespace opaque {
namespace {

using Byte = std::uint8_t;

// Values of `bits` bits from byte `offset` on. Runs of `run` bytes hold one value each in their lowest bits, then the
// next `run` values in the bits above, until the bytes are full.
struct Plane {
  int offset, bits, run;

  constexpr int value(const Byte* block, int i) const {
    const int each = 8 / bits;
    return block[offset + i / (run * each) * run + i % run] >> i / run % each * bits & ((1 << bits) - 1);
  }
};

struct Scale {
  float step, minimum;  // value * step - minimum
};

float half(const Byte* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return from_half(bits);
}

int signed_byte(Byte value) { return static_cast<std::int8_t>(value); }

Scale step_only(const Byte* block, int) { return {half(block), 0}; }
Scale step_and_minimum(const Byte* block, int) { return {half(block), -half(block + 2)}; }
Scale power_of_two(const Byte* block, int) { return {std::ldexp(1.0F, block[0] - 128), 0}; }

Scale q2_k(const Byte* block, int group) {
  return {half(block + 80) * static_cast<float>(block[group] & 15),
          half(block + 82) * static_cast<float>(block[group] >> 4)};
}

Scale q3_k(const Byte* block, int group) {
  constexpr Plane kLow{96, 4, 8}, kHigh{104, 2, 4};
  return {half(block + 108) * static_cast<float>((kLow.value(block, group) | kHigh.value(block, group) << 4) - 32), 0};
}

// Four whole scales and minima of six bits, whose upper two bits belong to the four that follow.
Scale q4_k_and_q5_k(const Byte* block, int group) {
  const Byte* packed = block + 4;
  int scale = packed[group % 4] & 63, minimum = packed[group % 4 + 4] & 63;
  if (group >= 4) {
    scale = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
    minimum = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
  }
  return {half(block) * static_cast<float>(scale), half(block + 2) * static_cast<float>(minimum)};
}

Scale q6_k(const Byte* block, int group) {
  return {half(block + 208) * static_cast<float>(signed_byte(block[192 + group])), 0};
}

Scale iq4_xs(const Byte* block, int group) {
  constexpr Plane kLow{4, 4, 1}, kHigh{2, 2, 1};
  return {half(block) * static_cast<float>((kLow.value(block, group) | kHigh.value(block, group) << 4) - 32), 0};
}

// What a stored number means: itself less `bias`, a signed byte, or an entry of a list.
enum class Code { kBiased, kSignedByte, kNonLinear, kTwiceE2M1 };

struct Format {
  bp_type type;
  int elements, group;  // values in a block, and with one scale
  Plane low, high;      // no bits: no such plane
  Code code;
  int bias;
  Scale (*scale)(const Byte* block, int group);
};

constexpr Plane kNone{0, 0, 1};
constexpr Format kFormats[] = {
    {BP_TYPE_Q4_0, 32, 32, {2, 4, 16}, kNone, Code::kBiased, 8, step_only},
    {BP_TYPE_Q4_1, 32, 32, {4, 4, 16}, kNone, Code::kBiased, 0, step_and_minimum},
    {BP_TYPE_Q5_0, 32, 32, {6, 4, 16}, {2, 1, 1}, Code::kBiased, 16, step_only},
    {BP_TYPE_Q5_1, 32, 32, {8, 4, 16}, {4, 1, 1}, Code::kBiased, 0, step_and_minimum},
    {BP_TYPE_Q8_0, 32, 32, {2, 8, 32}, kNone, Code::kSignedByte, 0, step_only},
    {BP_TYPE_Q2_K, 256, 16, {16, 2, 32}, kNone, Code::kBiased, 0, q2_k},
    {BP_TYPE_Q3_K, 256, 16, {32, 2, 32}, {0, 1, 32}, Code::kBiased, 4, q3_k},
    {BP_TYPE_Q4_K, 256, 32, {16, 4, 32}, kNone, Code::kBiased, 0, q4_k_and_q5_k},
    {BP_TYPE_Q5_K, 256, 32, {48, 4, 32}, {16, 1, 32}, Code::kBiased, 0, q4_k_and_q5_k},
    {BP_TYPE_Q6_K, 256, 16, {0, 4, 64}, {128, 2, 32}, Code::kBiased, 32, q6_k},
    {BP_TYPE_IQ4_NL, 32, 32, {2, 4, 16}, kNone, Code::kNonLinear, 0, step_only},
    {BP_TYPE_IQ4_XS, 256, 32, {8, 4, 16}, kNone, Code::kNonLinear, 0, iq4_xs},
    {BP_TYPE_MXFP4, 32, 32, {1, 4, 16}, kNone, Code::kTwiceE2M1, 0, power_of_two},
};

constexpr std::int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr std::int8_t kTwiceE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

template <std::size_t kIndex>
int number(const Byte* block, int i) {
  constexpr const Format& kFormat = kFormats[kIndex];
  int value = kFormat.low.value(block, i);
  if constexpr (kFormat.high.bits != 0) value |= kFormat.high.value(block, i) << kFormat.low.bits;
  if constexpr (kFormat.code == Code::kSignedByte) return signed_byte(static_cast<Byte>(value));
  if constexpr (kFormat.code == Code::kNonLinear) return kNonLinear[value];
  if constexpr (kFormat.code == Code::kTwiceE2M1) return kTwiceE2M1[value];
  return value - kFormat.bias;
}

// Products of scales and small integers are exact in float, so that only the difference is rounded: to the bits that
// every order of these operations gives.
template <std::size_t kIndex>
void decode_block(const Byte* block, float* out) {
  constexpr const Format& kFormat = kFormats[kIndex];
  for (int begin = 0; begin < kFormat.elements; begin += kFormat.group) {
    const Scale scale = kFormat.scale(block, begin / kFormat.group);
    for (int i = begin; i < begin + kFormat.group; ++i) {
      out[i] = static_cast<float>(number<kIndex>(block, i)) * scale.step - scale.minimum;
    }
  }
}

using Decoder = void (*)(const Byte* block, float* out);

template <std::size_t... kIndices>
Decoder find_decoder(bp_type type, std::index_sequence<kIndices...>) {
  Decoder found = nullptr;
  (void)((kFormats[kIndices].type == type && (found = decode_block<kIndices>)) || ...);
  return found;
}

Decoder decoder_of(bp_type type) { return find_decoder(type, std::make_index_sequence<std::size(kFormats)>()); }

}  // namespace

bool decodable(bp_type type) { return backplane::plugin::is_float(type) || decoder_of(type); }

void decode_row(bp_type type, const std::byte* row, std::uint64_t count, double* out) {
  const auto info = backplane::plugin::type_info(type);
  const Decoder decode_one = decoder_of(type);
  float values[256];
  for (std::uint64_t i = 0; i < count; i += info.block_elements, row += info.block_bytes) {
    if (!decode_one) {
      out[i] = decode(type, row);
      continue;
    }
    decode_one(reinterpret_cast<const Byte*>(row), values);
    for (std::uint32_t j = 0; j < info.block_elements; ++j) out[i + j] = values[j];
  }
}

}  // namespace opaque

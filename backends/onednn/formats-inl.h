// The formats as kernels read them: one block of eight rows at a time, as eight vectors of bytes and their scales.
#if defined(BACKPLANE_ONEDNN_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_ONEDNN_FORMATS_INL_H_
#undef BACKPLANE_ONEDNN_FORMATS_INL_H_
#else
#define BACKPLANE_ONEDNN_FORMATS_INL_H_
#endif

#include <utility>

#include "backends/onednn/dot-inl.h"
#include "backends/onednn/kernels.h"
#include "plugins/abi/backplane_plugin.h"

HWY_BEFORE_NAMESPACE();
namespace backplane::onednn {
namespace HWY_NAMESPACE {

// A block of eight rows, ready to be multiplied. For weights d * q + m, or of two scales: d for the first 16 columns,
// d2 for the others.
struct Block {
  U32 w[8];
  F8 d, d2, m;
};

// Calls f with 0 to kCount - 1 as constants, so that arrays indexed with them stay in registers.
template <int kCount, class Function>
HWY_INLINE void unrolled(Function&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) HWY_ATTR { (f(std::integral_constant<int, i>()), ...); }
  (std::make_integer_sequence<int, kCount>());
}

// The activations of tokens from `first` on, of one group, block after block: token t's are at q[t * kBlock], d[t], and
// sum[t] or start[t * scales].
template <class Form>
struct BlockRows {
  HWY_INLINE BlockRows(const QuantizedRows& x, std::int64_t first) : group(x.group) {
    const std::int64_t at = x.index(first, 0);
    q = x.q + at * kBlock;
    d = x.d + at;
    if constexpr (Form::kMinimum) {
      sum = x.sum + at;
    } else {
      start = x.start + at * Form::kScales;
    }
  }
  HWY_INLINE void next() {
    q += group * kBlock;
    d += group;
    if constexpr (Form::kMinimum) {
      sum += group;
    } else {
      start += group * Form::kScales;
    }
  }

  std::int64_t group;
  const std::int8_t* q;
  const float* d;
  const float* sum = nullptr;
  const std::int32_t* start = nullptr;
};

HWY_INLINE F8 half_at(const std::uint8_t* p) { return load_half(reinterpret_cast<const std::uint16_t*>(p)); }

// Byte i of row r in vector j: column 4j + i in the low four bits, 16 + 4j + i in the high ones.
HWY_INLINE void load_nibbles(const std::uint8_t* p, U32* w) {
  const U32 mask = set_bytes(15);
  for (int j = 0; j < 4; ++j) {
    const U32 both = load_bytes(p + 32 * j);
    w[j] = and_bytes(both, mask);
    w[j + 4] = and_bytes(shift_right<4>(both), mask);
  }
}

// A fifth bit: bit j of byte i of a row belongs to column 4j + i.
HWY_INLINE void add_fifth_bits(const std::uint8_t* p, U32* w) {
  const U32 bits = load_bytes(p), mask = set_bytes(16);
  w[0] = or_bytes(w[0], and_bytes(shift_left<4>(bits), mask));
  w[1] = or_bytes(w[1], and_bytes(shift_left<3>(bits), mask));
  w[2] = or_bytes(w[2], and_bytes(shift_left<2>(bits), mask));
  w[3] = or_bytes(w[3], and_bytes(shift_left<1>(bits), mask));
  w[4] = or_bytes(w[4], and_bytes(bits, mask));
  w[5] = or_bytes(w[5], and_bytes(shift_right<1>(bits), mask));
  w[6] = or_bytes(w[6], and_bytes(shift_right<2>(bits), mask));
  w[7] = or_bytes(w[7], and_bytes(shift_right<3>(bits), mask));
}

// Bits five and six: bits 2j and 2j + 1 of byte i belong to column 4j + i, in a second vector to 16 + 4j + i.
HWY_INLINE void add_two_bits(const std::uint8_t* p, U32* w) {
  const U32 mask = set_bytes(48);
  for (int h = 0; h < 2; ++h) {
    const U32 bits = load_bytes(p + 32 * h);
    U32* to = w + 4 * h;
    to[0] = or_bytes(to[0], and_bytes(shift_left<4>(bits), mask));
    to[1] = or_bytes(to[1], and_bytes(shift_left<2>(bits), mask));
    to[2] = or_bytes(to[2], and_bytes(bits, mask));
    to[3] = or_bytes(to[3], and_bytes(shift_right<2>(bits), mask));
  }
}

struct Nothing {
  explicit Nothing(const std::uint8_t*) {}
};
// Scales of 256 columns.
struct SuperScales {
  explicit SuperScales(const std::uint8_t* p) : d(half_at(p)), m(half_at(p + 16)) {}
  F8 d, m;
};
struct SuperScale {
  explicit SuperScale(const std::uint8_t* p) : d(half_at(p)) {}
  F8 d;
};

template <bp_type kType>
struct Packed;

template <>
struct Packed<BP_TYPE_Q4_0> {
  using Super = Nothing;
  static HWY_INLINE void load_block(const std::uint8_t* p, const Super&, Block& b) {
    load_nibbles(p, b.w);
    b.d = half_at(p + 128);
  }
};
template <>
struct Packed<BP_TYPE_Q4_1> {
  using Super = Nothing;
  static HWY_INLINE void load_block(const std::uint8_t* p, const Super&, Block& b) {
    load_nibbles(p, b.w);
    b.d = half_at(p + 128);
    b.m = half_at(p + 144);
  }
};
template <>
struct Packed<BP_TYPE_Q5_0> {
  using Super = Nothing;
  static HWY_INLINE void load_block(const std::uint8_t* p, const Super&, Block& b) {
    load_nibbles(p, b.w);
    add_fifth_bits(p + 128, b.w);
    b.d = half_at(p + 160);
  }
};
template <>
struct Packed<BP_TYPE_Q5_1> {
  using Super = Nothing;
  static HWY_INLINE void load_block(const std::uint8_t* p, const Super&, Block& b) {
    load_nibbles(p, b.w);
    add_fifth_bits(p + 128, b.w);
    b.d = half_at(p + 160);
    b.m = half_at(p + 176);
  }
};
template <>
struct Packed<BP_TYPE_Q8_0> {
  using Super = Nothing;
  static HWY_INLINE void load_block(const std::uint8_t* p, const Super&, Block& b) {
    for (int j = 0; j < 8; ++j) {
      b.w[j] = load_bytes(p + 32 * j);
      if constexpr (kByteOffset != 0) b.w[j] = xor_bytes(b.w[j], set_bytes(0x80));
    }
    b.d = half_at(p + 256);
  }
};
template <>
struct Packed<BP_TYPE_Q4_K> {
  using Super = SuperScales;
  static HWY_INLINE void load_block(const std::uint8_t* p, const Super& super, Block& b) {
    load_nibbles(p, b.w);
    b.d = mul(super.d, load_u8(p + 128));
    b.m = sub(set(0), mul(super.m, load_u8(p + 136)));
  }
};
template <>
struct Packed<BP_TYPE_Q5_K> {
  using Super = SuperScales;
  static HWY_INLINE void load_block(const std::uint8_t* p, const Super& super, Block& b) {
    load_nibbles(p, b.w);
    add_fifth_bits(p + 128, b.w);
    b.d = mul(super.d, load_u8(p + 160));
    b.m = sub(set(0), mul(super.m, load_u8(p + 168)));
  }
};
template <>
struct Packed<BP_TYPE_Q6_K> {
  using Super = SuperScale;
  static HWY_INLINE void load_block(const std::uint8_t* p, const Super& super, Block& b) {
    load_nibbles(p, b.w);
    add_two_bits(p + 128, b.w);
    b.d = mul(super.d, load_i8(reinterpret_cast<const std::int8_t*>(p + 192)));
    b.d2 = mul(super.d, load_i8(reinterpret_cast<const std::int8_t*>(p + 200)));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace backplane::onednn
HWY_AFTER_NAMESPACE();

#endif  // guard

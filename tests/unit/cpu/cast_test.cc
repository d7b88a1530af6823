// CAST, COPY, FILL: every type bit for bit, against gguf-py and against rounding by search.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/unit/cpu/rig.h"

namespace backplane::cpu_test {
namespace {

const std::map<std::string, bp_type> kTypes = {
    {"Q4_0", BP_TYPE_Q4_0}, {"Q4_1", BP_TYPE_Q4_1},   {"Q5_0", BP_TYPE_Q5_0},     {"Q5_1", BP_TYPE_Q5_1},
    {"Q8_0", BP_TYPE_Q8_0}, {"Q2_K", BP_TYPE_Q2_K},   {"Q3_K", BP_TYPE_Q3_K},     {"Q4_K", BP_TYPE_Q4_K},
    {"Q5_K", BP_TYPE_Q5_K}, {"Q6_K", BP_TYPE_Q6_K},   {"IQ4_NL", BP_TYPE_IQ4_NL}, {"IQ4_XS", BP_TYPE_IQ4_XS},
    {"F16", BP_TYPE_F16},   {"MXFP4", BP_TYPE_MXFP4}, {"BF16", BP_TYPE_BF16}};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The blocks of a file become exactly the floats of the other.
void check_files(Rig& rig, const std::filesystem::path& folder, const std::string& name, bp_type type) {
  SCOPED_TRACE(name);
  const std::string blocks = read_file(folder / (name + ".blocks.bin"));
  const std::string expected = read_file(folder / (name + ".f32.bin"));
  const auto count = static_cast<std::int64_t>(expected.size() / 4);
  ASSERT_GT(count, 0);
  ASSERT_EQ(blocks.size(), *plugin::row_bytes(type, static_cast<std::uint64_t>(count)));
  bp_unary_args args{};
  args.x = rig.bytes(type, {count}, blocks.data());
  for (const bp_type to : {BP_TYPE_F32, BP_TYPE_F64}) {
    args.out = rig.bytes(to, {count});
    ASSERT_EQ(rig.run(BP_OP_CAST, args), BP_OK) << rig.reason;
    const Values values = rig.read(args.out);
    for (std::int64_t i = 0; i < count; ++i) {
      float wanted, given = static_cast<float>(values[static_cast<std::size_t>(i)]);
      std::memcpy(&wanted, expected.data() + i * 4, 4);
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(given)) << "element " << i;
      } else {
        ASSERT_EQ(std::memcmp(&given, &wanted, 4), 0) << "element " << i << ": " << given << " " << wanted;
      }
    }
  }
}

class CastTest : public CpuTest {};
// As a KV cache has it: what the format's specification says of each of its 256 numbers, and the nearest of them.
TEST(CachedE4m3, EveryNumberThereAndBackAndTheNearestOfOthers) {
  std::map<double, int> numbers;
  for (int code = 0; code < 256; ++code) {
    const float value = plugin::e4m3_to_float(static_cast<std::uint8_t>(code));
    const int exponent = code >> 3 & 15, fraction = code & 7;
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    const double magnitude = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(1 + fraction / 8.0, exponent - 7);
    EXPECT_EQ(value, code < 128 ? magnitude : -magnitude) << code;
    EXPECT_EQ(plugin::float_to_cached_e4m3(value), code);
    if (code < 128) numbers[magnitude] = code;
  }
  for (auto above = std::next(numbers.begin()); above != numbers.end(); ++above) {
    const auto below = std::prev(above);
    const double tie = (below->first + above->first) / 2;
    EXPECT_EQ(plugin::float_to_cached_e4m3(tie), (below->second & 1) == 0 ? below->second : above->second) << tie;
    EXPECT_EQ(plugin::float_to_cached_e4m3(std::nextafter(tie, 0)), below->second) << tie;
    EXPECT_EQ(plugin::float_to_cached_e4m3(-std::nextafter(tie, 1e9)), above->second | 0x80) << tie;
  }
  EXPECT_EQ(plugin::float_to_cached_e4m3(1e30), 0x7e);
  EXPECT_EQ(plugin::float_to_cached_e4m3(-465), 0xfe);
  EXPECT_EQ(plugin::float_to_cached_e4m3(std::numeric_limits<double>::infinity()), 0x7f);
  EXPECT_EQ(plugin::float_to_cached_e4m3(std::numeric_limits<double>::quiet_NaN()), 0x7f);
}

INSTANTIATE_TEST_SUITE_P(Devices, CastTest, ::testing::Values(0U, 1U), device_name);

TEST_P(CastTest, EveryTypeAsGgufPyReadsIt) {
  Rig rig(GetParam());
  for (const auto& [name, type] : kTypes) {
    check_files(rig, BACKPLANE_SOURCE_DIR "/tests/unit/cpu/fixtures", name, type);
  }
}

TEST_P(CastTest, SharedVectors) {
  const std::filesystem::path folder = BACKPLANE_SOURCE_DIR "/../shared/data/vectors/dequant";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no shared data";
  Rig rig(GetParam());
  int files = 0;
  for (const auto& [name, type] : kTypes) {
    if (!std::filesystem::exists(folder / (name + ".blocks.bin"))) continue;
    check_files(rig, folder, name, type);
    ++files;
  }
  EXPECT_EQ(files, 10);
}

// What the bits of a small float mean, from the definition.
double decode(std::uint32_t bits, int e, int m) {
  const int exponent = static_cast<int>(bits >> m & ((1u << e) - 1)), bias = (1 << (e - 1)) - 1;
  const double fraction = std::ldexp(bits & ((1u << m) - 1), -m);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return bits >> (e + m) & 1 ? -magnitude : magnitude;
}

// The bits of the nearest number, by search; of two equally near ones the even one. The bits rise with the magnitude,
// and infinity takes the place of the next number.
std::uint32_t nearest(double value, int e, int m) {
  const std::uint32_t sign = std::signbit(value) ? 1u << (e + m) : 0, infinity = ((1u << e) - 1) << m;
  if (std::isinf(value)) return sign | infinity;
  std::uint32_t low = 0, high = infinity;  // decode(low) <= |value|
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (decode(middle, e, m) <= std::abs(value) ? low : high) = middle;
  }
  const double below = std::abs(value) - decode(low, e, m), above = decode(high, e, m) - std::abs(value);
  if (below == above) return sign | (low % 2 == 0 ? low : high);
  return sign | (below < above ? low : high);
}

Values hard_numbers() {
  Values values = {0.0, -0.0, 1e300, -1e300, 65504, 65519.999, 65520, 65536, HUGE_VAL, -HUGE_VAL, 1e-310, 0x1p-24};
  std::mt19937_64 generator(7);
  for (int i = 0; i < 3000; ++i) {
    const double scale = std::ldexp(1, static_cast<int>(generator() % 60) - 40);
    values.push_back((static_cast<double>(generator() >> 11) * 0x1p-52 - 1) * scale);
  }
  for (const auto& [e, m] : {std::pair{5, 10}, std::pair{8, 7}}) {
    const std::uint32_t infinity = ((1u << e) - 1) << m;
    for (std::uint32_t bits = 0; bits < infinity; bits += 1 + bits % 37) {  // ties, and a little to their sides
      const double tie = (decode(bits, e, m) + decode(bits + 1, e, m)) / 2;
      values.insert(values.end(), {decode(bits, e, m), tie, std::nextafter(tie, 0), -std::nextafter(tie, HUGE_VAL)});
    }
  }
  return values;
}

TEST_P(CastTest, RoundsToTheNearestEven) {
  Rig rig(GetParam());
  const Values values = hard_numbers();
  const auto count = static_cast<std::int64_t>(values.size());
  const auto check = [&](bp_type from, bp_type to, int e, int m) {
    bp_unary_args args{};
    args.x = rig.tensor(from, {count}, values);
    args.out = rig.bytes(to, {count});
    ASSERT_EQ(rig.run(BP_OP_CAST, args), BP_OK) << rig.reason;
    const Values exact = rig.read(args.x);
    const auto* bits = reinterpret_cast<const std::uint16_t*>(rig.address(args.out));
    for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_EQ(bits[i], nearest(exact[i], e, m)) << exact[i];
  };
  check(BP_TYPE_F64, BP_TYPE_F16, 5, 10);
  check(BP_TYPE_F64, BP_TYPE_BF16, 8, 7);
  check(BP_TYPE_F32, BP_TYPE_F16, 5, 10);
  check(BP_TYPE_F32, BP_TYPE_BF16, 8, 7);
}

TEST_P(CastTest, EveryHalfThereAndBack) {
  Rig rig(GetParam());
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  for (const bp_type small : {BP_TYPE_F16, BP_TYPE_BF16}) {
    for (const bp_type wide : {BP_TYPE_F32, BP_TYPE_F64}) {
      bp_unary_args there{}, back{};
      there.x = rig.bytes(small, {256, 256}, halves.data());
      there.out = back.x = rig.bytes(wide, {256, 256}, nullptr, 24);
      back.out = rig.bytes(small, {256, 256});
      ASSERT_EQ(rig.run(BP_OP_CAST, there), BP_OK) << rig.reason;
      ASSERT_EQ(rig.run(BP_OP_CAST, back), BP_OK) << rig.reason;
      const Values values = rig.read(there.out);
      const auto* bits = reinterpret_cast<const std::uint16_t*>(rig.address(back.out));
      const int e = small == BP_TYPE_F16 ? 5 : 8, m = 15 - e;
      for (std::uint32_t i = 0; i < 65536; ++i) {
        const bool special = (i >> m & ((1u << e) - 1)) == (1u << e) - 1;
        if (special && (i & ((1u << m) - 1)) != 0) {
          ASSERT_TRUE(std::isnan(values[i]));
          ASSERT_EQ(bits[i] & ~((1u << m) - 1), i & ~((1u << m) - 1)) << "sign and exponent";
          ASSERT_NE(bits[i] & ((1u << m) - 1), 0u);
          continue;
        }
        ASSERT_EQ(values[i], special ? (i >> 15 ? -HUGE_VAL : HUGE_VAL) : decode(i, e, m));
        ASSERT_EQ(bits[i], i);
      }
    }
  }
}

TEST_P(CastTest, CopyTakesAnyStrides) {
  Rig rig(GetParam());
  const Values values = random_values(3 * 5 * 7, 1);
  bp_unary_args args{};
  args.x = rig.tensor(BP_TYPE_F32, {3, 5, 7}, values);
  std::swap(args.x.shape[0], args.x.shape[2]);  // transposed: innermost with gaps
  std::swap(args.x.stride[0], args.x.stride[2]);
  args.out = rig.bytes(BP_TYPE_F32, {7, 5, 3}, nullptr, 12);
  ASSERT_EQ(rig.run(BP_OP_COPY, args), BP_OK) << rig.reason;
  const Values out = rig.read(args.out);
  for (std::size_t i = 0; i < 7; ++i) {
    for (std::size_t j = 0; j < 5; ++j) {
      for (std::size_t k = 0; k < 3; ++k) ASSERT_EQ(out[(i * 5 + j) * 3 + k], values[(k * 5 + j) * 7 + i]);
    }
  }

  std::string blocks(2 * 3 * 18, 0);
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<char>(i * 37);
  args.x = rig.bytes(BP_TYPE_Q4_0, {2, 96}, blocks.data());
  args.out = rig.bytes(BP_TYPE_Q4_0, {2, 96}, nullptr, 6);
  ASSERT_EQ(rig.run(BP_OP_COPY, args), BP_OK) << rig.reason;
  EXPECT_EQ(std::memcmp(rig.address(args.out), blocks.data(), 54), 0);
  EXPECT_EQ(std::memcmp(rig.address(args.out) + 60, blocks.data() + 54, 54), 0);
}

TEST_P(CastTest, FillsEveryPlainType) {
  Rig rig(GetParam());
  const auto bits_of = [&](bp_type type, double value) {
    bp_scalar_args args{};
    args.out = rig.bytes(type, {3, 5});
    args.value = value;
    EXPECT_EQ(rig.run(BP_OP_FILL, args), BP_OK) << rig.reason;
    const std::size_t size = type_info(type).block_bytes;
    std::uint64_t first = 0, last = 0;
    std::memcpy(&first, rig.address(args.out), size);
    std::memcpy(&last, rig.address(args.out) + 14 * size, size);
    EXPECT_EQ(first, last);
    return first;
  };
  EXPECT_EQ(bits_of(BP_TYPE_F64, 1.5), 0x3FF8000000000000u);
  EXPECT_EQ(bits_of(BP_TYPE_F32, 1.5), 0x3FC00000u);
  EXPECT_EQ(bits_of(BP_TYPE_F16, 1.5), 0x3E00u);
  EXPECT_EQ(bits_of(BP_TYPE_BF16, 1.5), 0x3FC0u);
  EXPECT_EQ(bits_of(BP_TYPE_F8_E4M3, 1.5), 0x3Cu);
  EXPECT_EQ(bits_of(BP_TYPE_F8_E4M3, -448), 0xFEu);
  EXPECT_EQ(bits_of(BP_TYPE_F8_E4M3, 464), 0x7Eu) << "a tie with what would be 480";
  EXPECT_EQ(bits_of(BP_TYPE_F8_E4M3, 465), 0x7Fu);
  EXPECT_EQ(bits_of(BP_TYPE_F8_E4M3, 256), 0x78u);
  EXPECT_EQ(bits_of(BP_TYPE_F8_E4M3, 0x1p-9), 0x01u);
  EXPECT_EQ(bits_of(BP_TYPE_F8_E5M2, 1.5), 0x3Eu);
  EXPECT_EQ(bits_of(BP_TYPE_F8_E5M2, 57344), 0x7Bu);
  EXPECT_EQ(bits_of(BP_TYPE_I64, -2), 0xFFFFFFFFFFFFFFFEu);
  EXPECT_EQ(bits_of(BP_TYPE_I32, -2147483648.0), 0x80000000u);
  EXPECT_EQ(bits_of(BP_TYPE_I16, -3), 0xFFFDu);
  EXPECT_EQ(bits_of(BP_TYPE_I8, 127), 0x7Fu);
  EXPECT_EQ(bits_of(BP_TYPE_U64, 0x1p63), 0x8000000000000000u);
  EXPECT_EQ(bits_of(BP_TYPE_U32, 4294967295.0), 0xFFFFFFFFu);
  EXPECT_EQ(bits_of(BP_TYPE_U16, 65535), 0xFFFFu);
  EXPECT_EQ(bits_of(BP_TYPE_U8, 200), 200u);
  EXPECT_EQ(bits_of(BP_TYPE_BOOL, -7), 1u);

  bp_scalar_args args{};
  args.out = rig.bytes(BP_TYPE_I8, {3});
  for (const double value : {128.0, -129.0, HUGE_VAL, std::nan("")}) {
    args.value = value;
    EXPECT_EQ(rig.run(BP_OP_FILL, args), BP_INVALID) << value;
  }
}

}  // namespace
}  // namespace backplane::cpu_test

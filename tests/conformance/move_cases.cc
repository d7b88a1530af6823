// CAST, COPY, FILL, GATHER_ROWS: what moves numbers. Nothing here is rounded but by CAST, and that bit for bit.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

constexpr DType kFloats[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

// Normal numbers, the edges of both types, ties between two numbers of the narrower one, infinities and NaN.
Array numbers_to_cast(Trial& trial, DType from, DType to, std::int64_t tokens, std::int64_t width) {
  Array x = trial.random.array({tokens, width}, from, Style::kSpecial, 3);
  const Array edges = trial.random.array({tokens, width}, to, Style::kEdges);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    if (i % 3 == 1) x.data[i] = round_to(from, edges.data[i]);
    if (i % 3 == 2) x.data[i] = round_to(from, edges.data[i] * (1 + precision_of(to).unit));
  }
  return x;
}

void try_cast(Trial& trial, DType from, DType to, std::int64_t tokens, std::int64_t width, bool gaps) {
  const Array x = numbers_to_cast(trial, from, to, tokens, width);
  trial.subject.set_gaps(gaps);
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_unary_args args{};
    args.x = side.raw(from, x.shape, encode(from, x), side.gaps());
    args.out = side.output(to, x.shape, side.gaps());
    side.run(BP_OP_CAST, args);
    return side.bytes(args.out);
  });
  if ((trial.subject.support().flags & BP_SUPPORT_FLUSHES_DENORMALS) != 0) {
    return trial.same("out", decode(to, x.shape, actual), decode(to, x.shape, expected));
  }
  trial.same_bytes("out", to, actual, expected);
}

void try_dequantize(Trial& trial, DType from, DType to) {
  const Shape shape = {3, 2 * static_cast<std::int64_t>(dtype_info(from).block_elements)};
  const auto blocks = random_weight(trial.random, from, shape[0], shape[1]);
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_unary_args args{};
    args.x = side.raw(from, shape, blocks);
    args.out = side.output(to, shape);
    side.run(BP_OP_CAST, args);
    return side.bytes(args.out);
  });
  trial.same_bytes("out", to, actual, expected);
}

std::vector<std::byte> random_bytes(Trial& trial, DType type, const Shape& shape) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(element_count(shape)) / dtype_info(type).block_elements *
                               dtype_info(type).block_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(trial.random.bits() >> 40);
  return bytes;
}

// Every bit pattern survives, NaN's payload too.
void expect_bits(const std::vector<std::byte>& actual, const std::vector<std::byte>& expected) {
  require(actual.size() == expected.size(), "out: another number of bytes");
  const auto wrong = std::mismatch(actual.begin(), actual.end(), expected.begin()).first;
  require(wrong == actual.end(), fmt::format("out: byte {} of {} differs", wrong - actual.begin(), actual.size()));
}

void try_copy(Trial& trial, DType type, const Shape& shape, bool gaps) {
  trial.subject.set_gaps(gaps);
  const auto bytes = random_bytes(trial, type, shape);
  bp_unary_args args{};
  args.x = trial.subject.raw(type, shape, bytes, gaps);
  args.out = trial.subject.output(type, shape, gaps);
  trial.subject.run(BP_OP_COPY, args);
  expect_bits(trial.subject.bytes(args.out), bytes);
}

// The innermost stride may be anything: reads a matrix by columns.
void try_transpose(Trial& trial, DType type) {
  const std::int64_t rows = 5, columns = 7;
  const std::size_t size = dtype_info(type).block_bytes;
  const auto bytes = random_bytes(trial, type, {rows, columns});
  bp_unary_args args{};
  args.x = trial.subject.raw(type, {rows, columns}, bytes);
  std::swap(args.x.shape[0], args.x.shape[1]);
  std::swap(args.x.stride[0], args.x.stride[1]);
  args.out = trial.subject.output(type, {columns, rows});
  trial.subject.run(BP_OP_COPY, args, BP_FEATURE_STRIDED);
  std::vector<std::byte> expected(bytes.size());
  for (std::size_t r = 0; r < 5; ++r) {
    for (std::size_t c = 0; c < 7; ++c) {
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>((r * 7 + c) * size), size,
                  expected.begin() + static_cast<std::ptrdiff_t>((c * 5 + r) * size));
    }
  }
  expect_bits(trial.subject.bytes(args.out), expected);
}

void try_fill(Trial& trial, DType type, double value, bool gaps) {
  trial.subject.set_gaps(gaps);
  const auto [actual, expected] = trial.both([&](Side& side) {
    bp_scalar_args args{};
    args.out = side.output(type, {5, 33}, side.gaps());
    args.value = value;
    side.run(BP_OP_FILL, args);
    return side.bytes(args.out);
  });
  trial.same_bytes("out", type, actual, expected);
}

void try_gather(Trial& trial, std::int64_t tokens, std::int64_t rows, std::int64_t width, bool gaps) {
  trial.subject.set_gaps(gaps);
  const Array x = trial.draw({tokens, width}, Style::kEdges);
  Array index({rows});
  for (double& i : index.data) i = static_cast<double>(trial.random.below(tokens));
  if (rows > 1) index.data[0] = static_cast<double>(tokens - 1), index.data[1] = 0;
  bp_gather_args args{};
  args.x = trial.subject.input(x);
  args.index = trial.subject.exact(DType::kI32, index);
  args.out = trial.subject.output({rows, width});
  trial.subject.run(BP_OP_GATHER_ROWS, args);
  Array expected({rows, width});
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(x.row(static_cast<std::int64_t>(index.data[static_cast<std::size_t>(r)])), width, expected.row(r));
  }
  trial.same_bytes("out", trial.activation(), trial.subject.bytes(args.out), encode(trial.activation(), expected));
}

void add_casts(Suite& suite) {
  for (const DType from : kFloats) {
    for (const DType to : kFloats) {
      if (from == to) continue;
      const std::string base = fmt::format("CAST/{}_to_{}", dtype_name(from), dtype_name(to));
      suite.add(base + "/T7_H65", [=](Trial& trial) { try_cast(trial, from, to, 7, 65, false); });
      suite.add(base + "/T0_H4", [=](Trial& trial) { try_cast(trial, from, to, 0, 4, false); });
      suite.add(base + "/strided", [=](Trial& trial) { try_cast(trial, from, to, 5, 33, true); });
    }
  }
  for (const DType from : weight_types()) {
    if (!is_quantized(from)) continue;
    for (const DType to : {DType::kF32, DType::kF16}) {
      suite.add(fmt::format("CAST/{}_to_{}", dtype_name(from), dtype_name(to)),
                [=](Trial& trial) { try_dequantize(trial, from, to); });
    }
  }
}

}  // namespace

void add_move_cases(Suite& suite) {
  add_casts(suite);
  for (const DType type :
       {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kU8, DType::kQ4_0}) {
    const std::string base = fmt::format("COPY/{}", dtype_name(type));
    suite.add(base + "/T5_H96", [type](Trial& trial) { try_copy(trial, type, {5, 96}, false); });
    suite.add(base + "/strided", [type](Trial& trial) { try_copy(trial, type, {5, 3, 32}, true); });
    if (!is_quantized(type)) suite.add(base + "/transposed", [type](Trial& trial) { try_transpose(trial, type); });
  }
  for (const DType type :
       {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI64, DType::kI32,
        DType::kI16, DType::kI8, DType::kU64, DType::kU32, DType::kU16, DType::kU8, DType::kBool}) {
    const double value = type == DType::kBool ? 1 : backplane::is_float(type) ? -1.7 : 3;
    const std::string base = fmt::format("FILL/{}", dtype_name(type));
    suite.add(base, [=](Trial& trial) { try_fill(trial, type, value, false); });
    suite.add(base + "/strided", [=](Trial& trial) { try_fill(trial, type, value, true); });
  }
  suite.add_for_each_type("GATHER_ROWS/T9_R4_H33", [](Trial& trial) { try_gather(trial, 9, 4, 33, false); });
  suite.add_for_each_type("GATHER_ROWS/T1_R1_H1", [](Trial& trial) { try_gather(trial, 1, 1, 1, false); });
  suite.add_for_each_type("GATHER_ROWS/T5_R0_H8", [](Trial& trial) { try_gather(trial, 5, 0, 8, false); });
  suite.add_for_each_type("GATHER_ROWS/T33_R17_H128", [](Trial& trial) { try_gather(trial, 33, 17, 128, false); });
  suite.add_for_each_type("GATHER_ROWS/strided", [](Trial& trial) { try_gather(trial, 9, 5, 33, true); });
}

}  // namespace backplane::conformance

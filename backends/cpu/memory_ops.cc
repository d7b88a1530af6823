// Ops that move elements or change their type: CAST, COPY, FILL, GATHER_ROWS, ADVANCE.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/dequantize.h"
#include "backends/cpu/loops.h"
#include "backends/cpu/ops.h"

namespace backplane::cpu {
namespace {

// A tensor of any type as blocks of bytes, with any strides; the innermost size counts blocks.
class Blocks {
 public:
  Blocks(const bp_tensor& tensor, const char* name, bool write) : tensor_(tensor) {
    const plugin::TypeInfo info = plugin::type_info(tensor.type);
    bytes_ = info.block_bytes;
    tensor_.shape[tensor.rank - 1] /= info.block_elements;
    if (plugin::is_empty(tensor)) return;
    try {
      data_ = const_cast<std::byte*>(plugin::data_of<const std::byte>(tensor));
      if (!write) return;
      plugin::data_of<std::byte>(tensor);  // may it be written?
      for (std::uint32_t i = 0; i < tensor.rank; ++i) {
        plugin::require(tensor_.shape[i] == 1 || tensor.stride[i] >= static_cast<std::int64_t>(bytes_),
                        "elements of a result overlap");
      }
    } catch (const plugin::Failure& failure) {
      throw plugin::Failure(failure.status(), std::string(name) + ": " + failure.what());
    }
  }

  std::int64_t rows() const { return plugin::row_count(tensor_); }
  std::int64_t blocks() const { return plugin::row_length(tensor_); }
  std::size_t bytes() const { return bytes_; }
  std::int64_t step() const { return tensor_.stride[tensor_.rank - 1]; }
  bool contiguous() const { return blocks() == 1 || step() == static_cast<std::int64_t>(bytes_); }
  std::byte* row(std::int64_t number) const {
    std::int64_t offset = 0;
    for (int i = static_cast<int>(tensor_.rank) - 2; i >= 0; --i) {
      offset += number % tensor_.shape[i] * tensor_.stride[i];
      number /= tensor_.shape[i];
    }
    return data_ + offset;
  }

 private:
  bp_tensor tensor_;
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

void copy_row(const Blocks& from, std::byte* source, const Blocks& to, std::byte* target) {
  if (from.contiguous() && to.contiguous()) {
    std::memcpy(target, source, static_cast<std::size_t>(to.blocks()) * to.bytes());
  } else {
    for (std::int64_t i = 0; i < to.blocks(); ++i) {
      std::memcpy(target + i * to.step(), source + i * from.step(), to.bytes());
    }
  }
}

// Any type of floats to any other, through double, which holds all of them exactly: one rounding, at the end.
void cast_row(bp_type from, const std::byte* source, bp_type to, std::byte* target, std::int64_t count) {
  constexpr std::int64_t kChunk = 256;  // a multiple of every block size
  double chunk[kChunk];
  const plugin::TypeInfo in = plugin::type_info(from), out = plugin::type_info(to);
  for (std::int64_t i = 0; i < count; i += kChunk) {
    const std::int64_t n = std::min(kChunk, count - i);
    read_elements(from, source + i / in.block_elements * in.block_bytes, n, chunk);
    write_elements(to, chunk, n, target + i * out.block_bytes);
  }
}

template <class Integer>
void put_integer(double value, std::byte* out) {
  // The bounds are powers of two, exact as double: the first value that is too large, and the smallest.
  const double end = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  const double least = std::numeric_limits<Integer>::is_signed ? -end : 0.0;
  plugin::require(value >= least && value < end, "the value doesn't fit the type of out");
  const auto stored = static_cast<Integer>(value);
  std::memcpy(out, &stored, sizeof(stored));
}

// One element of a plain type.
void put_element(bp_type type, double value, std::byte* out) {
  switch (type) {
    case BP_TYPE_I64:
      return put_integer<std::int64_t>(value, out);
    case BP_TYPE_I32:
      return put_integer<std::int32_t>(value, out);
    case BP_TYPE_I16:
      return put_integer<std::int16_t>(value, out);
    case BP_TYPE_I8:
      return put_integer<std::int8_t>(value, out);
    case BP_TYPE_U64:
      return put_integer<std::uint64_t>(value, out);
    case BP_TYPE_U32:
      return put_integer<std::uint32_t>(value, out);
    case BP_TYPE_U16:
      return put_integer<std::uint16_t>(value, out);
    case BP_TYPE_U8:
      return put_integer<std::uint8_t>(value, out);
    case BP_TYPE_BOOL:
      *out = std::byte{value != 0};
      return;
    case BP_TYPE_F8_E4M3:
      *out = std::byte{plugin::float_to_e4m3(value)};
      return;
    case BP_TYPE_F8_E5M2:
      *out = std::byte{plugin::float_to_e5m2(value)};
      return;
    default:
      return write_elements(type, &value, 1, out);
  }
}

}  // namespace

template <class Real>
void run(const Call& call, const bp_unary_args& args) {
  const Blocks x(args.x, "x", false), out(args.out, "out", true);
  if (call.code == BP_OP_COPY) {
    return for_rows(out.rows(), out.blocks(), [&](std::int64_t r) { copy_row(x, x.row(r), out, out.row(r)); });
  }
  if (!plugin::is_empty(args.x)) {
    plugin::require(x.contiguous() && out.contiguous(), "the elements of a row have gaps");
  }
  for_rows(out.rows(), out.blocks(),
           [&](std::int64_t r) { cast_row(args.x.type, x.row(r), args.out.type, out.row(r), out.blocks()); });
}

void fill(const bp_scalar_args& args) {
  const Blocks out(args.out, "out", true);
  std::byte element[8];
  put_element(args.out.type, args.value, element);
  for_rows(out.rows(), out.blocks(), [&](std::int64_t r) {
    std::byte* row = out.row(r);
    for (std::int64_t i = 0; i < out.blocks(); ++i) std::memcpy(row + i * out.step(), element, out.bytes());
  });
}

// Rows are moved as bytes, so every type will do.
template <class Real>
void run(const Call&, const bp_gather_args& args) {
  const View<const std::int32_t> index(args.index, "index");
  const Blocks x(args.x, "x", false), out(args.out, "out", true);
  for (std::int64_t r = 0; r < out.rows(); ++r) {
    if (index[r] < 0 || index[r] >= x.rows()) {
      throw plugin::Failure(BP_INVALID, "index " + std::to_string(index[r]) + " is outside the " +
                                            std::to_string(x.rows()) + " rows of x");
    }
  }
  for_rows(out.rows(), out.blocks(), [&](std::int64_t r) { copy_row(x, x.row(index[r]), out, out.row(r)); });
}

template <class Real>
void run(const Call&, const bp_advance_args& args) {
  const View<const std::int32_t> ids(args.ids, "ids"), target(args.target, "target");
  const View<std::int32_t> token(args.token, "token");
  const std::int64_t rows = args.ids.shape[0], tokens = args.token.shape[0];
  for (std::int64_t r = 0; r < rows; ++r) {
    if (target[r] >= tokens) {
      throw plugin::Failure(BP_INVALID, "target " + std::to_string(target[r]) + " is outside a step of " +
                                            std::to_string(tokens) + " tokens");
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    if (target[r] >= 0) token[target[r]] = ids[r];
  }
}

template void run<float>(const Call&, const bp_unary_args&);
template void run<double>(const Call&, const bp_unary_args&);
template void run<float>(const Call&, const bp_gather_args&);
template void run<double>(const Call&, const bp_gather_args&);
template void run<float>(const Call&, const bp_advance_args&);
template void run<double>(const Call&, const bp_advance_args&);

}  // namespace backplane::cpu

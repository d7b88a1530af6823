// CAST, COPY and FILL, and SAMPLE.
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cuda/ops.h"

namespace backplane::cuda {
namespace {

// A tensor of any type as rows of blocks, with any strides.
struct Blocks {
  Rows rows;
  std::int64_t step, count, bytes;
};

Blocks blocks_of(const bp_tensor& tensor, const char* name, bool write) {
  const plugin::TypeInfo info = plugin::type_info(tensor.type);
  const std::uint32_t last = tensor.rank - 1;
  Blocks blocks{{}, tensor.stride[last], tensor.shape[last] / info.block_elements, info.block_bytes};
  if (plugin::is_empty(tensor)) return blocks;
  try {
    void* data =
        write ? plugin::data_of<std::byte>(tensor) : const_cast<std::byte*>(plugin::data_of<const std::byte>(tensor));
    for (std::uint32_t i = 0; write && i < tensor.rank; ++i) {
      const std::int64_t size = i == last ? blocks.count : tensor.shape[i];
      plugin::require(size == 1 || tensor.stride[i] >= blocks.bytes, "elements of a result overlap");
    }
    blocks.rows = rows_at(tensor, data);
  } catch (const plugin::Failure& failure) {
    throw plugin::Failure(failure.status(), std::string(name) + ": " + failure.what());
  }
  return blocks;
}

template <class Integer>
std::uint64_t integer_bits(double value) {
  // The bounds are powers of two, exact as double: the first value that is too large, and the smallest.
  const double end = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  plugin::require(value >= (std::numeric_limits<Integer>::is_signed ? -end : 0.0) && value < end,
                  "the value doesn't fit the type of out");
  return static_cast<std::uint64_t>(static_cast<Integer>(value));
}

template <class Bits, class Value>
std::uint64_t bits_of(Value value) {
  Bits bits;
  static_assert(sizeof(bits) == sizeof(value));
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// An element of a plain type, the lowest byte first.
std::uint64_t element_bits(bp_type type, double value) {
  switch (type) {
    case BP_TYPE_F64:
      return bits_of<std::uint64_t>(value);
    case BP_TYPE_F32:
      return bits_of<std::uint32_t>(static_cast<float>(value));
    case BP_TYPE_F16:
      return plugin::float_to_half(value);
    case BP_TYPE_BF16:
      return plugin::float_to_bfloat(value);
    case BP_TYPE_F8_E4M3:
      return plugin::float_to_e4m3(value);
    case BP_TYPE_F8_E5M2:
      return plugin::float_to_e5m2(value);
    case BP_TYPE_I64:
      return integer_bits<std::int64_t>(value);
    case BP_TYPE_I32:
      return integer_bits<std::int32_t>(value);
    case BP_TYPE_I16:
      return integer_bits<std::int16_t>(value);
    case BP_TYPE_I8:
      return integer_bits<std::int8_t>(value);
    case BP_TYPE_U64:
      return integer_bits<std::uint64_t>(value);
    case BP_TYPE_U32:
      return integer_bits<std::uint32_t>(value);
    case BP_TYPE_U16:
      return integer_bits<std::uint16_t>(value);
    case BP_TYPE_U8:
      return integer_bits<std::uint8_t>(value);
    case BP_TYPE_BOOL:
      return value != 0 ? 1 : 0;
    default:
      plugin::refuse(std::string("FILL of ") + plugin::type_info(type).name);
  }
}

CopyCall copy_to(const Blocks& out, const bp_tensor& tensor) {
  CopyCall kernel;
  kernel.out = out.rows;
  kernel.out_step = out.step;
  kernel.rows = plugin::row_count(tensor);
  kernel.blocks = out.count;
  kernel.block_bytes = out.bytes;
  return kernel;
}

}  // namespace

void check_cast(std::uint32_t code, const bp_unary_args& args) {
  if (code == BP_OP_CAST && plugin::is_quantized(args.x.type)) {
    plugin::refuse(std::string("CAST from ") + plugin::type_info(args.x.type).name);
  }
}

void fill(const Call& call, const bp_scalar_args& args) {
  CopyCall kernel = copy_to(blocks_of(args.out, "out", true), args.out);
  kernel.value = element_bits(args.out.type, args.value);
  launch(call, kernel);
}

void run(const Call& call, const bp_unary_args& args) {
  check_cast(call.op.code, args);
  const Blocks x = blocks_of(args.x, "x", false), out = blocks_of(args.out, "out", true);
  if (call.op.code == BP_OP_COPY) {
    CopyCall kernel = copy_to(out, args.out);
    kernel.x = x.rows;
    kernel.x_step = x.step;
    return launch(call, kernel);
  }
  for (const Blocks& side : {x, out}) {
    plugin::require(side.count <= 1 || side.step == side.bytes, "the elements of a row have gaps");
    const std::int64_t all = side.rows.inner_stride | side.rows.middle_stride | side.rows.outer_stride |
                             static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(side.rows.data));
    plugin::require(all % side.bytes == 0, "a tensor is not aligned to its elements");
  }
  CastCall kernel;
  kernel.x = x.rows;
  kernel.out = out.rows;
  kernel.from = args.x.type;
  kernel.to = args.out.type;
  kernel.rows = plugin::row_count(args.out);
  kernel.columns = out.count;
  launch(call, kernel);
}

void run(const Call& call, const bp_sample_args& args) {
  SampleCall kernel;
  kernel.logits = input(args.logits, "logits");
  kernel.temperature = vector_of<const double>(args.temperature, "temperature");
  kernel.top_p = vector_of<const double>(args.top_p, "top_p");
  kernel.min_p = vector_of<const double>(args.min_p, "min_p");
  kernel.top_k = vector_of<const std::int32_t>(args.top_k, "top_k");
  kernel.seed = vector_of<const std::uint64_t>(args.seed, "seed");
  kernel.counter = vector_of<const std::uint64_t>(args.counter, "counter");
  kernel.ids = vector_of<std::int32_t>(args.ids, "ids");
  kernel.rows = args.logits.shape[0];
  kernel.columns = args.logits.shape[1];
  kernel.fault = call.stream.fault;
  launch(call, kernel);
}

}  // namespace backplane::cuda

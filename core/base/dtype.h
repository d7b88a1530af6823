// Element and block types: the ABI's numbers with a C++ face.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "plugins/abi/backplane_plugin.h"

namespace backplane {

// A quantized type stores blocks: `block_elements` values in `block_bytes` bytes, laid out as GGUF defines them.
// Plain types are blocks of one element.
enum class DType : std::uint32_t {
  kNone = BP_TYPE_NONE,
  kF64 = BP_TYPE_F64,
  kF32 = BP_TYPE_F32,
  kF16 = BP_TYPE_F16,
  kBF16 = BP_TYPE_BF16,
  kF8E4M3 = BP_TYPE_F8_E4M3,
  kF8E5M2 = BP_TYPE_F8_E5M2,
  kI64 = BP_TYPE_I64,
  kI32 = BP_TYPE_I32,
  kI16 = BP_TYPE_I16,
  kI8 = BP_TYPE_I8,
  kU64 = BP_TYPE_U64,
  kU32 = BP_TYPE_U32,
  kU16 = BP_TYPE_U16,
  kU8 = BP_TYPE_U8,
  kBool = BP_TYPE_BOOL,
  kQ4_0 = BP_TYPE_Q4_0,
  kQ4_1 = BP_TYPE_Q4_1,
  kQ5_0 = BP_TYPE_Q5_0,
  kQ5_1 = BP_TYPE_Q5_1,
  kQ8_0 = BP_TYPE_Q8_0,
  kQ2_K = BP_TYPE_Q2_K,
  kQ3_K = BP_TYPE_Q3_K,
  kQ4_K = BP_TYPE_Q4_K,
  kQ5_K = BP_TYPE_Q5_K,
  kQ6_K = BP_TYPE_Q6_K,
  kIQ4_NL = BP_TYPE_IQ4_NL,
  kIQ4_XS = BP_TYPE_IQ4_XS,
  kMXFP4 = BP_TYPE_MXFP4,
};

struct DTypeInfo {
  DType type;
  std::string_view name;         // "F32", "Q4_K": the spelling of GGUF and safetensors
  std::uint32_t block_elements;  // values in a block
  std::uint32_t block_bytes;
};

// Never fails: an unknown number gives the entry of kNone, with empty blocks.
const DTypeInfo& dtype_info(DType type);
inline std::string_view dtype_name(DType type) { return dtype_info(type).name; }
std::optional<DType> dtype_from_name(std::string_view name);

inline bool is_quantized(DType type) { return dtype_info(type).block_elements > 1; }
bool is_float(DType type);  // F64, F32, F16, BF16

// Bytes of a contiguous row of `elements` values; nothing when it isn't whole blocks or overflows 63 bits.
std::optional<std::uint64_t> row_bytes(DType type, std::uint64_t elements);

}  // namespace backplane

#include "core/base/dtype.h"

#include <array>

namespace backplane {
namespace {

constexpr std::array kTypes = {
    DTypeInfo{DType::kNone, "none", 0, 0},       DTypeInfo{DType::kF64, "F64", 1, 8},
    DTypeInfo{DType::kF32, "F32", 1, 4},         DTypeInfo{DType::kF16, "F16", 1, 2},
    DTypeInfo{DType::kBF16, "BF16", 1, 2},       DTypeInfo{DType::kF8E4M3, "F8_E4M3", 1, 1},
    DTypeInfo{DType::kF8E5M2, "F8_E5M2", 1, 1},  DTypeInfo{DType::kI64, "I64", 1, 8},
    DTypeInfo{DType::kI32, "I32", 1, 4},         DTypeInfo{DType::kI16, "I16", 1, 2},
    DTypeInfo{DType::kI8, "I8", 1, 1},           DTypeInfo{DType::kU64, "U64", 1, 8},
    DTypeInfo{DType::kU32, "U32", 1, 4},         DTypeInfo{DType::kU16, "U16", 1, 2},
    DTypeInfo{DType::kU8, "U8", 1, 1},           DTypeInfo{DType::kBool, "BOOL", 1, 1},
    DTypeInfo{DType::kQ4_0, "Q4_0", 32, 18},     DTypeInfo{DType::kQ4_1, "Q4_1", 32, 20},
    DTypeInfo{DType::kQ5_0, "Q5_0", 32, 22},     DTypeInfo{DType::kQ5_1, "Q5_1", 32, 24},
    DTypeInfo{DType::kQ8_0, "Q8_0", 32, 34},     DTypeInfo{DType::kQ2_K, "Q2_K", 256, 84},
    DTypeInfo{DType::kQ3_K, "Q3_K", 256, 110},   DTypeInfo{DType::kQ4_K, "Q4_K", 256, 144},
    DTypeInfo{DType::kQ5_K, "Q5_K", 256, 176},   DTypeInfo{DType::kQ6_K, "Q6_K", 256, 210},
    DTypeInfo{DType::kIQ4_NL, "IQ4_NL", 32, 18}, DTypeInfo{DType::kIQ4_XS, "IQ4_XS", 256, 136},
    DTypeInfo{DType::kMXFP4, "MXFP4", 32, 17},
};

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  for (const DTypeInfo& info : kTypes) {
    if (info.type == type) return info;
  }
  return kTypes[0];
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& info : kTypes) {
    if (info.name == name && info.type != DType::kNone) return info.type;
  }
  return std::nullopt;
}

bool is_float(DType type) {
  return type == DType::kF64 || type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

std::optional<std::uint64_t> row_bytes(DType type, std::uint64_t elements) {
  const DTypeInfo& info = dtype_info(type);
  if (info.block_elements == 0 || elements % info.block_elements != 0) return std::nullopt;
  const std::uint64_t blocks = elements / info.block_elements;
  if (blocks > (UINT64_MAX >> 1) / info.block_bytes) return std::nullopt;
  return blocks * info.block_bytes;
}

}  // namespace backplane

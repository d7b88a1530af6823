// Types, type sets and tensor arithmetic that can't overflow. SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>

#include "backplane_plugin.h"

namespace backplane::plugin {

// ---- Types

struct TypeInfo {
  const char* name;              // "F32", "Q4_K"; "NONE" for an unknown type
  std::uint32_t block_elements;  // values in a block: 1 for plain types, 0 for an unknown one
  std::uint32_t block_bytes;
};

namespace types {

constexpr TypeInfo describe(bp_type type) noexcept {
  switch (type) {
    case BP_TYPE_F64:
      return {"F64", 1, 8};
    case BP_TYPE_F32:
      return {"F32", 1, 4};
    case BP_TYPE_F16:
      return {"F16", 1, 2};
    case BP_TYPE_BF16:
      return {"BF16", 1, 2};
    case BP_TYPE_F8_E4M3:
      return {"F8_E4M3", 1, 1};
    case BP_TYPE_F8_E5M2:
      return {"F8_E5M2", 1, 1};
    case BP_TYPE_I64:
      return {"I64", 1, 8};
    case BP_TYPE_I32:
      return {"I32", 1, 4};
    case BP_TYPE_I16:
      return {"I16", 1, 2};
    case BP_TYPE_I8:
      return {"I8", 1, 1};
    case BP_TYPE_U64:
      return {"U64", 1, 8};
    case BP_TYPE_U32:
      return {"U32", 1, 4};
    case BP_TYPE_U16:
      return {"U16", 1, 2};
    case BP_TYPE_U8:
      return {"U8", 1, 1};
    case BP_TYPE_BOOL:
      return {"BOOL", 1, 1};
    case BP_TYPE_Q4_0:
      return {"Q4_0", 32, 18};
    case BP_TYPE_Q4_1:
      return {"Q4_1", 32, 20};
    case BP_TYPE_Q5_0:
      return {"Q5_0", 32, 22};
    case BP_TYPE_Q5_1:
      return {"Q5_1", 32, 24};
    case BP_TYPE_Q8_0:
      return {"Q8_0", 32, 34};
    case BP_TYPE_Q2_K:
      return {"Q2_K", 256, 84};
    case BP_TYPE_Q3_K:
      return {"Q3_K", 256, 110};
    case BP_TYPE_Q4_K:
      return {"Q4_K", 256, 144};
    case BP_TYPE_Q5_K:
      return {"Q5_K", 256, 176};
    case BP_TYPE_Q6_K:
      return {"Q6_K", 256, 210};
    case BP_TYPE_IQ4_NL:
      return {"IQ4_NL", 32, 18};
    case BP_TYPE_IQ4_XS:
      return {"IQ4_XS", 256, 136};
    case BP_TYPE_MXFP4:
      return {"MXFP4", 32, 17};
    default:
      return {"NONE", 0, 0};
  }
}

constexpr bp_type kEnd = 64;  // above all that `describe` knows
constexpr std::array<TypeInfo, kEnd> kAll = [] {
  std::array<TypeInfo, kEnd> all{};
  for (bp_type type = 0; type < kEnd; ++type) all[type] = describe(type);
  return all;
}();

}  // namespace types

// By a table, because every tensor of every op asks.
constexpr const TypeInfo& type_info(bp_type type) noexcept {
  return types::kAll[type < types::kEnd ? type : bp_type{BP_TYPE_NONE}];
}

constexpr bool is_quantized(bp_type type) noexcept { return type_info(type).block_elements > 1; }

// A type of activations.
constexpr bool is_float(bp_type type) noexcept { return type >= BP_TYPE_F64 && type <= BP_TYPE_BF16; }

// Types that no set can hold (256 and above) are left out.
constexpr bp_type_set type_set(std::initializer_list<bp_type> types) noexcept {
  bp_type_set set{};
  for (const bp_type type : types) {
    if (type < 256) set.bits[type / 64] |= std::uint64_t{1} << type % 64;
  }
  return set;
}

constexpr bool has_type(const bp_type_set& set, bp_type type) noexcept {
  return type < 256 && (set.bits[type / 64] >> type % 64 & 1) != 0;
}

// ---- Arithmetic: nothing where the result doesn't fit

using Bytes = std::optional<std::uint64_t>;

constexpr Bytes checked_multiply(std::uint64_t a, std::uint64_t b) noexcept {
  if (((a | b) >> 32) == 0) return a * b;  // without the division, which every dimension of every tensor would cost
  if (b != 0 && a > std::numeric_limits<std::uint64_t>::max() / b) return std::nullopt;
  return a * b;
}

constexpr Bytes checked_add(std::uint64_t a, std::uint64_t b) noexcept {
  if (a > std::numeric_limits<std::uint64_t>::max() - b) return std::nullopt;
  return a + b;
}

// Bytes of `elements` values one after another; nothing when they aren't whole blocks.
constexpr Bytes row_bytes(bp_type type, std::uint64_t elements) noexcept {
  const TypeInfo info = type_info(type);
  if (info.block_elements == 0 || elements % info.block_elements != 0) return std::nullopt;
  return checked_multiply(elements / info.block_elements, info.block_bytes);
}

// ---- Tensors

// An optional tensor that wasn't given.
constexpr bool is_absent(const bp_tensor& tensor) noexcept { return tensor.type == BP_TYPE_NONE; }

constexpr bool is_well_formed(const bp_tensor& tensor) noexcept {
  if (type_info(tensor.type).block_elements == 0 || tensor.rank < 1 || tensor.rank > 4) return false;
  for (std::uint32_t i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] < 0) return false;
  }
  return true;
}

constexpr bool is_empty(const bp_tensor& tensor) noexcept {
  for (std::uint32_t i = 0; i < tensor.rank && i < 4; ++i) {
    if (tensor.shape[i] == 0) return true;
  }
  return false;
}

constexpr std::optional<std::uint64_t> element_count(const bp_tensor& tensor) noexcept {
  if (!is_well_formed(tensor)) return std::nullopt;
  std::optional<std::uint64_t> count = 1;
  for (std::uint32_t i = 0; i < tensor.rank && count; ++i) {
    count = checked_multiply(*count, static_cast<std::uint64_t>(tensor.shape[i]));
  }
  return count;
}

// Elements in the innermost dimension.
constexpr std::int64_t row_length(const bp_tensor& tensor) noexcept { return tensor.shape[tensor.rank - 1]; }

// Product of all dimensions but the innermost: the rows of the tensor seen as a matrix. Of a well-formed tensor.
constexpr std::int64_t row_count(const bp_tensor& tensor) noexcept {
  std::int64_t rows = 1;
  for (std::uint32_t i = 0; i + 1 < tensor.rank; ++i) rows *= tensor.shape[i];
  return rows;
}

// Whether the elements of a row lie next to each other. The others' strides may be anything.
constexpr bool has_contiguous_rows(const bp_tensor& tensor) noexcept {
  return is_well_formed(tensor) && (tensor.stride[tensor.rank - 1] == type_info(tensor.type).block_bytes ||
                                    row_length(tensor) <= type_info(tensor.type).block_elements);
}

// Whether the whole tensor is one run of bytes in row-major order.
constexpr bool is_contiguous(const bp_tensor& tensor) noexcept {
  if (!is_well_formed(tensor)) return false;
  if (is_empty(tensor)) return true;
  Bytes expected = row_bytes(tensor.type, static_cast<std::uint64_t>(row_length(tensor)));
  if (!expected || !has_contiguous_rows(tensor)) return false;
  for (std::uint32_t i = tensor.rank - 1; i-- > 0;) {
    if (tensor.shape[i] != 1 && static_cast<std::uint64_t>(tensor.stride[i]) != *expected) return false;
    expected = checked_multiply(*expected, static_cast<std::uint64_t>(tensor.shape[i]));
    if (!expected) return false;
  }
  return true;
}

// Bytes from the first element to the end of the last one; 0 for an empty tensor. Nothing for a malformed tensor, a
// negative stride, a partial block or an overflow.
constexpr Bytes extent_bytes(const bp_tensor& tensor) noexcept {
  if (!is_well_formed(tensor)) return std::nullopt;
  if (is_empty(tensor)) return 0;
  const TypeInfo& info = type_info(tensor.type);
  std::uint64_t extent = info.block_bytes;
  for (std::uint32_t i = 0; i < tensor.rank; ++i) {
    auto count = static_cast<std::uint64_t>(tensor.shape[i]);
    const auto stride = static_cast<std::uint64_t>(tensor.stride[i]);  // a negative one is huge
    if (i == tensor.rank - 1 && info.block_elements > 1) {
      if (count % info.block_elements != 0) return std::nullopt;
      count /= info.block_elements;
    }
    if (((count | stride) >> 31) == 0 && (extent >> 62) == 0) {  // nearly always
      extent += (count - 1) * stride;
      continue;
    }
    if (tensor.stride[i] < 0) return std::nullopt;
    const Bytes step = checked_multiply(count - 1, stride);
    const Bytes sum = step ? checked_add(extent, *step) : std::nullopt;
    if (!sum) return std::nullopt;
    extent = *sum;
  }
  return extent;
}

// Whether every element lies inside a buffer of that many bytes.
constexpr bool fits(const bp_tensor& tensor, std::uint64_t buffer_bytes) noexcept {
  const Bytes extent = extent_bytes(tensor);
  const Bytes end = extent ? checked_add(tensor.offset, *extent) : std::nullopt;
  return end && *end <= buffer_bytes;
}

}  // namespace backplane::plugin

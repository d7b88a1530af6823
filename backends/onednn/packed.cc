#include "backends/onednn/packed.h"

#include <cstring>
#include <string>

namespace backplane::onednn {
namespace {

std::uint64_t must(plugin::Bytes bytes) {
  plugin::require(bytes.has_value() && *bytes <= INT64_MAX, "a weight of impossible size");
  return *bytes;
}

bool is_float_weight(bp_type type) { return type == BP_TYPE_F32 || type == BP_TYPE_F16 || type == BP_TYPE_BF16; }

std::uint64_t panel_bytes(const bp_weight_part& part) {
  if (is_float_weight(part.type)) {
    return must(plugin::checked_multiply(part.columns, kLanes * plugin::type_info(part.type).block_bytes));
  }
  const Format* format = format_of(part.type);
  if (format == nullptr) {
    plugin::refuse(std::string("weights in ") + plugin::type_info(part.type).name + " are not packed");
  }
  if ((part.flags & BP_WEIGHT_TRANSPOSED) != 0) plugin::refuse("quantized weights that are stored transposed");
  const std::uint64_t per_record = static_cast<std::uint64_t>(format->blocks * kBlock);
  plugin::require(part.columns % per_record == 0, "the rows of a quantized weight are not whole blocks");
  const auto record = static_cast<std::uint64_t>(format->super_bytes + format->blocks * format->block_bytes);
  return must(plugin::checked_multiply(part.columns / per_record, record));
}

// `lanes` rows of `columns` elements, one after another in `rows`, to lanes `lane` and following of a panel [C][8]; and
// back. Files promise no alignment.
template <class Element>
void interleave(const std::byte* rows, std::int64_t columns, std::int64_t lane, std::int64_t lanes, std::byte* panel) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Element));
  if (lanes == kLanes) {  // whole lines are written, from eight rows that are read side by side
    for (std::int64_t c = 0; c < columns; ++c, rows += kBytes, panel += kLanes * kBytes) {
      Element line[kLanes];
      for (std::int64_t i = 0; i < kLanes; ++i) std::memcpy(line + i, rows + i * columns * kBytes, sizeof(Element));
      std::memcpy(panel, line, sizeof(line));
    }
    return;
  }
  for (std::int64_t i = 0; i < lanes; ++i) {
    for (std::int64_t c = 0; c < columns; ++c, rows += kBytes) {
      std::memcpy(panel + (c * kLanes + lane + i) * kBytes, rows, sizeof(Element));
    }
  }
}
template <class Element>
void separate(const std::byte* panel, std::int64_t columns, std::int64_t lane, std::int64_t lanes, std::byte* rows) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Element));
  for (std::int64_t i = 0; i < lanes; ++i) {
    for (std::int64_t c = 0; c < columns; ++c, rows += kBytes) {
      std::memcpy(rows, panel + (c * kLanes + lane + i) * kBytes, sizeof(Element));
    }
  }
}

// Rows that are worth a thread of their own.
std::uint64_t grain_of(std::uint64_t row_bytes) { return 1 + (std::uint64_t{1} << 16) / (1 + row_bytes); }

}  // namespace

std::uint64_t PackedWeight::bytes_for(const bp_weight_part& part) {
  if ((part.flags & ~std::uint32_t{BP_WEIGHT_TRANSPOSED}) != 0) plugin::refuse("an unknown flag of a weight's part");
  const std::uint64_t panels = must(plugin::checked_add(part.rows, kLanes - 1)) / kLanes;
  return must(plugin::checked_multiply(panels, panel_bytes(part)));
}

PackedWeight::PackedWeight(const bp_weight_part& part, SharedMemory& memory)
    : type_(part.type),
      format_(format_of(part.type)),
      rows_(static_cast<std::int64_t>(part.rows)),
      columns_(static_cast<std::int64_t>(part.columns)),
      transposed_((part.flags & BP_WEIGHT_TRANSPOSED) != 0),
      stride_(0),
      data_(memory.take(bytes_for(part))) {
  stride_ = static_cast<std::int64_t>(panel_bytes(part));
  // Rows beyond the last one are zeros; the others are written by import.
  if (rows_ % kLanes != 0) std::memset(data_.data() + rows_ / kLanes * stride_, 0, static_cast<std::size_t>(stride_));
}

Panels PackedWeight::panels(std::int64_t first, std::int64_t count) const {
  return {reinterpret_cast<const std::uint8_t*>(data_.data()) + first * stride_, stride_, count};
}

std::uint64_t PackedWeight::stored_row_bytes() const {
  return must(plugin::row_bytes(type_, static_cast<std::uint64_t>(transposed_ ? rows_ : columns_)));
}

void PackedWeight::check_range(std::uint64_t row, std::uint64_t count, std::uint64_t bytes) const {
  const auto stored = static_cast<std::uint64_t>(transposed_ ? columns_ : rows_);
  plugin::require(row <= stored && count <= stored - row, "rows that the part hasn't");
  plugin::require(bytes == must(plugin::checked_multiply(count, stored_row_bytes())),
                  "another number of bytes than the rows have");
}

// copy(packed, outside, bytes) for every piece of stored float rows that are columns of the matrix, or
// copy(record, outside, lane) for quantized ones: `outside` is the offset in the stored rows.
template <class Copy>
void PackedWeight::move_rows(std::uint64_t row, std::uint64_t count, Copy&& copy) const {
  const std::uint64_t row_bytes = stored_row_bytes();
  const std::int64_t element = plugin::type_info(type_).block_bytes;
  plugin::parallel_for(count, grain_of(row_bytes), [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    for (std::uint64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::int64_t>(row + i);
      std::uint64_t outside = i * row_bytes;
      if (transposed_) {  // one column of the matrix: eight rows at a time
        for (std::int64_t r = 0; r < rows_; r += kLanes) {
          const std::int64_t lanes = std::min(kLanes, rows_ - r);
          copy(data_.data() + r / kLanes * stride_ + at * kLanes * element, outside, lanes * element);
          outside += static_cast<std::uint64_t>(lanes * element);
        }
        continue;
      }
      const std::int64_t lane = at % kLanes;
      std::byte* panel = data_.data() + at / kLanes * stride_;
      const std::int64_t record = format_->super_bytes + format_->blocks * format_->block_bytes;
      const std::uint64_t file = must(plugin::row_bytes(type_, static_cast<std::uint64_t>(format_->blocks * kBlock)));
      for (std::int64_t c = 0; c < columns_; c += format_->blocks * kBlock, panel += record, outside += file) {
        copy(panel, outside, lane);
      }
    }
  });
}

// copy(panel, outside, lane, lanes) for every panel that has some of these rows of floats.
template <class Copy>
void PackedWeight::move_panels(std::uint64_t row, std::uint64_t count, Copy&& copy) const {
  if (count == 0) return;
  const std::uint64_t row_bytes = stored_row_bytes(), first = row / kLanes, last = (row + count - 1) / kLanes;
  plugin::parallel_for(last - first + 1, grain_of(kLanes * row_bytes),
                       [&](std::uint64_t begin, std::uint64_t end, unsigned) {
                         for (std::uint64_t p = first + begin; p < first + end; ++p) {
                           const std::uint64_t from = std::max(row, p * kLanes);
                           const std::uint64_t to = std::min(row + count, (p + 1) * kLanes);
                           copy(data_.data() + static_cast<std::int64_t>(p) * stride_, (from - row) * row_bytes,
                                static_cast<std::int64_t>(from % kLanes), static_cast<std::int64_t>(to - from));
                         }
                       });
}

void PackedWeight::import_rows(std::uint64_t row, std::uint64_t count, const std::byte* data, std::uint64_t bytes) {
  check_range(row, count, bytes);
  if (format_ == nullptr && !transposed_) {
    return move_panels(row, count, [&](std::byte* panel, std::uint64_t outside, std::int64_t lane, std::int64_t lanes) {
      if (type_ == BP_TYPE_F32) return interleave<std::uint32_t>(data + outside, columns_, lane, lanes, panel);
      interleave<std::uint16_t>(data + outside, columns_, lane, lanes, panel);
    });
  }
  move_rows(row, count, [&](std::byte* packed, std::uint64_t outside, std::int64_t detail) {
    if (format_ != nullptr) return pack_record(*format_, data + outside, packed, detail);
    std::memcpy(packed, data + outside, static_cast<std::size_t>(detail));
  });
}

void PackedWeight::export_rows(std::uint64_t row, std::uint64_t count, std::byte* data, std::uint64_t bytes) const {
  check_range(row, count, bytes);
  if (format_ == nullptr && !transposed_) {
    return move_panels(row, count, [&](std::byte* panel, std::uint64_t outside, std::int64_t lane, std::int64_t lanes) {
      if (type_ == BP_TYPE_F32) return separate<std::uint32_t>(panel, columns_, lane, lanes, data + outside);
      separate<std::uint16_t>(panel, columns_, lane, lanes, data + outside);
    });
  }
  move_rows(row, count, [&](std::byte* packed, std::uint64_t outside, std::int64_t detail) {
    if (format_ != nullptr) return unpack_record(*format_, packed, detail, data + outside);
    std::memcpy(data + outside, packed, static_cast<std::size_t>(detail));
  });
}

void PackedWeight::read_row(std::int64_t row, float* out) const {
  const std::byte* panel = data_.data() + row / kLanes * stride_;
  const std::int64_t lane = row % kLanes;
  if (format_ != nullptr) {
    const std::int64_t record = format_->super_bytes + format_->blocks * format_->block_bytes;
    const std::int64_t step = format_->blocks * kBlock;
    for (std::int64_t c = 0; c < columns_; c += step, panel += record) read_record(*format_, panel, lane, out + c);
    return;
  }
  for (std::int64_t c = 0; c < columns_; ++c) {
    if (type_ == BP_TYPE_F32) {
      out[c] = reinterpret_cast<const float*>(panel)[c * kLanes + lane];
      continue;
    }
    const std::uint16_t half = reinterpret_cast<const std::uint16_t*>(panel)[c * kLanes + lane];
    out[c] = type_ == BP_TYPE_F16 ? plugin::half_to_float(half) : plugin::bfloat_to_float(half);
  }
}

}  // namespace backplane::onednn

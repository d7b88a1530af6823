#include "core/device/reference.h"

#include <fmt/format.h>

#include <cstring>

#include "core/base/error.h"
#include "core/device/storage.h"

namespace backplane::device {
namespace {

constexpr const char* kName = "reference";

void check_size(const StoredMatrix& m) {
  const auto row = row_bytes(m.type, m.columns);
  if (!row || (m.rows != 0 && *row > m.data.size() / m.rows)) {
    throw Error(ErrorCode::kBadFile, fmt::format("{} bytes are too few for {} rows of {} values of type {}",
                                                 m.data.size(), m.rows, m.columns, dtype_name(m.type)));
  }
}

// Read-only data as a buffer of the reference: in place where it is aligned for its type, else as a copy.
Buffer readable(Device& reference, std::span<const std::byte> data, DType type) {
  const std::uint32_t alignment = is_quantized(type) ? 2 : dtype_info(type).block_bytes;
  if (reinterpret_cast<std::uintptr_t>(data.data()) % alignment == 0) {
    auto* address = const_cast<std::byte*>(data.data());  // imported as not writable
    if (auto buffer = reference.import_host({address, data.size()}, false)) return std::move(*buffer);
  }
  Buffer copy = reference.alloc(data.size(), "a conversion");
  reference.upload(copy, 0, data);
  return copy;
}

void run_unary(Device& reference, std::uint32_t code, const bp_tensor& x, const bp_tensor& out) {
  bp_unary_args args{};
  args.size = sizeof(args);
  args.x = x;
  args.out = out;
  bp_unary_args shapes = args;
  shapes.x.buffer = shapes.out.buffer = nullptr;
  bp_op_query query{};
  query.size = sizeof(query);
  query.code = code;
  query.layer = UINT32_MAX;
  query.smallest = query.largest = &shapes;
  query.features = code == BP_OP_COPY ? BP_FEATURE_STRIDED : 0;
  query.name = kName;
  const Support support = reference.supports(query);
  if (!support.yes) {
    throw Error(ErrorCode::kBadFile,
                fmt::format("can't convert type {}: {}", dtype_name(static_cast<DType>(x.type)), support.reason));
  }
  Buffer workspace;
  bp_op op{};
  op.size = sizeof(op);
  op.code = code;
  op.layer = UINT32_MAX;
  op.args = &args;
  op.name = kName;
  if (support.answer.workspace_bytes) {
    workspace = reference.alloc(support.answer.workspace_bytes, "a conversion's workspace");
    op.workspace = workspace.handle();
    op.workspace_bytes = support.answer.workspace_bytes;
  }
  reference.run(op);
  reference.sync();  // before the workspace goes
}

}  // namespace

void convert(Device& reference, const StoredMatrix& from, DType to, std::span<std::byte> out) {
  check_size(from);
  if (from.rows == 0 || from.columns == 0) return;
  if (from.type == to) {
    std::memcpy(out.data(), from.data.data(), out.size());
    return;
  }
  const auto rows = static_cast<std::int64_t>(from.rows), columns = static_cast<std::int64_t>(from.columns);
  const Buffer source = readable(reference, from.data, from.type);
  Buffer target = reference.alloc(out.size(), "a conversion");
  run_unary(reference, BP_OP_CAST, make_tensor(nullptr, from.type, {rows, columns}).abi(source.handle()),
            make_tensor(nullptr, to, {rows, columns}).abi(target.handle()));
  reference.download(target, 0, out);
}

std::vector<std::byte> convert(Device& reference, const StoredMatrix& from, DType to) {
  check_size(from);
  std::vector<std::byte> out(from.rows * from.columns * dtype_info(to).block_bytes);
  convert(reference, from, to, out);
  return out;
}

std::vector<std::byte> transpose(Device& reference, const StoredMatrix& from) {
  check_size(from);
  std::vector<std::byte> out(from.rows * from.columns * dtype_info(from.type).block_bytes);
  if (out.empty()) return out;
  const auto rows = static_cast<std::int64_t>(from.rows), columns = static_cast<std::int64_t>(from.columns);
  const Buffer source = readable(reference, from.data, from.type);
  Buffer target = reference.alloc(out.size(), "a transpose");
  Tensor view = make_tensor(nullptr, from.type, {columns, rows});
  view.stride[0] = dtype_info(from.type).block_bytes;
  view.stride[1] = columns * dtype_info(from.type).block_bytes;
  run_unary(reference, BP_OP_COPY, view.abi(source.handle()),
            make_tensor(nullptr, from.type, {columns, rows}).abi(target.handle()));
  reference.download(target, 0, out);
  return out;
}

}  // namespace backplane::device

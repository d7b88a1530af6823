#include "tests/conformance/side.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/abi_call.h"
#include "core/base/error.h"

namespace backplane::conformance {
namespace {

constexpr std::int64_t kGapElements = 3;

// Calls visit(offset in the tensor, offset in contiguous bytes, bytes) for each row.
template <class Visit>
void for_each_row(const bp_tensor& t, Visit&& visit) {
  const DTypeInfo& info = dtype_info(static_cast<DType>(t.type));
  const std::int64_t row = t.shape[t.rank - 1] / info.block_elements * info.block_bytes;
  std::int64_t rows = row == 0 ? 0 : 1;
  for (std::uint32_t d = 0; d + 1 < t.rank; ++d) rows *= t.shape[d];
  for (std::int64_t number = 0; number < rows; ++number) {
    std::int64_t offset = 0, rest = number;
    for (std::uint32_t d = t.rank - 1; d-- > 0;) {
      offset += rest % t.shape[d] * t.stride[d];
      rest /= t.shape[d];
    }
    visit(static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(number * row),
          static_cast<std::uint64_t>(row));
  }
}

std::uint64_t contiguous_bytes(const bp_tensor& t) {
  std::uint64_t total = 0;
  for_each_row(t, [&](auto, auto at, auto bytes) { total = at + bytes; });
  return total;
}

}  // namespace

bool has_streams(const device::Device& device) { return device.tables().stream->create != nullptr; }
bool has_weights(const device::Device& device) { return device.tables().weights->create != nullptr; }
bool has_kv(const device::Device& device) { return device.tables().kv->create != nullptr; }
bool has_graphs(const device::Device& device) { return device.tables().graph->capture_begin != nullptr; }
bool has_comm(const device::Device& device) { return device.tables().comm->create != nullptr; }
bool has_compile(const device::Device& device) { return device.tables().device->compile != nullptr; }

Side::Side(std::shared_ptr<device::Device> device, Role role, DType activation, bool own_stream)
    : device_(std::move(device)),
      role_(role),
      activation_(role == Role::kOracle ? DType::kF64 : activation),
      stream_(device_->stream()) {
  if (!own_stream || !has_streams(*device_)) return;
  AbiCall call;
  call.check(device_->tables().stream->create(device_->handle(), call.context(), &stream_), "stream.create");
  require(stream_ != nullptr, "stream.create: success without a stream");
  owns_stream_ = true;
}

// Buffers may only be freed when nothing uses them any more.
Side::~Side() {
  try {
    sync();
  } catch (const std::exception&) {  // told where it mattered
  }
  if (owns_stream_) device_->tables().stream->destroy(device_->handle(), stream_);
}

bp_tensor Side::layout(DType type, const Shape& shape, bool gaps, Slab& slab) {
  const DTypeInfo& info = dtype_info(type);
  bp_tensor t{};
  t.type = static_cast<bp_type>(type);
  t.rank = static_cast<std::uint32_t>(shape.size());
  std::fill(std::begin(t.shape), std::end(t.shape), 1);
  std::int64_t stride = info.block_bytes;
  for (std::uint32_t d = t.rank; d-- > 0;) {
    t.shape[d] = shape[d];
    t.stride[d] = stride;
    stride *= d + 1 == t.rank ? shape[d] / info.block_elements : shape[d];
    if (d == 1 && gaps) stride += kGapElements * info.block_bytes;
  }
  const std::uint64_t alignment = device_->caps().alignment;
  t.offset = (kGuard + alignment - 1) / alignment * alignment + (gaps ? info.block_bytes : 0);
  std::uint64_t extent = 0;
  for_each_row(t, [&](auto at, auto, auto bytes) { extent = std::max(extent, at + bytes); });
  slab.image.assign(t.offset + extent + kGuard + (gaps ? kGapElements * info.block_bytes : 0), kPoison);
  return t;
}

void Side::upload(Slab& slab) {
  if (!slab.buffer) slab.buffer = device_->alloc(slab.image.size(), "a tensor of a case");
  AbiCall call;
  call.check(device_->tables().buffer->upload(device_->handle(), stream_, call.context(), slab.buffer.handle(), 0,
                                              slab.image.data(), slab.image.size()),
             "upload");
  sync();
}

bp_tensor Side::raw(DType type, const Shape& shape, std::span<const std::byte> contiguous, bool gaps) {
  auto slab = std::make_unique<Slab>();
  bp_tensor t = layout(type, shape, gaps, *slab);
  for_each_row(t, [&](auto at, auto from, auto bytes) {
    std::memcpy(slab->image.data() + t.offset + at, contiguous.data() + from, bytes);
  });
  upload(*slab);
  t.buffer = slab->buffer.handle();
  slabs_.push_back(std::move(slab));
  return t;
}

bp_tensor Side::place(DType type, const Array& values, bool gaps) {
  return raw(type, values.shape, encode(type, values), gaps);
}

bp_tensor Side::output(DType type, const Shape& shape, bool gaps) {
  auto slab = std::make_unique<Slab>();
  bp_tensor t = layout(type, shape, gaps, *slab);
  upload(*slab);
  t.buffer = slab->buffer.handle();
  slab->outputs.push_back(t);
  slabs_.push_back(std::move(slab));
  return t;
}

Side::Slab& Side::slab_of(bp_buffer buffer) {
  for (auto& slab : slabs_) {
    if (slab->buffer.handle() == buffer) return *slab;
  }
  throw Error(ErrorCode::kInternal, "a tensor of another side");
}

void Side::changes(const bp_tensor& tensor) { slab_of(tensor.buffer).outputs.push_back(tensor); }

void Side::sync() {
  if (!stream_) return;
  AbiCall call;
  call.check(device_->tables().stream->sync(device_->handle(), stream_, call.context()), "sync");
}

std::vector<std::byte> Side::download(const Slab& slab) {
  std::vector<std::byte> found(slab.image.size());
  AbiCall call;
  call.check(device_->tables().buffer->download(device_->handle(), stream_, call.context(), slab.buffer.handle(), 0,
                                                found.data(), found.size()),
             "download");
  sync();
  return found;
}

std::vector<std::byte> Side::bytes(const bp_tensor& tensor) {
  const std::vector<std::byte> found = download(slab_of(tensor.buffer));
  std::vector<std::byte> out(contiguous_bytes(tensor));
  for_each_row(tensor, [&](auto at, auto to, auto count) {
    std::memcpy(out.data() + to, found.data() + tensor.offset + at, count);
  });
  return out;
}

Array Side::read(const bp_tensor& tensor) {
  return decode(static_cast<DType>(tensor.type), Shape(tensor.shape, tensor.shape + tensor.rank), bytes(tensor));
}

void Side::write(const bp_tensor& tensor, std::span<const std::byte> contiguous) {
  Slab& slab = slab_of(tensor.buffer);
  std::memcpy(slab.image.data() + tensor.offset, contiguous.data(), contiguous.size());
  upload(slab);
}

void Side::check_guards() {
  for (const auto& slab : slabs_) {
    const std::vector<std::byte> found = download(*slab);
    std::vector<std::byte>& image = slab->image;
    for (const bp_tensor& t : slab->outputs) {
      for_each_row(t, [&](auto at, auto, auto bytes) {
        std::memcpy(image.data() + t.offset + at, found.data() + t.offset + at, bytes);
      });
    }
    const auto [wrong, expected] = std::mismatch(found.begin(), found.end(), image.begin());
    if (wrong == found.end()) continue;
    throw Failed{fmt::format(
        "memory outside its results was written: byte {} of a buffer of {}, whose result is {}", wrong - found.begin(),
        found.size(),
        slab->outputs.empty()
            ? "nothing, it is an input"
            : fmt::format("{} bytes at {}", contiguous_bytes(slab->outputs.front()), slab->outputs.front().offset))};
  }
}

bp_op_query Side::question(std::uint32_t code, const void* smallest, const void* largest, std::uint64_t features) {
  bp_op_query query{};
  query.size = sizeof(query);
  query.code = code;
  query.layer = UINT32_MAX;
  query.smallest = smallest;
  query.largest = largest;
  query.features = features | (gaps_ ? std::uint64_t{BP_FEATURE_STRIDED} : 0);
  query.name = "conform";
  answer_ = {};
  answer_.size = sizeof(answer_);
  AbiCall call;
  const bp_status status = device_->tables().device->supports(device_->handle(), call.context(), &query, &answer_);
  const std::string op(device::op_name(code));
  if (is_oracle()) {
    if (status != BP_OK) throw Error(ErrorCode::kInternal, "the oracle refuses " + op + ": " + call.text());
    return query;
  }
  if (status == BP_UNSUPPORTED) {
    require(!call.text().empty(), op + " was refused without a reason (host->fail was not called)");
    throw Skipped{call.text()};
  }
  require(status == BP_OK,
          fmt::format("supports answered {} to a proper question about {}: {}", status_text(status), op, call.text()));
  require(answer_.size == sizeof(answer_), "supports changed the size of its answer");
  if (const std::uint64_t missing = query.features & ~answer_.features) {
    throw Skipped{fmt::format("{} declares features {:#x}, without {:#x}", op, answer_.features, missing)};
  }
  const auto wanted = static_cast<DType>(answer_.activation_type);
  if (wanted == DType::kNone || wanted == activation_) return query;
  require(backplane::is_float(wanted), op + " wants activations of a type that isn't one for activations");
  throw Retyped{wanted};
}

Side::Ready Side::make_ready(const bp_op_query& query) {
  Ready op;
  op.code = query.code;
  op.workspace_bytes = answer_.workspace_bytes;
  if (op.workspace_bytes > 0) op.workspace = output(DType::kU8, {static_cast<std::int64_t>(op.workspace_bytes)});
  op.prepared = device_->prepare(query);
  if (op.prepared) {
    keep(std::shared_ptr<void>(op.prepared, [device = device_.get()](void* prepared) {
      device->unprepare(static_cast<bp_prepared>(prepared));
    }));
  }
  return op;
}

bp_op Side::op(const Ready& ready_op, const void* args) const {
  bp_op op{};
  op.size = sizeof(op);
  op.code = ready_op.code;
  op.layer = UINT32_MAX;
  op.args = args;
  op.prepared = ready_op.prepared;
  op.workspace = ready_op.workspace.buffer;
  op.workspace_offset = ready_op.workspace.offset;
  op.workspace_bytes = ready_op.workspace_bytes;
  op.name = "conform";
  return op;
}

bp_status Side::start(const Ready& ready_op, const void* args, std::string& reason) {
  const bp_op given = op(ready_op, args);
  AbiCall call;
  const bp_status status = device_->tables().device->run(device_->handle(), stream_, call.context(), &given);
  reason = call.text();
  return status;
}

void Side::expect_ok(const Ready& op, bp_status status, const std::string& reason) const {
  if (status == BP_OK) return;
  const std::string name(device::op_name(op.code));
  if (is_oracle()) throw Error(ErrorCode::kInternal, "the oracle fails at " + name + ": " + reason);
  throw Failed{fmt::format("{} was agreed to and then failed with {}: {}", name, status_text(status), reason)};
}

}  // namespace backplane::conformance

#include "core/device/device.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "core/base/abi_call.h"
#include "core/base/error.h"

namespace backplane::device {
namespace {

std::string printable(const char* text, std::size_t longest) {
  std::string out(text, ::strnlen(text, longest));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return out;
}

void require(bool good, const std::string& device, std::string_view what) {
  if (!good)
    throw Error(ErrorCode::kDevice, fmt::format("the plugin reports {}", what), device, "report it to its author");
}

}  // namespace

Buffer::Buffer(std::shared_ptr<Device> device, bp_buffer handle, std::uint64_t bytes, std::byte* host)
    : device_(std::move(device)), handle_(handle), bytes_(bytes), host_(host) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  std::swap(bytes_, other.bytes_);
  std::swap(host_, other.host_);
  return *this;
}

Buffer::~Buffer() {
  if (handle_) device_->tables().buffer->free(device_->handle(), handle_);
}

std::shared_ptr<Device> Device::open(const PluginRef& plugin, std::uint32_t index, bool deterministic,
                                     const std::string& options) {
  std::shared_ptr<Device> device(new Device);
  device->tables_ = plugin.tables;
  device->name_ = fmt::format("{}:{}", plugin.name, index);
  bp_open_params params{};
  params.size = sizeof(params);
  params.flags = deterministic ? BP_OPEN_DETERMINISTIC : 0;
  params.options = options.empty() ? nullptr : options.c_str();
  AbiCall call;
  bp_device handle = nullptr;
  call.check(plugin.tables->driver->open(call.context(), index, &params, &handle), device->where("open"));
  require(handle != nullptr, device->name_, "success without a device");
  device->handle_ = handle;
  device->read_caps();
  device->name_ = fmt::format("{}:{}", plugin.name, printable(device->caps_.name, sizeof(device->caps_.name)));
  if (plugin.tables->stream->create) {
    AbiCall stream_call;
    call.check(plugin.tables->stream->create(handle, stream_call.context(), &device->stream_), device->where("stream"));
    require(device->stream_ != nullptr, device->name_, "success without a stream");
    require(plugin.tables->stream->sync && plugin.tables->stream->destroy, device->name_,
            "a stream table without sync");
  }
  return device;
}

Device::~Device() {
  if (stream_) tables_->stream->destroy(handle_, stream_);
  if (handle_) tables_->driver->close(handle_);
}

bp_caps Device::current_caps() const {
  bp_caps caps{};
  caps.size = sizeof(caps);
  AbiCall call;
  call.check(tables_->device->caps(handle_, call.context(), &caps), where("caps"));
  return caps;
}

void Device::read_caps() {
  caps_ = current_caps();
  caps_.name[sizeof(caps_.name) - 1] = 0;
  caps_.description[sizeof(caps_.description) - 1] = 0;
  if (caps_.alignment == 0) caps_.alignment = 1;
  require((caps_.alignment & (caps_.alignment - 1)) == 0 && caps_.alignment <= (1u << 20), name_,
          "an alignment that isn't a power of two");
  require(is_float(activation_type()), name_, "an activation type that isn't a floating point type");
  require(contains(caps_.activation_types, activation_type()), name_,
          "a preferred activation type that it doesn't take");
  require(!host_visible() || tables_->buffer->map, name_, "host-visible memory without a map function");
}

bool contains(const bp_type_set& set, DType type) {
  const auto t = static_cast<std::uint32_t>(type);
  return t < 256 && ((set.bits[t / 64] >> (t % 64)) & 1) != 0;
}

bool Device::takes_weight_type(DType type) const { return contains(caps_.weight_types, type); }
bool Device::takes_kv_type(DType type) const { return contains(caps_.kv_types, type); }

Buffer Device::alloc(std::uint64_t bytes, std::string_view purpose) {
  const std::string place =
      fmt::format("{}: {:.1f} MiB for {}", name_, static_cast<double>(bytes) / (1 << 20), purpose);
  if (caps_.max_buffer_bytes != 0 && bytes > caps_.max_buffer_bytes) {
    throw Error(ErrorCode::kCapacity, "more than one buffer of the device can hold", place,
                "use a smaller model or --ctx");
  }
  AbiCall call;
  bp_buffer handle = nullptr;
  const std::uint64_t size = bytes == 0 ? 1 : bytes;
  call.check(tables_->buffer->alloc(handle_, call.context(), size, BP_MEMORY_DEVICE, &handle), place);
  require(handle != nullptr, name_, "success without a buffer");
  Buffer buffer(shared_from_this(), handle, size, nullptr);
  if (!host_visible()) return buffer;
  void* address = nullptr;
  AbiCall map_call;
  map_call.check(tables_->buffer->map(handle_, map_call.context(), handle, &address), where("map"));
  require(address != nullptr, name_, "a mapped buffer without an address");
  buffer.host_ = static_cast<std::byte*>(address);
  return buffer;
}

std::optional<Buffer> Device::import_host(std::span<std::byte> range, bool writable) {
  if (!tables_->buffer->import_host || range.empty()) return std::nullopt;
  AbiCall call;
  bp_buffer handle = nullptr;
  const bp_status status =
      tables_->buffer->import_host(handle_, call.context(), range.data(), range.size(), writable ? 1 : 0, &handle);
  if (status != BP_OK) return std::nullopt;  // a refusal is no failure: the caller copies instead
  require(handle != nullptr, name_, "success without a buffer");
  return Buffer(shared_from_this(), handle, range.size(), range.data());
}

void Device::upload_async(const Buffer& to, std::uint64_t offset, std::span<const std::byte> data) {
  if (data.empty()) return;
  AbiCall call;
  call.check(tables_->buffer->upload(handle_, stream_, call.context(), to.handle(), offset, data.data(), data.size()),
             where("upload"));
}

void Device::upload(const Buffer& to, std::uint64_t offset, std::span<const std::byte> data) {
  upload_async(to, offset, data);
  sync();
}

void Device::download(const Buffer& from, std::uint64_t offset, std::span<std::byte> data) {
  if (data.empty()) return;
  AbiCall call;
  call.check(
      tables_->buffer->download(handle_, stream_, call.context(), from.handle(), offset, data.data(), data.size()),
      where("download"));
  sync();
}

void Device::sync() {
  if (!stream_) return;
  AbiCall call;
  call.check(tables_->stream->sync(handle_, stream_, call.context()), where("sync"));
}

Support Device::supports(const bp_op_query& query) {
  Support support;
  support.answer.size = sizeof(bp_support);
  AbiCall call;
  const bp_status status = tables_->device->supports(handle_, call.context(), &query, &support.answer);
  if (status != BP_OK) {
    support.reason = call.text();
    if (support.reason.empty()) support.reason = status_text(status);
    if (status == BP_DEVICE_LOST) call.check(status, where("supports"));
    return support;
  }
  const std::uint64_t missing = query.features & ~support.answer.features;
  if (missing != 0) {
    support.reason = fmt::format("does not honor attributes {:#x} of {}", missing, op_name(query.code));
    return support;
  }
  const auto activation = static_cast<DType>(support.answer.activation_type);
  require(activation == DType::kNone || is_float(activation), name_,
          "an activation type that isn't a floating point type");
  support.yes = true;
  return support;
}

void Device::run(const bp_op& op) {
  AbiCall call;
  const bp_status status = tables_->device->run(handle_, stream_, call.context(), &op);
  if (status == BP_OK) return;
  call.check(status, where(fmt::format("{} {}", op_name(op.code), op.name ? op.name : "")));
}

bp_prepared Device::prepare(const bp_op_query& query) {
  if (!tables_->device->prepare || !tables_->device->unprepare) return nullptr;
  AbiCall call;
  bp_prepared prepared = nullptr;
  call.check(tables_->device->prepare(handle_, call.context(), &query, &prepared), where("prepare"));
  return prepared;
}

void Device::unprepare(bp_prepared prepared) noexcept {
  if (prepared) tables_->device->unprepare(handle_, prepared);
}

std::string_view op_name(std::uint32_t code) {
  switch (code) {
    case BP_OP_EMBED:
      return "EMBED";
    case BP_OP_NORM:
      return "NORM";
    case BP_OP_LINEAR:
      return "LINEAR";
    case BP_OP_ROPE:
      return "ROPE";
    case BP_OP_KV_WRITE:
      return "KV_WRITE";
    case BP_OP_ATTN_PREFILL:
      return "ATTN_PREFILL";
    case BP_OP_ATTN_DECODE:
      return "ATTN_DECODE";
    case BP_OP_ACT:
      return "ACT";
    case BP_OP_GLU:
      return "GLU";
    case BP_OP_ADD:
      return "ADD";
    case BP_OP_MUL:
      return "MUL";
    case BP_OP_SCALE:
      return "SCALE";
    case BP_OP_GATHER_ROWS:
      return "GATHER_ROWS";
    case BP_OP_CAST:
      return "CAST";
    case BP_OP_COPY:
      return "COPY";
    case BP_OP_FILL:
      return "FILL";
    case BP_OP_SOFTCAP:
      return "SOFTCAP";
    case BP_OP_TOPK:
      return "TOPK";
    case BP_OP_SAMPLE:
      return "SAMPLE";
    case BP_OP_ADVANCE:
      return "ADVANCE";
    case BP_OP_ADD_NORM:
      return "ADD_NORM";
    case BP_OP_QKV_ROPE_WRITE:
      return "QKV_ROPE_WRITE";
    case BP_OP_GATEUP_GLU:
      return "GATEUP_GLU";
    case BP_OP_LINEAR_ADD:
      return "LINEAR_ADD";
    case BP_OP_HEAD_ARGMAX:
      return "HEAD_ARGMAX";
    default:
      return "an unknown op";
  }
}

}  // namespace backplane::device

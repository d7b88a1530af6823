#include "core/device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

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
  device->handle_ = device->create<bp_device>("open", [&](bp_context context, bp_device* handle) {
    return plugin.tables->driver->open(context, index, &params, handle);
  });
  device->read_caps();
  constexpr std::uint64_t kPromised = BP_CAP_DETERMINISTIC | BP_CAP_BATCH_INVARIANT;
  require(!deterministic || (device->caps_.flags & kPromised) == kPromised, device->name_,
          "a deterministic device without both capabilities of one");
  device->name_ = fmt::format("{}:{}", plugin.name, printable(device->caps_.name, sizeof(device->caps_.name)));
  const bp_stream_table& streams = *plugin.tables->stream;
  if (streams.create && streams.destroy && streams.sync) {
    device->stream_ = device->create<bp_stream>("stream", [&](bp_context context, bp_stream* stream) {
      return streams.create(device->handle_, context, stream);
    });
  }
  return device;
}

Device::~Device() {
  if (stream_) tables_->stream->destroy(handle_, stream_);
  if (handle_) tables_->driver->close(handle_);
}

void Device::finish(const AbiCall& abi, bp_status status, std::string_view what) const {
  if (status == BP_DEVICE_LOST) note_loss(abi.text());
  if (status != BP_OK) abi.check(status, where(what));
}

void Device::note_loss(const std::string& text) const {
  const std::lock_guard lock(loss_mutex_);
  if (lost_) return;
  loss_ = text;
  lost_ = true;
}

bool Device::is_yes(const AbiCall& abi, bp_status status, std::string_view what) const {
  const bool no = status == BP_UNSUPPORTED || status == BP_INVALID || status == BP_UNAVAILABLE;
  if (!no) finish(abi, status, what);
  return status == BP_OK;
}

void Device::throw_nonsense(std::string_view nonsense, std::string_view what) const {
  throw Error(ErrorCode::kDevice, fmt::format("the plugin reports {}", nonsense), where(what),
              "report it to its author");
}

bp_caps Device::current_caps() const {
  bp_caps caps{};
  caps.size = sizeof(caps);
  call("caps", [&](bp_context context) { return tables_->device->caps(handle_, context, &caps); });
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

bool Device::shares_memory_with(const Device& other) const {
  if (name_ == other.name_) return true;  // one of a plugin's devices, opened twice
  if ((caps_.flags & other.caps_.flags & BP_CAP_UNIFIED) != 0) return true;
  const auto& id = caps_.memory_id;
  const bool known = std::any_of(std::begin(id), std::end(id), [](std::uint8_t byte) { return byte != 0; });
  return known && std::equal(std::begin(id), std::end(id), std::begin(other.caps_.memory_id));
}

bool contains(const bp_type_set& set, DType type) {
  const auto t = static_cast<std::uint32_t>(type);
  return t < 256 && ((set.bits[t / 64] >> (t % 64)) & 1) != 0;
}

bool Device::takes_weight_type(DType type) const { return contains(caps_.weight_types, type); }
bool Device::takes_kv_type(DType type) const { return contains(caps_.kv_types, type); }

Buffer Device::alloc(std::uint64_t bytes, std::string_view purpose) {
  const std::string place = fmt::format("{:.1f} MiB for {}", static_cast<double>(bytes) / (1 << 20), purpose);
  if (caps_.max_buffer_bytes != 0 && bytes > caps_.max_buffer_bytes) {
    throw Error(ErrorCode::kCapacity, "more than one buffer of the device can hold", where(place),
                "use a smaller model or --ctx");
  }
  const std::uint64_t size = bytes == 0 ? 1 : bytes;
  const auto handle = create<bp_buffer>(place, [&](bp_context context, bp_buffer* made) {
    return tables_->buffer->alloc(handle_, context, size, BP_MEMORY_DEVICE, made);
  });
  Buffer buffer(shared_from_this(), handle, size, nullptr);
  if (!host_visible()) return buffer;
  buffer.host_ =
      static_cast<std::byte*>(create<void*>(fmt::format("map of {}", place), [&](bp_context context, void** address) {
        return tables_->buffer->map(handle_, context, handle, address);
      }));
  return buffer;
}

std::optional<Buffer> Device::alloc_pinned(std::uint64_t bytes) {
  if (!tables_->buffer->map) return std::nullopt;
  const std::uint64_t size = std::max<std::uint64_t>(1, bytes);
  bp_buffer handle = nullptr;
  const bool has_some = accepts("pinned memory", [&](bp_context context) {
    return tables_->buffer->alloc(handle_, context, size, BP_MEMORY_PINNED, &handle);
  });
  if (!has_some) return std::nullopt;
  if (!handle) throw_nonsense("success without a result", "pinned memory");
  Buffer buffer(shared_from_this(), handle, size, nullptr);
  buffer.host_ = static_cast<std::byte*>(create<void*>("map of pinned memory", [&](bp_context context, void** address) {
    return tables_->buffer->map(handle_, context, handle, address);
  }));
  return buffer;
}

std::optional<Buffer> Device::import_host(std::span<std::byte> range, bool writable) {
  if (!tables_->buffer->import_host || range.empty()) return std::nullopt;
  AbiCall abi;
  bp_buffer handle = nullptr;
  const bp_status status = attempt(abi, [&](bp_context context) {
    return tables_->buffer->import_host(handle_, context, range.data(), range.size(), writable ? 1 : 0, &handle);
  });
  if (status == BP_DEVICE_LOST) finish(abi, status, "import of host memory");
  if (status != BP_OK) return std::nullopt;  // a refusal is no failure: the caller copies instead
  if (!handle) throw_nonsense("success without a result", "import of host memory");
  return Buffer(shared_from_this(), handle, range.size(), range.data());
}

void Device::upload_async(const Buffer& to, std::uint64_t offset, std::span<const std::byte> data) {
  if (data.empty()) return;
  call("upload", [&](bp_context context) {
    return tables_->buffer->upload(handle_, stream_, context, to.handle(), offset, data.data(), data.size());
  });
}

void Device::upload(const Buffer& to, std::uint64_t offset, std::span<const std::byte> data) {
  if (data.empty()) return;
  copy("upload", [&](bp_context context) {
    return tables_->buffer->upload(handle_, stream_, context, to.handle(), offset, data.data(), data.size());
  });
}

void Device::download(const Buffer& from, std::uint64_t offset, std::span<std::byte> data) {
  if (data.empty()) return;
  copy("download", [&](bp_context context) {
    return tables_->buffer->download(handle_, stream_, context, from.handle(), offset, data.data(), data.size());
  });
}

void Device::download_async(const Buffer& from, std::uint64_t offset, std::span<std::byte> data) {
  if (data.empty()) return;
  call("download", [&](bp_context context) {
    return tables_->buffer->download(handle_, stream_, context, from.handle(), offset, data.data(), data.size());
  });
}

void Device::sync() {
  if (!stream_ && !lost_) return;
  try {
    call("sync", [&](bp_context context) { return tables_->stream->sync(handle_, stream_, context); });
  } catch (...) {
    replace_stream();
    throw;
  }
}

void Device::recover() noexcept {
  try {
    sync();
  } catch (const std::exception&) {  // the failure that led here is the one to report
  }
}

void Device::replace_stream() noexcept {
  if (!stream_) return;
  // Waits for its work. What is lost may still be read and written by it, so nothing may be freed before.
  tables_->stream->destroy(handle_, std::exchange(stream_, nullptr));
  if (lost_) return;
  try {
    stream_ = create<bp_stream>("stream", [&](bp_context context, bp_stream* stream) {
      return tables_->stream->create(handle_, context, stream);
    });
  } catch (const std::exception& error) {
    note_loss(error.what());  // without a stream nothing can be asked of it any more
  }
}

Support Device::supports(const bp_op_query& query) {
  Support support;
  support.answer.size = sizeof(bp_support);
  AbiCall abi;
  const bp_status status = attempt(
      abi, [&](bp_context context) { return tables_->device->supports(handle_, context, &query, &support.answer); });
  if (!is_yes(abi, status, fmt::format("supports {} {}", op_name(query.code), query.name ? query.name : ""))) {
    support.answer = {};
    support.reason = abi.text();
    if (support.reason.empty()) support.reason = status_text(status);
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

const char* Device::run(const bp_op& op) {
  AbiCall abi;
  const bp_status status =
      attempt(abi, [&](bp_context context) { return tables_->device->run(handle_, stream_, context, &op); });
  if (status != BP_OK) finish(abi, status, fmt::format("{} {}", op_name(op.code), op.name ? op.name : ""));
  return abi.kernel();
}

bp_prepared Device::prepare(const bp_op_query& query) {
  if (!tables_->device->prepare || !tables_->device->unprepare) return nullptr;
  return create<bp_prepared>(fmt::format("prepare {} {}", op_name(query.code), query.name ? query.name : ""),
                             [&](bp_context context, bp_prepared* prepared) {
                               return tables_->device->prepare(handle_, context, &query, prepared);
                             });
}

void Device::unprepare(bp_prepared prepared) noexcept {
  if (prepared) tables_->device->unprepare(handle_, prepared);
}

bool Event::available(const Device& device) {
  const bp_stream_table* table = device.tables().stream;
  return device.stream() && table->event_create && table->event_destroy && table->event_record && table->event_sync;
}

Event::Event(std::shared_ptr<Device> device)
    : device_(std::move(device)), handle_(device_->create<bp_event>("event", [&](bp_context context, bp_event* event) {
        return device_->tables().stream->event_create(device_->handle(), context, event);
      })) {}

Event::~Event() { device_->tables().stream->event_destroy(device_->handle(), handle_); }

void Event::record() {
  device_->call("event_record", [&](bp_context context) {
    return device_->tables().stream->event_record(device_->handle(), device_->stream(), context, handle_);
  });
}

void Event::wait() {
  device_->call("event_sync", [&](bp_context context) {
    return device_->tables().stream->event_sync(device_->handle(), context, handle_);
  });
}

}  // namespace backplane::device

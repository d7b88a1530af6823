// RAII over the device, buffer and stream tables of the plugin ABI. Everything a plugin returns is checked here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/dtype.h"
#include "plugins/abi/backplane_plugin.h"

namespace backplane::device {

class Device;

// A buffer on one device; freed with this object, which keeps its device open. Move-only.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<Device> device, bp_buffer handle, std::uint64_t bytes, std::byte* host);
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  explicit operator bool() const { return handle_ != nullptr; }
  bp_buffer handle() const { return handle_; }
  std::uint64_t bytes() const { return bytes_; }
  std::byte* host() const { return host_; }  // its address on the host, or nullptr where memory is opaque

 private:
  friend class Device;
  std::shared_ptr<Device> device_;
  bp_buffer handle_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::byte* host_ = nullptr;
};

// The answer of `supports`: no comes with the plugin's reason.
struct Support {
  bool yes = false;
  std::string reason;
  bp_support answer{};
};

// What the plugin's tables and name are taken from. The tables outlive every device.
struct PluginRef {
  const bp_tables* tables = nullptr;
  std::string name;
};

// An open device with one stream of its own. Calls that fail throw Error: kCapacity when memory ran out, else kDevice,
// with the plugin's text. supports, alloc and import_host are free-threaded; all that touches the stream is for one
// thread at a time.
class Device : public std::enable_shared_from_this<Device> {
 public:
  // `options` is "key=value,..." for the plugin, or empty.
  static std::shared_ptr<Device> open(const PluginRef& plugin, std::uint32_t index, bool deterministic = false,
                                      const std::string& options = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }  // "cpu:f32"
  const bp_caps& caps() const { return caps_; }
  const bp_tables& tables() const { return *tables_; }
  bp_device handle() const { return handle_; }
  bp_stream stream() const { return stream_; }  // nullptr: synchronous

  bool takes_weight_type(DType type) const;
  bool takes_kv_type(DType type) const;
  DType activation_type() const { return static_cast<DType>(caps_.activation_type); }
  bool host_visible() const { return (caps_.flags & BP_CAP_HOST_VISIBLE) != 0; }
  bp_caps current_caps() const;  // asks again: memory_free changes

  // `purpose` goes into the message when memory runs out.
  Buffer alloc(std::uint64_t bytes, std::string_view purpose);
  // Nothing where the device can't use host memory in place.
  std::optional<Buffer> import_host(std::span<std::byte> range, bool writable);

  // Both return when the copy is complete. The range lies inside the buffer.
  void upload(const Buffer& to, std::uint64_t offset, std::span<const std::byte> data);
  void download(const Buffer& from, std::uint64_t offset, std::span<std::byte> data);
  // Enqueues only: `data` must stay until the next sync.
  void upload_async(const Buffer& to, std::uint64_t offset, std::span<const std::byte> data);
  void sync();

  Support supports(const bp_op_query& query);
  void run(const bp_op& op);
  bp_prepared prepare(const bp_op_query& query);  // nullptr where the plugin has no prepare
  void unprepare(bp_prepared prepared) noexcept;

 private:
  Device() = default;
  void read_caps();
  std::string where(std::string_view call) const { return name_ + ": " + std::string(call); }

  const bp_tables* tables_ = nullptr;
  bp_device handle_ = nullptr;
  bp_stream stream_ = nullptr;
  std::string name_;
  bp_caps caps_{};
};

bool contains(const bp_type_set& set, DType type);
std::string_view op_name(std::uint32_t code);  // "LINEAR" for BP_OP_LINEAR

}  // namespace backplane::device

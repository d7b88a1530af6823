// RAII over the device, buffer and stream tables of the plugin ABI. Everything a plugin returns is checked here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/abi_call.h"
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
// with the plugin's text. Once a call reported that the device is lost, all of them throw DeviceLost with that text,
// without calling the plugin. supports, alloc and import_host are free-threaded; all that touches the stream is for one
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
  // Whether what one of them takes is taken from the other, too.
  bool shares_memory_with(const Device& other) const;
  bool host_visible() const { return (caps_.flags & BP_CAP_HOST_VISIBLE) != 0; }
  bp_caps current_caps() const;  // asks again: memory_free changes

  // `purpose` goes into the message when memory runs out.
  Buffer alloc(std::uint64_t bytes, std::string_view purpose);
  // Host memory that the device copies from and to without the host's help; nothing where the plugin has none that the
  // host can reach.
  std::optional<Buffer> alloc_pinned(std::uint64_t bytes);
  // Nothing where the device can't use host memory in place.
  std::optional<Buffer> import_host(std::span<std::byte> range, bool writable);

  // Both return when the copy is complete. The range lies inside the buffer.
  void upload(const Buffer& to, std::uint64_t offset, std::span<const std::byte> data);
  void download(const Buffer& from, std::uint64_t offset, std::span<std::byte> data);
  // One call that enqueues a copy from or to bytes of the caller, as `call`; returns when the copy is complete. Not
  // even a failure returns while the stream may still touch the bytes, and it leaves the device usable, see recover().
  template <class Function>
  void copy(std::string_view what, Function&& function) {
    try {
      call(what, std::forward<Function>(function));
      sync();
    } catch (...) {
      recover();
      throw;
    }
  }
  // Enqueues only: `data` must stay until the next sync.
  void upload_async(const Buffer& to, std::uint64_t offset, std::span<const std::byte> data);
  // Enqueues only: `data` is complete after the next sync, or after the wait for an event that is recorded next.
  void download_async(const Buffer& from, std::uint64_t offset, std::span<std::byte> data);
  // Waits for what is enqueued. Throws the failure of any of it, which is then over: a stream that has failed is
  // replaced. A device that is lost, or gives no new stream, stays unusable, but nothing works on it any more.
  void sync();
  void recover() noexcept;  // after a failure: the same, without telling another one
  bool lost() const { return lost_; }

  // `no` is an answer: BP_UNSUPPORTED, or features that are missing. A plugin that fails to answer throws.
  Support supports(const bp_op_query& query);
  // Returns the kernel that the plugin says it took, static text, or null where it says nothing.
  const char* run(const bp_op& op);
  bp_prepared prepare(const bp_op_query& query);  // nullptr where the plugin has no prepare
  void unprepare(bp_prepared prepared) noexcept;

  // One call into the plugin, function(context) -> bp_status; `what` names it in the Error.
  template <class Function>
  void call(std::string_view what, Function&& function) const {
    AbiCall abi;
    finish(abi, attempt(abi, std::forward<Function>(function)), what);
  }
  // A question: false where the plugin answers no. One that ran out of memory or failed to answer throws.
  template <class Function>
  bool accepts(std::string_view what, Function&& function) const {
    AbiCall abi;
    return is_yes(abi, attempt(abi, std::forward<Function>(function)), what);
  }
  // As `call`, for functions that create something: never nullptr. A handle beside a failure is not one.
  template <class Handle, class Function>
  Handle create(std::string_view what, Function&& function) const {
    Handle handle = nullptr;
    call(what, [&](bp_context context) { return function(context, &handle); });
    if (!handle) throw_nonsense("success without a result", what);
    return handle;
  }

 private:
  Device() = default;
  void read_caps();
  void replace_stream() noexcept;
  std::string where(std::string_view what) const { return name_ + ": " + std::string(what); }
  // A device that is lost gives the reason it gave when it was lost.
  template <class Function>
  bp_status attempt(AbiCall& abi, Function&& function) const {
    return lost_ ? AbiCall::fail(abi.context(), BP_DEVICE_LOST, loss_.c_str()) : function(abi.context());
  }
  void note_loss(const std::string& text) const;
  void finish(const AbiCall& abi, bp_status status, std::string_view what) const;
  bool is_yes(const AbiCall& abi, bp_status status, std::string_view what) const;
  [[noreturn]] void throw_nonsense(std::string_view nonsense, std::string_view what) const;

  const bp_tables* tables_ = nullptr;
  bp_device handle_ = nullptr;
  bp_stream stream_ = nullptr;
  std::string name_;
  bp_caps caps_{};
  mutable std::atomic<bool> lost_{false};
  mutable std::mutex loss_mutex_;
  mutable std::string loss_;  // why; constant once lost_ is set
};

// A point in the stream of a device, which must have events. One thread at a time.
class Event {
 public:
  // Throws as Device::create does.
  explicit Event(std::shared_ptr<Device> device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  static bool available(const Device& device);
  void record();  // the point is where the stream is now
  void wait();    // until the stream has reached it; throws the failure of the work before it, where the plugin tells

 private:
  std::shared_ptr<Device> device_;
  bp_event handle_;
};

bool contains(const bp_type_set& set, DType type);
std::string_view op_name(std::uint32_t code);  // "LINEAR" for BP_OP_LINEAR

}  // namespace backplane::device

// Steps that a device records once and then launches: the many small ops of a decode step cost the host one call.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "core/device/device.h"

namespace backplane::device {

// What recorded work can't change any more. Everything else is in the arrays of the step descriptor, which stay where
// they are and are rewritten before each launch.
struct CaptureKey {
  std::uint32_t tokens = 0, rows = 0, max_pages = 0;
  std::uint32_t variant = 0;  // of the ops, where a model has several ways to end a step
  bool operator==(const CaptureKey&) const = default;
};

struct CaptureCounts {
  std::uint64_t recorded = 0, launched = 0;
  std::uint64_t refused = 0;  // recordings that failed; after the first one nothing is recorded any more
};

// The recordings of one device's stream, as many as `limit`: the one unused for longest makes room. One thread at a
// time. The plugin must have the graph table.
class Captures {
 public:
  enum class Way { kRun, kRecord, kLaunch };

  explicit Captures(std::shared_ptr<Device> device, std::size_t limit = 64)
      : device_(std::move(device)), limit_(limit) {}
  ~Captures() { clear(); }
  Captures(const Captures&) = delete;
  Captures& operator=(const Captures&) = delete;

  // What to do with a step: it is run the first time a key comes, recorded the second time.
  Way next(const CaptureKey& key);
  // Between the two, work that is enqueued is recorded. Both return false, with nothing recorded and the stream usable,
  // where the plugin fails to; then no other recording is tried. begin throws DeviceLost, as does end.
  bool begin();
  bool end(const CaptureKey& key);
  // Ends a recording in which something failed; does nothing where there is none.
  void abandon() noexcept;
  // Throws Error as Device::run does. The key has been recorded.
  void launch(const CaptureKey& key);
  // Nothing that was launched may still be running.
  void clear() noexcept;

  const CaptureCounts& counts() const { return counts_; }

 private:
  struct Entry {
    CaptureKey key;
    bp_graph graph = nullptr;  // nullptr: seen once
  };
  std::list<Entry>::iterator find(const CaptureKey& key);
  bp_graph finish();
  void destroy(bp_graph graph) noexcept;
  void give_up(const Error& why);

  std::shared_ptr<Device> device_;
  std::size_t limit_;
  std::list<Entry> entries_;  // the latest used first
  bool recording_ = false, tired_ = false;
  CaptureCounts counts_;
};

// Whether the plugin can record: it has all of the table, and a stream.
bool can_capture(const Device& device);

}  // namespace backplane::device

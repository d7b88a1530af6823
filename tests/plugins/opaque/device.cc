#include "device.h"

#include <chrono>
#include <thread>

namespace opaque {

namespace sdk = backplane::plugin;

Device::Device(std::uint32_t index, const bp_open_params* params) : real(index == 1 ? BP_TYPE_F16 : BP_TYPE_F32) {
  sdk::require(index < 2, "there are two devices, 0 and 1");
  const bp_open_params given = params ? sdk::read_struct(params) : bp_open_params{};
  if ((given.flags & ~std::uint64_t{BP_OPEN_DETERMINISTIC}) != 0) sdk::refuse("unknown flags of open");
  options = parse_options(given.options);
  if (options.report) ++options.report->open;
  try {
    gate();
  } catch (...) {
    if (options.report) --options.report->open;
    throw;
  }
}

Device::~Device() {
  if (!options.report) return;
  options.report->live += memory.live() + objects;
  --options.report->open;
}

Device::Fault Device::gate(bool on_stream) {
  const std::uint64_t call = ++calls_;
  if (options.report) ++options.report->calls;
  if (lost_) {
    note_misuse();
    throw sdk::Failure(BP_DEVICE_LOST, "a call on a device that was lost");
  }
  const std::uint64_t armed = options.report ? options.report->fail_at.load() : 0;
  if (call != (armed != 0 ? armed : options.fail_at)) return {};
  if (options.fail_status == BP_DEVICE_LOST) lost_ = !(on_stream && options.late);
  const sdk::Failure failure(options.fail_status, "injected failure of call " + std::to_string(call));
  if (!on_stream || !options.late) throw failure;
  return failure;
}

template <class Function>
void Device::reporting(Function&& function) {
  try {
    function();
  } catch (const sdk::Failure& failure) {
    if (failure.status() == BP_DEVICE_LOST) lost_ = true;
    throw;
  }
}

void Device::perform(const Work& work) const {
  if (options.slow != 0) std::this_thread::sleep_for(std::chrono::microseconds(options.slow));
  work();
}

void Device::enqueue(bp_stream stream, const Fault& fault, Work work, bool always) {
  if (record(stream, fault, work)) return;
  if (fault) work = [fault] { throw sdk::Failure(*fault); };
  reporting([&] {
    if (!stream || options.no_stream) return perform(work);
    reinterpret_cast<Stream*>(stream)->push([this, work = std::move(work)] { perform(work); }, always);
  });
}

void Device::sync(bp_stream stream) {
  require_no_capture(stream);
  reporting([&] { reinterpret_cast<Stream*>(stream)->sync(); });
}

bool Device::record(bp_stream stream, const Fault& fault, Work& work) {
  const std::lock_guard lock(mutex_);
  const auto it = recordings_.find(stream);
  if (it == recordings_.end()) return false;
  Recording& recording = it->second;
  if (fault && !recording.failure) recording.failure = fault;
  recording.work.push_back(std::move(work));
  return true;
}

void Device::begin_capture(bp_stream stream) {
  const std::lock_guard lock(mutex_);
  sdk::require(recordings_.try_emplace(stream).second, "a capture on a stream that records already");
}

Recording Device::end_capture(bp_stream stream) {
  Recording recording;
  {
    const std::lock_guard lock(mutex_);
    const auto it = recordings_.find(stream);
    sdk::require(it != recordings_.end(), "the end of a capture that never began");
    recording = std::move(it->second);
    recordings_.erase(it);
  }
  reporting([&] {
    if (recording.failure) throw sdk::Failure(*recording.failure);
  });
  return recording;
}

void Device::forget(bp_stream stream) {
  const std::lock_guard lock(mutex_);
  recordings_.erase(stream);
}

void Device::require_no_capture(bp_stream stream) {
  const std::lock_guard lock(mutex_);
  if (recordings_.count(stream) == 0) return;
  note_misuse();
  throw sdk::Failure(BP_INVALID, "a call that can't be recorded");
}

bp_prepared Device::add_prepared(std::uint32_t code) {
  if (options.lie == "null_handle") return nullptr;
  const std::lock_guard lock(mutex_);
  const auto handle = reinterpret_cast<bp_prepared>(++last_prepared_);
  prepared_.emplace(handle, code);
  ++objects;
  return handle;
}

void Device::remove_prepared(bp_prepared prepared) {
  note_end_of_use();
  const std::lock_guard lock(mutex_);
  if (prepared_.erase(prepared) == 0) return note_misuse();
  --objects;
}

void Device::check_prepared(const bp_op& op) {
  if (!op.prepared) return;
  const std::lock_guard lock(mutex_);
  const auto it = prepared_.find(op.prepared);
  if (it == prepared_.end() || it->second != op.code) note_misuse();
}

}  // namespace opaque

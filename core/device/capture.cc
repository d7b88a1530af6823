#include "core/device/capture.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"

namespace backplane::device {

bool can_capture(const Device& device) {
  const bp_graph_table* table = device.tables().graph;
  return device.stream() && table && table->capture_begin && table->capture_end && table->launch && table->destroy;
}

std::list<Captures::Entry>::iterator Captures::find(const CaptureKey& key) {
  return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
}

Captures::Way Captures::next(const CaptureKey& key) {
  const auto it = find(key);
  if (it != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, it);
    if (it->graph) return Way::kLaunch;
    return tired_ ? Way::kRun : Way::kRecord;
  }
  if (tired_) return Way::kRun;
  if (entries_.size() == limit_) {
    destroy(entries_.back().graph);
    entries_.pop_back();
  }
  entries_.push_front({key});
  return Way::kRun;
}

bool Captures::begin() {
  try {
    device_->call("capture_begin", [&](bp_context context) {
      return device_->tables().graph->capture_begin(device_->handle(), device_->stream(), context);
    });
  } catch (const DeviceLost&) {
    throw;
  } catch (const Error& error) {
    give_up(error);
    return false;
  }
  recording_ = true;
  return true;
}

bp_graph Captures::finish() {
  recording_ = false;
  return device_->create<bp_graph>("capture_end", [&](bp_context context, bp_graph* graph) {
    return device_->tables().graph->capture_end(device_->handle(), device_->stream(), context, graph);
  });
}

bool Captures::end(const CaptureKey& key) {
  try {
    find(key)->graph = finish();
  } catch (const DeviceLost&) {
    throw;
  } catch (const Error& error) {
    give_up(error);
    return false;
  }
  ++counts_.recorded;
  return true;
}

void Captures::abandon() noexcept {
  if (!recording_) return;
  try {
    const bp_graph graph = finish();
    device_->recover();  // inputs of the step may still be on their way
    destroy(graph);
  } catch (const std::exception&) {  // the failure that led here is the one to report
  }
  ++counts_.refused;
  tired_ = true;
}

void Captures::give_up(const Error& why) {
  ++counts_.refused;
  tired_ = true;
  log(LogLevel::kWarning, "device", "steps are no longer recorded, each op is run on its own: {}", why.what());
}

void Captures::launch(const CaptureKey& key) {
  device_->call("launch", [&](bp_context context) {
    return device_->tables().graph->launch(device_->handle(), device_->stream(), context, find(key)->graph);
  });
  ++counts_.launched;
}

void Captures::clear() noexcept {
  abandon();
  for (const Entry& entry : entries_) destroy(entry.graph);
  entries_.clear();
}

void Captures::destroy(bp_graph graph) noexcept {
  if (graph) device_->tables().graph->destroy(device_->handle(), graph);
}

}  // namespace backplane::device

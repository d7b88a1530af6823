#include "stream.h"

namespace opaque {

namespace sdk = backplane::plugin;

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_one();
  thread_.join();
}

void Stream::push(std::function<void()> item, bool always) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw *failure_;
    items_.push_back({std::move(item), always});
    ++pending_;
  }
  work_.notify_one();
}

void Stream::sync() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return items_.empty() && !busy_; });
  if (failure_) throw *failure_;
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return !items_.empty() || ending_; });
    if (items_.empty()) return;
    Item item = std::move(items_.front());
    items_.pop_front();
    const bool skip = failure_.has_value() && !item.always;  // it would compute on garbage
    busy_ = true;
    lock.unlock();
    std::optional<sdk::Failure> failure;
    try {
      if (!skip) item.work();
    } catch (const sdk::Failure& caught) {
      failure = caught;
    } catch (const std::exception& caught) {
      failure = sdk::Failure(BP_INTERNAL, caught.what());
    }
    item.work = nullptr;
    lock.lock();
    busy_ = false;
    --pending_;
    if (failure && !failure_) failure_ = failure;
    if (items_.empty()) idle_.notify_all();
  }
}

}  // namespace opaque

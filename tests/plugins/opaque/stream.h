// A stream with a thread of its own. Work that fails is reported by a later call, and the stream stays failed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "plugins/sdk/backplane_plugin.hpp"

namespace opaque {

class Stream {
 public:
  // `pending` counts the work of all streams that is not done.
  explicit Stream(std::atomic<std::uint64_t>& pending) : pending_(pending), thread_([this] { work(); }) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Throws the failure of earlier work, once it is known. What follows a failure is not run, but for `always`.
  void push(std::function<void()> item, bool always = false);
  // Waits for all work; throws as push does.
  void sync();

 private:
  struct Item {
    std::function<void()> work;
    bool always;
  };
  void work();

  std::atomic<std::uint64_t>& pending_;
  std::mutex mutex_;
  std::condition_variable work_, idle_;  // there is some; there is none any more
  std::deque<Item> items_;
  bool busy_ = false, ending_ = false;
  std::optional<backplane::plugin::Failure> failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace opaque

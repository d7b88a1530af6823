// A stream with a thread of its own. Work runs in its order, behind the caller's back; a failure surfaces at a later
// call and stays.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "faulty.h"

namespace faulty {

class Stream {
 public:
  // `held`: nothing runs before somebody waits, so that what doesn't wait is seen to be early every time.
  // `loses_errors`: failures are forgotten.
  Stream(bool held, bool loses_errors);
  ~Stream();  // waits
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Both throw the failure of earlier work once it is known. `always`: also runs after a failure.
  void push(Work work, bool always = false);
  void sync();
  void let_go();  // if it is held

  // Between the two, push keeps the work instead of running it. Both throw where it is not their turn.
  void begin_recording();
  std::vector<Work> end_recording();
  // From now on a recording never ends; does nothing where there is none.
  void get_stuck();
  std::uint64_t syncs();  // that were asked for so far

 private:
  struct Item {
    Work work;
    bool always;
  };
  void work();

  const bool held_, loses_errors_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::optional<std::vector<Work>> recorded_;
  std::optional<sdk::Failure> failure_;
  std::uint64_t syncs_ = 0;
  bool busy_ = false, released_ = false, ending_ = false, stuck_ = false;
  std::thread thread_;  // last: it uses the others
};

inline Stream& stream_of(bp_stream stream) { return **reinterpret_cast<std::shared_ptr<Stream>*>(stream); }

// Runs the work on the stream, or here where there is none.
void enqueue(bp_stream stream, Work work);

}  // namespace faulty

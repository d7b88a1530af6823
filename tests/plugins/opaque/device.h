// One open device: its options, its objects, and the gate every call passes that may fail.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "memory.h"
#include "options.h"
#include "plugins/sdk/backplane_plugin.hpp"
#include "stream.h"

namespace opaque {

// A weight: file blocks column by column, not row by row, so that nobody reads them as they are.
struct Weight {
  struct Part {
    bp_type type = BP_TYPE_NONE;
    bool transposed = false;
    std::uint64_t stored_rows = 0, stored_columns = 0;  // as in the file
    Scrambled blocks{0};
  };
  std::vector<Part> parts;
  std::uint64_t uses = 0;
  bool finished = false;

  // Rows [first, first + count), side by side: out is [C,count].
  void read_rows(std::uint64_t first, std::uint64_t count, double* out) const;
};

// A KV cache: of each layer all pages of the first head, then of the next: [Hk,P,S,D].
struct Kv {
  struct Layer {
    std::uint64_t heads = 0, dim = 0, value_dim = 0, group = 0, pages = 0;
    Scrambled k{0}, v{0};
  };
  bp_type type = BP_TYPE_NONE;
  std::uint64_t page_size = 0;
  std::vector<Layer> layers;

  // The elements of one token in one head.
  static std::uint64_t place(const Layer& layer, std::uint64_t page_size, std::uint64_t head, std::uint64_t slot,
                             std::uint64_t dim);
};

// Work of a stream between the begin of a capture and its end.
struct Recording {
  std::vector<std::function<void()>> work;
  std::optional<backplane::plugin::Failure> failure;  // of a call that surfaces late: the capture ends with it
};

class Device {
 public:
  using Fault = std::optional<backplane::plugin::Failure>;
  using Work = std::function<void()>;

  Device(std::uint32_t index, const bp_open_params* params);
  ~Device();

  const char* name() const { return real == BP_TYPE_F16 ? "f16" : "f32"; }

  // Counts the call, and throws where the options want a failure. On a stream with late=1, returns it instead, for
  // enqueue.
  Fault gate(bool on_stream = false);
  // Runs the work on the stream, or here where there is none; or records it. A fault takes the work's place. What
  // follows a failure is not run, but for `always`.
  void enqueue(bp_stream stream, const Fault& fault, Work work, bool always = false);
  // A call that enqueues: gate and enqueue.
  void submit(bp_stream stream, Work work) { enqueue(stream, gate(true), std::move(work)); }
  void sync(bp_stream stream);
  // What the options make of a piece of work: slow.
  void perform(const Work& work) const;

  void begin_capture(bp_stream stream);
  // Ends it, also where it throws what went wrong.
  Recording end_capture(bp_stream stream);
  // Drops what was recorded.
  void forget(bp_stream stream);
  // Throws where work is being recorded, which the call can't be.
  void require_no_capture(bp_stream stream);

  // Handles of prepared ops are numbers that know their op. One that isn't of that op is a misuse.
  bp_prepared add_prepared(std::uint32_t code);
  void remove_prepared(bp_prepared prepared);
  void check_prepared(const bp_op& op);

  // The handle of an object just made, or NULL where the options want that lie.
  template <class Handle, class Object>
  Handle give(std::unique_ptr<Object> object);
  template <class Object>
  void take(Object* object) {
    note_end_of_use();
    delete object;
    if (object) --objects;
  }

  // Nothing may be freed while a stream might still work on it.
  void note_end_of_use() {
    if (pending != 0) note_misuse();
  }
  void note_misuse() {
    if (options.report) ++options.report->misuse;
  }
  // True for the op that the options want to go wrong.
  bool next_op_is_wrong() { return ++ops_ == options.nan_at; }
  bool next_question_is_refused() {
    if (options.report) ++options.report->questions;
    return ++questions_ == options.refuse_at;
  }

  const bp_type real;  // what it computes in
  Options options;
  Memory memory;
  std::atomic<std::uint64_t> pending{0};  // work of streams
  std::atomic<std::uint64_t> objects{0};  // whatever was made and must be destroyed, buffers apart

 private:
  // Runs function; the device is lost once a failure has said so to the core.
  template <class Function>
  void reporting(Function&& function);
  bool record(bp_stream stream, const Fault& fault, Work& work);

  std::atomic<std::uint64_t> calls_{0}, ops_{0}, questions_{0};
  std::atomic<bool> lost_{false};
  std::mutex mutex_;
  std::map<bp_stream, Recording> recordings_;  // a stream that is not in it records nothing
  std::map<bp_prepared, std::uint32_t> prepared_;
  std::uintptr_t last_prepared_ = 0xB0000;
};

inline Device& self(bp_device device) { return *reinterpret_cast<Device*>(device); }

template <class Handle, class Object>
Handle Device::give(std::unique_ptr<Object> object) {
  if (options.lie == "null_handle") return nullptr;
  ++objects;
  return reinterpret_cast<Handle>(object.release());
}

// The tables' functions, by file.
void fill_weights(bp_weights_table& table);                                    // weights.cc
void fill_kv(bp_kv_table& table);                                              // kv.cc
void fill_stream(bp_stream_table& table);                                      // stream_table.cc
void fill_buffers(bp_buffer_table& table);                                     // buffers.cc
void fill_built(bp_device_table& table);                                       // built.cc
void fill_graph(bp_graph_table& table);                                        // graph.cc
void answer_query(Device& device, const bp_op_query& query, bp_support& out);  // supports.cc
Device::Work op_work(Device& device, const bp_op& op);                         // ops.cc

}  // namespace opaque

// One open device: its options, its objects, and the gate every call passes that may fail.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "memory.h"
#include "plugins/sdk/backplane_plugin.hpp"
#include "report.h"
#include "stream.h"

namespace opaque {

// Options of open, or else of the environment's BACKPLANE_OPAQUE: "key=value,...". Lists are joined by '+'.
struct Options {
  std::set<std::string> without;           // without=NORM+ROPE: ops that it refuses
  std::set<std::string> want_f16;          // want_f16=LINEAR: ops that take activations in F16 only
  bool no_weights = false, no_kv = false;  // no_weights=1: refuses to import; no_kv=1: owns no KV layout
  bool no_stream = false;                  // no_stream=1: work is done when the call returns
  bool no_transposed = false;              // no_transposed=1: refuses weights that are stored transposed
  bool visible = false;                    // visible=1: memory is the host's after all, still behind the stream
  bool no_embed = false;                   // no_embed=1: refuses weights that are to serve EMBED
  std::uint64_t fail_at = 0;               // fail_at=N:STATUS: the N-th call of those that can fail, from 1
  bp_status fail_status = BP_INTERNAL;
  bool late = false;         // late=1: a failure of work surfaces at the next sync
  std::string lie;           // lie=null_handle, workspace, activation, features: what answers are nonsense
  Report* report = nullptr;  // report=ADDRESS
};
Options parse_options(const char* text);

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

  std::uint64_t rows() const;
  std::uint64_t columns() const;
  std::vector<double> row(std::uint64_t n) const;
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

class Device {
 public:
  Device(std::uint32_t index, const bp_open_params* params);
  ~Device();

  const char* name() const { return real == BP_TYPE_F16 ? "f16" : "f32"; }

  // Counts the call, and throws where the options want a failure. On a stream with late=1, returns it instead: as work.
  std::function<void()> gate(bool on_stream = false);
  // Runs the work on the stream, or here where there is none.
  void enqueue(bp_stream stream, std::function<void()> work);
  void sync(bp_stream stream);
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
    if (pending != 0 && options.report) ++options.report->misuse;
  }

  const bp_type real;  // what it computes in
  Options options;
  Memory memory;
  std::atomic<std::uint64_t> pending{0};  // work of streams
  std::atomic<std::uint64_t> objects{0};  // streams, weights and KV caches

 private:
  // Runs function; the device is lost once a failure has said so to the core.
  template <class Function>
  void reporting(Function&& function);

  std::atomic<std::uint64_t> calls_{0};
  std::atomic<bool> lost_{false};
};

inline Device& self(bp_device device) { return *reinterpret_cast<Device*>(device); }

template <class Handle, class Object>
Handle Device::give(std::unique_ptr<Object> object) {
  if (options.lie == "null_handle") return nullptr;
  ++objects;
  return reinterpret_cast<Handle>(object.release());
}

// The tables' functions, by file.
void fill_weights(bp_weights_table& table);                                           // weights.cc
void fill_kv(bp_kv_table& table);                                                     // kv.cc
void answer_query(const Device& device, const bp_op_query& query, bp_support& out);   // supports.cc
std::function<void()> op_work(Device& device, const bp_op& op);                       // ops.cc
void run_attention(Device& device, const bp_step& step, const bp_attention_args& a);  // attention.cc
void run_kv_write(Device& device, const bp_step& step, const bp_kv_write_args& a);
void run_sample(Device& device, const bp_sample_args& a);  // sampling.cc
void run_topk(Device& device, const bp_topk_args& a);

}  // namespace opaque

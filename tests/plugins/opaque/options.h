// What a test may ask of a device, as options of open ("key=value,...") or else in the environment's BACKPLANE_OPAQUE,
// since programs pass no options. Lists are joined by '+'; flags are 0 or 1.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "plugins/sdk/backplane_plugin.hpp"
#include "report.h"

namespace opaque {

struct Options {
  // What it can't do.
  std::set<std::string> without;       // without=NORM+ROPE: ops that it refuses
  std::set<std::string> uncapturable;  // uncapturable=SAMPLE: ops that it can't record
  std::set<std::string> want_f16;      // want_f16=LINEAR: ops that take activations in F16 only
  std::set<std::string> import;        // import=F32+Q8_0: the only types of weights that it imports; none: all
  bool no_weights = false;             // refuses to import
  bool no_kv = false;                  // owns no KV layout
  bool no_stream = false;              // work is done when the call returns
  bool no_graph = false;               // refuses to record, and no op is safe to
  bool no_transposed = false;          // refuses weights that are stored transposed
  bool no_embed = false;               // refuses weights that are to serve EMBED
  bool no_map = false;                 // refuses the three functions of buffers that are optional
  bool no_import = false;
  bool no_copy = false;
  bool visible = false;           // memory is the host's after all, still behind the stream
  std::uint32_t alignment = 256;  // of tensors, a power of two

  // Faults. N counts from 1.
  std::uint64_t fail_at = 0;  // fail_at=N:STATUS: the N-th call of those that can fail; any number for a status
  bp_status fail_status = BP_INTERNAL;
  bool late = false;            // a failure of work surfaces at the next sync, or at the end of the recording
  std::uint64_t refuse_at = 0;  // refuse_at=N: the N-th question of supports is answered no
  std::uint64_t nan_at = 0;     // nan_at=N: the N-th op that runs begins its result with NaN
  std::uint64_t slow = 0;       // slow=MICROSECONDS: what every piece of work takes longer
  std::string lie;              // lie=null_handle, workspace, activation, features, caps, alignment: wrong answers

  Report* report = nullptr;  // report=ADDRESS
};

// NULL: from the environment. BP_INVALID for what it doesn't know.
Options parse_options(const char* text);

// "a+b"; NULL is empty.
std::set<std::string> parse_list(const char* text);

}  // namespace opaque

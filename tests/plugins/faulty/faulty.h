// `faulty`: forwards every call to the cpu plugin, behind streams with threads of their own, and breaks one thing that
// the option fault=NAME names (in the environment's BACKPLANE_FAULTY where open has no options, since programs pass
// none). Without the option it is sound: two devices with streams, events, graphs, prepared ops, compiled lists, a
// workspace and collectives.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plugins/sdk/backplane_plugin.hpp"

namespace faulty {

namespace sdk = backplane::plugin;

// The names that fault= takes; tests try them all.
inline constexpr const char* kFaults[] = {
    "head_map",          // query head h reads KV head h % Hk
    "last_page",         // attention leaves out the last page of a sequence
    "window",            // the window is one token longer
    "missing_bias",      // LINEAR forgets it
    "transposed_v",      // V pages are read as [Hk,S,Dv]
    "eps",               // NORM takes another
    "late_error",        // sync says that all went well
    "past_end",          // ADD writes one element too many
    "rope_pairing",      // ROPE pairs elements the other way
    "f16_sums",          // LINEAR adds up in F16
    "undeclared_q8",     // LINEAR rounds its inputs to Q8_0 and doesn't say so
    "stale_descriptor",  // a captured step keeps the arrays that it was captured with
    "early_download",    // a download doesn't wait for the work before it
    "any_feature",       // supports claims attributes that don't exist
    "any_kind",          // supports takes kinds of norms and activations that don't exist
    "any_flag",          // open takes flags that don't exist
    "small_workspace",   // the workspace asked for is that of the smallest shape
    "prepared_shape",    // what was prepared computes no more rows than the smallest shape has
    "launch_once",       // of two launches in a row the second does nothing
    "stuck_capture",     // a call that fails inside a recording leaves the stream recording
    "lost_event",        // waiting for an event doesn't
    "list_order",        // a compiled list runs its ops the other way round
    "list_contents",     // a compiled list keeps the step's arrays that it was compiled with
    "forgotten_rank",    // all_reduce leaves out the last rank
    "gather_order",      // all_gather puts the ranks the other way round
    "scatter_part",      // reduce_scatter gives every rank the first part
    "short_message"      // receive leaves out the last element
};

const bp_tables& cpu();  // loaded when it is first asked for

struct Device {
  bp_device cpu = nullptr;
  std::uint32_t index = 0;
  std::string fault;
  bool rounds_to_q8 = false;  // q8=1: LINEAR rounds its inputs to Q8_0, and declares it
  bool crashes = false;       // crash=1: NORM ends the process

  bool has(const char* name) const { return fault == name; }
};
inline Device& self(bp_device device) { return *reinterpret_cast<Device*>(device); }

// Something to be done later; throws sdk::Failure.
using Work = std::function<void()>;

// Calls a function of the cpu plugin; what it refuses is thrown.
void call_cpu(const std::function<bp_status(bp_context)>& function);

// An op that can run when the caller's argument structs are gone (held.cc). `stale`: on the step's arrays as they were
// when it was held, not as they are when it runs.
Work hold(Device& device, const bp_op& op, bool stale = false);

// What `prepare` makes: the rows of the smallest and the largest shape.
struct Prepared {
  std::int64_t smallest = 0, largest = 0;
};

// Runs an op on the cpu plugin, with the device's fault (faults.cc).
void run_with_fault(Device& device, const bp_op& op);
// What LINEAR needs to keep its inputs, beside what the cpu needs.
std::uint64_t workspace_bytes(const bp_linear_args& args);

// The host's address of a tensor's first element.
std::byte* address_of(const bp_tensor& tensor);

// The tables' functions, by file.
void fill_driver(bp_driver_table& table);  // plugin.cc
void fill_device(bp_device_table& table);  // ops.cc
void fill_buffer(bp_buffer_table& table);  // buffers.cc
void fill_stream(bp_stream_table& table);  // streams.cc
void fill_graph(bp_graph_table& table);
void fill_comm(bp_comm_table& table);  // comm.cc

}  // namespace faulty

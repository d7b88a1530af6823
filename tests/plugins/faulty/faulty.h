// `faulty`: forwards every call to the cpu plugin, behind a stream that does its work at the next sync, and breaks one
// thing that the option fault=NAME names. Without the option it is sound, and a device with streams and graphs.
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
    "early_download"     // a download doesn't wait for the work before it
};

const bp_tables& cpu();  // loaded when it is first asked for

struct Device {
  bp_device cpu = nullptr;
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

// An op that can run when the caller's argument structs are gone (held.cc).
Work hold(Device& device, const bp_op& op);

// Runs an op on the cpu plugin, with the device's fault (faults.cc).
void run_with_fault(Device& device, const bp_op& op);

// The host's address of a tensor's first element.
std::byte* address_of(const bp_tensor& tensor);

}  // namespace faulty

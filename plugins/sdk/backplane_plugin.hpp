// Backplane plugin SDK: the header to include. SPDX-License-Identifier: MIT
//
// C++20 helpers over backplane_plugin.h for people who write plugins. Header-only; nothing here is part of the
// contract, so a plugin may use all of it, some of it, or none.
//
//   backplane_call.hpp           the host's services, exceptions -> status, structs that grow, options
//   backplane_tensor.hpp         types, type sets, overflow-checked tensor arithmetic
//   backplane_ops.hpp            argument structs by op code
//   backplane_host_memory.hpp    a buffer table over ordinary memory
//   backplane_simple_plugin.hpp  a whole plugin out of a class with `supports` and `run`
//   backplane_half.hpp           floats of 16 and 8 bits
//
// For devices that compute in host memory:
//   backplane_check.hpp          whether one tensor is what an op expects
//   backplane_op_checks.hpp      whether all arguments of a single op are; backplane_cache_checks.hpp those of the KV
//                                cache's ops, backplane_fused_checks.hpp those of fused ones
//   backplane_view.hpp           tensors as C++ arrays
//   backplane_workspace.hpp      pieces of an op's workspace
#pragma once

#include "backplane_cache_checks.hpp"
#include "backplane_call.hpp"
#include "backplane_check.hpp"
#include "backplane_fused_checks.hpp"
#include "backplane_half.hpp"
#include "backplane_host_memory.hpp"
#include "backplane_op_checks.hpp"
#include "backplane_ops.hpp"
#include "backplane_simple_plugin.hpp"
#include "backplane_tensor.hpp"
#include "backplane_view.hpp"
#include "backplane_workspace.hpp"

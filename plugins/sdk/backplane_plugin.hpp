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
#pragma once

#include "backplane_call.hpp"
#include "backplane_host_memory.hpp"
#include "backplane_ops.hpp"
#include "backplane_simple_plugin.hpp"
#include "backplane_tensor.hpp"

// The core's services to plugins: bp_host over core/base.
#pragma once

#include "core/base/thread_pool.h"
#include "plugins/abi/backplane_plugin.h"

namespace backplane::plugins {

// One table for the whole process, which it outlives: plugins keep the pointer and are never unloaded.
const bp_host* host_table();

// How many workers the loops of plugins get; 0 takes all processors, which is the default. Only while no device is open
// (a plugin may rely on a constant number) and no loop runs. The threads start with the first loop, not before.
void set_host_threads(unsigned threads);
unsigned host_threads();

// The pool behind host->parallel_for, started if it wasn't.
ThreadPool& host_pool();

}  // namespace backplane::plugins

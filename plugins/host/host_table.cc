#include "plugins/host/host_table.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/abi_call.h"
#include "core/base/log.h"
#include "plugins/abi/backplane_kernels.h"
#include "plugins/host/manifest.h"

namespace backplane::plugins {
namespace {

// Never destroyed: plugins stay loaded until the process has ended, and may call as long.
struct HostState {
  std::mutex mutex;
  unsigned wanted = 0;
  std::unique_ptr<ThreadPool> owner;
  std::atomic<ThreadPool*> pool{nullptr};  // owner's, for the fast path
};

HostState& state() {
  static auto* const instance = new HostState;
  return *instance;
}

// A plugin's text: bounded, and unable to move the terminal's cursor.
std::string bounded(const char* text, std::size_t longest) {
  return text ? printable({text, ::strnlen(text, longest)}, longest) : std::string();
}

void log_for_plugin(void*, std::int32_t level, const char* component, const char* text) {
  try {
    const auto clamped = static_cast<LogLevel>(std::clamp<std::int32_t>(level, BP_LOG_TRACE, BP_LOG_ERROR));
    if (clamped >= log_level()) log_line(clamped, bounded(component, 64), bounded(text, 4096));
  } catch (...) {  // a line is lost; nothing may cross the boundary
  }
}

void parallel_for(void*, std::uint64_t n, std::uint64_t grain, bp_loop_body body, void* argument) {
  try {
    host_pool().parallel_for(n, grain, [body, argument](std::uint64_t begin, std::uint64_t end, unsigned worker) {
      body(argument, begin, end, worker);
    });
  } catch (const std::exception& error) {  // a body must not throw: the plugin's result is lost, the process isn't
    log_for_plugin(nullptr, BP_LOG_ERROR, "plugins", error.what());
  } catch (...) {
    log_for_plugin(nullptr, BP_LOG_ERROR, "plugins", "the body of a plugin's loop threw");
  }
}

std::uint32_t threads(void*) {
  try {
    return host_threads();
  } catch (...) {
    return 1;
  }
}

const void* query_extension(void*, const char* name) {
  static const bp_kernels_extension kernels{sizeof(bp_kernels_extension), AbiCall::took};
  return name && std::strcmp(name, BP_KERNELS_EXTENSION) == 0 ? &kernels : nullptr;
}

}  // namespace

const bp_host* host_table() {
  static const bp_host table = [] {
    bp_host host{};
    host.size = sizeof(bp_host);
    host.abi_major = BP_ABI_MAJOR;
    host.abi_minor = BP_ABI_MINOR;
    host.self = &state();
    host.log = log_for_plugin;
    host.fail = AbiCall::fail;
    host.parallel_for = parallel_for;
    host.threads = threads;
    host.query_extension = query_extension;
    return host;
  }();
  return &table;
}

void set_host_threads(unsigned threads) {
  HostState& host = state();
  std::lock_guard lock(host.mutex);
  host.wanted = threads;
  host.pool = nullptr;
  host.owner.reset();
}

ThreadPool& host_pool() {
  HostState& host = state();
  if (ThreadPool* pool = host.pool.load(std::memory_order_acquire)) return *pool;
  std::lock_guard lock(host.mutex);
  if (!host.owner) host.owner = std::make_unique<ThreadPool>(host.wanted);
  host.pool.store(host.owner.get(), std::memory_order_release);
  return *host.owner;
}

unsigned host_threads() { return host_pool().threads(); }

}  // namespace backplane::plugins

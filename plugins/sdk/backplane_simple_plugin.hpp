// A whole plugin out of one class: it says what it supports and runs it, in host memory. SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backplane_call.hpp"
#include "backplane_host_memory.hpp"
#include "backplane_ops.hpp"
#include "backplane_tensor.hpp"

namespace backplane::plugin {

// Derive from it, override `supports` and `run`, and put BACKPLANE_SIMPLE_PLUGIN("name", "version", YourDevice) at the
// end of the file. Every function may throw: a Failure carries its status. Called from several threads at a time.
class SimpleDevice {
 public:
  SimpleDevice() = default;
  SimpleDevice(const SimpleDevice&) = delete;
  SimpleDevice& operator=(const SimpleDevice&) = delete;
  virtual ~SimpleDevice() = default;

  // One "key=value" of the user, before anything else is called.
  virtual void set_option(std::string_view key, std::string_view /*value*/) { unknown_option(key); }

  // Changes what is filled in already: name "0", activations and canonical weights in F32, memory of the host.
  virtual void describe(bp_caps& /*caps*/) const {}

  // Fills `support` (zeroed) for an op it will run, or calls refuse("reason").
  virtual void supports(const bp_op_query& query, bp_support& support) const = 0;

  // Runs one op that `supports` agreed to; results are in place when it returns.
  virtual void run(const bp_op& op) = 0;
};

// The functions behind the tables of a plugin whose devices are all of class Device.
template <class Device>
struct SimplePlugin {
  static Device& self(bp_device device) { return *reinterpret_cast<Device*>(device); }

  static bp_caps caps_of(const Device& device) {
    bp_caps caps{};
    copy_text(caps.name, "0");
    caps.flags = BP_CAP_HOST_VISIBLE | BP_CAP_UNIFIED;
    caps.activation_type = BP_TYPE_F32;
    caps.activation_types = caps.weight_types = type_set({BP_TYPE_F32});
    caps.alignment = kHostAlignment;
    device.describe(caps);
    return caps;
  }

  static bp_status count(bp_context, std::uint32_t* devices) {
    *devices = 1;
    return BP_OK;
  }

  static bp_status describe(bp_context context, std::uint32_t index, bp_device_info* info) {
    return guard(context, [&] {
      require(index == 0, "no such device");
      const bp_caps caps = caps_of(Device{});
      bp_device_info own{};
      copy_text(own.name, caps.name);
      copy_text(own.description, caps.description);
      own.memory_total = caps.memory_total;
      fill_struct(info, own);
    });
  }

  static bp_status open(bp_context context, std::uint32_t index, const bp_open_params* params, bp_device* device) {
    return guard(context, [&] {
      require(index == 0, "no such device");
      const bp_open_params given = read_struct(params);
      auto made = std::make_unique<Device>();
      for_each_option(given.options, [&](auto key, auto value) { made->set_option(key, value); });
      if ((given.flags & ~std::uint64_t{BP_OPEN_DETERMINISTIC}) != 0) refuse("unknown flags of open");
      constexpr std::uint64_t kPromised = BP_CAP_DETERMINISTIC | BP_CAP_BATCH_INVARIANT;
      if ((given.flags & BP_OPEN_DETERMINISTIC) != 0 && (caps_of(*made).flags & kPromised) != kPromised) {
        refuse("results are not reproducible bit by bit, or depend on a step's other tokens");
      }
      *device = reinterpret_cast<bp_device>(made.release());
    });
  }

  static void close(bp_device device) { delete &self(device); }

  static bp_status caps(bp_device device, bp_context context, bp_caps* caps) {
    return guard(context, [&] { fill_struct(caps, caps_of(self(device))); });
  }

  static bp_status supports(bp_device device, bp_context context, const bp_op_query* query, bp_support* support) {
    return guard(context, [&] {
      bp_support own{};
      self(device).supports(read_struct(query), own);
      fill_struct(support, own);
    });
  }

  static bp_status run(bp_device device, bp_stream, bp_context context, const bp_op* op) {
    return guard(context, [&] { self(device).run(read_struct(op)); });
  }

  // The entry point.
  static bp_status query(const bp_host* from, bp_tables* tables, const char* name, const char* version) noexcept {
    host = from;
    bp_driver_table driver{};
    driver.abi_minor = BP_ABI_MINOR;
    driver.name = name;
    driver.version = version;
    driver.count = count;
    driver.open = open;
    driver.close = close;
    driver.describe = describe;
    fill_table(tables, &bp_tables::driver, driver);
    bp_device_table device{};
    device.caps = caps;
    device.supports = supports;
    device.run = run;
    fill_table(tables, &bp_tables::device, device);
    fill_table(tables, &bp_tables::buffer, host_memory_table());
    return BP_OK;
  }
};

}  // namespace backplane::plugin

// Defines the entry point of a plugin with one device, "NAME:0".
#define BACKPLANE_SIMPLE_PLUGIN(NAME, VERSION, DEVICE)                                                          \
  extern "C" BP_EXPORT bp_status BP_ENTRY_POINT(const bp_host* backplane_host, bp_context, bp_tables* tables) { \
    return backplane::plugin::SimplePlugin<DEVICE>::query(backplane_host, tables, NAME, VERSION);               \
  }

// What the plugin says of itself: tables, names, capabilities, and opening.
#include <fmt/format.h>

#include <cstring>
#include <set>

#include "core/base/abi_call.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

bool is_name(const char* name, std::size_t room, const char* also) {
  const std::size_t length = ::strnlen(name, room);
  if (length == 0 || length == room) return false;
  for (std::size_t i = 0; i < length; ++i) {
    const char c = name[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && !std::strchr(also, c)) return false;
  }
  return true;
}

void try_tables(Trial& trial) {
  const bp_tables& t = trial.subject.device().tables();
  require(t.driver->size == sizeof(bp_driver_table) && t.device->size == sizeof(bp_device_table) &&
              t.buffer->size == sizeof(bp_buffer_table) && t.stream->size == sizeof(bp_stream_table) &&
              t.weights->size == sizeof(bp_weights_table) && t.kv->size == sizeof(bp_kv_table) &&
              t.graph->size == sizeof(bp_graph_table) && t.comm->size == sizeof(bp_comm_table),
          "the plugin changed the size of a table, which is the core's");
  require(t.driver->abi_minor <= BP_ABI_MINOR, "the plugin uses a newer minor version than the core has");
  require(t.driver->name && is_name(t.driver->name, 256, "_-"), "the driver's name has other characters than allowed");
  require(t.driver->count && t.driver->open && t.driver->close && t.device->caps && t.device->supports &&
              t.device->run && t.buffer->alloc && t.buffer->free && t.buffer->upload && t.buffer->download,
          "a required function is missing");
}

void try_devices(Trial& trial) {
  const bp_driver_table& driver = *trial.subject.device().tables().driver;
  std::uint32_t count = 0, again = 0;
  AbiCall call;
  call.check(driver.count(call.context(), &count), "count");
  call.check(driver.count(call.context(), &again), "count");
  require(count > 0 && count == again, "count: no device, or another number when asked again");
  if (!driver.describe) return;
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < count; ++i) {
    bp_device_info info{};
    info.size = sizeof(info);
    call.check(driver.describe(call.context(), i, &info), "describe");
    require(info.size == sizeof(info), "describe changed the size of its answer");
    require(is_name(info.name, sizeof(info.name), "._-"), "describe: a name with other characters than allowed");
    require(std::memchr(info.description, 0, sizeof(info.description)), "describe: a description without an end");
    require(names.insert(info.name).second, fmt::format("describe: two devices are called {}", info.name));
  }
  bp_device_info info{};
  info.size = sizeof(info);
  require(driver.describe(call.context(), count, &info) != BP_OK, "describe: success for a device that isn't there");
}

// A struct of an older core is shorter: what lies behind it is not the plugin's.
void try_short_caps(Trial& trial) {
  device::Device& device = trial.subject.device();
  union {
    bp_caps caps;
    unsigned char bytes[sizeof(bp_caps)];
  } room;
  std::memset(room.bytes, 0xa5, sizeof(room.bytes));
  constexpr std::uint64_t kSize = offsetof(bp_caps, kv_types);
  room.caps.size = kSize;
  AbiCall call;
  call.check(device.tables().device->caps(device.handle(), call.context(), &room.caps), "caps");
  require(room.caps.size == kSize, "caps changed the size of its answer");
  for (std::size_t i = kSize; i < sizeof(room.bytes); ++i) {
    require(room.bytes[i] == 0xa5, fmt::format("caps wrote byte {} of a struct of {} bytes", i, kSize));
  }
  require(room.caps.activation_type == device.caps().activation_type, "caps: another answer for a shorter struct");
}

void try_caps(Trial& trial) {
  device::Device& device = trial.subject.device();
  const bp_caps first = device.caps(), second = device.current_caps();
  require(is_name(first.name, sizeof(first.name), "._-"), "caps: a name with other characters than allowed");
  require(first.flags == second.flags && first.activation_type == second.activation_type &&
              first.alignment == second.alignment && first.memory_total == second.memory_total &&
              std::memcmp(&first.weight_types, &second.weight_types, sizeof(bp_type_set)) == 0 &&
              std::memcmp(&first.kv_types, &second.kv_types, sizeof(bp_type_set)) == 0,
          "caps: another answer when asked again");
  require(first.memory_total == 0 || first.memory_free <= first.memory_total,
          "caps: more memory is free than there is");
  require((first.flags & BP_CAP_HOST_VISIBLE) == 0 || device.tables().buffer->map, "caps: host-visible without map");
  const bool streams = has_streams(device);
  require(streams == (device.stream() != nullptr), "a device with a stream table and no stream");
}

void expect_refusal(const bp_driver_table& driver, std::uint32_t index, const bp_open_params* params,
                    bp_status expected, const char* what) {
  AbiCall call;
  bp_device handle = nullptr;
  const bp_status status = driver.open(call.context(), index, params, &handle);
  if (status == BP_OK) driver.close(handle);
  const bool right = expected == BP_OK ? status != BP_OK : status == expected;
  require(right, fmt::format("open with {}: {}", what, status_text(status)));
  require(!call.text().empty(), fmt::format("open with {} was refused without a reason", what));
}

void try_bad_open(Trial& trial, std::uint32_t index) {
  const bp_driver_table& driver = *trial.subject.device().tables().driver;
  bp_open_params params{};
  params.size = sizeof(params);
  params.flags = std::uint64_t{1} << 40;
  expect_refusal(driver, index, &params, BP_UNSUPPORTED, "an unknown flag");
  params.flags = 0;
  params.options = "no_such_option_of_any_plugin=1";
  expect_refusal(driver, index, &params, BP_INVALID, "an unknown option");
  params.options = nullptr;
  std::uint32_t count = 0;
  AbiCall call;
  call.check(driver.count(call.context(), &count), "count");
  expect_refusal(driver, count, &params, BP_OK, "the index of a device that isn't there");
}

// Two devices of the same index have nothing to do with each other.
void try_open_twice(Trial& trial, const Target& target) {
  const auto one = target.open();
  auto two = target.open();
  const std::vector<std::byte> bytes(100, std::byte{42});
  const device::Buffer mine = one->alloc(100, "a case");
  one->upload(mine, 0, bytes);
  {
    const device::Buffer other = two->alloc(100, "a case");
    two->upload(other, 0, std::vector<std::byte>(100, std::byte{7}));
  }
  two.reset();
  std::vector<std::byte> read(100);
  one->download(mine, 0, read);
  require(read == bytes, "closing a device changed a buffer of another");
  (void)trial;
}

void try_deterministic(Trial& trial, const Target& target) {
  bp_open_params params{};
  params.size = sizeof(params);
  params.flags = BP_OPEN_DETERMINISTIC;
  params.options = target.options.empty() ? nullptr : target.options.c_str();
  const bp_tables& tables = *target.plugin.tables;
  AbiCall call;
  bp_device handle = nullptr;
  const bp_status status = tables.driver->open(call.context(), target.index, &params, &handle);
  if (status != BP_OK) {
    require(!call.text().empty(), "open with BP_OPEN_DETERMINISTIC was refused without a reason");
    throw Skipped{call.text()};
  }
  bp_caps caps{};
  caps.size = sizeof(caps);
  const bp_status asked = tables.device->caps(handle, call.context(), &caps);
  tables.driver->close(handle);
  constexpr std::uint64_t kPromised = BP_CAP_DETERMINISTIC | BP_CAP_BATCH_INVARIANT;
  require(asked == BP_OK && (caps.flags & kPromised) == kPromised,
          "opened with BP_OPEN_DETERMINISTIC, and yet without BP_CAP_DETERMINISTIC or BP_CAP_BATCH_INVARIANT");
  (void)trial;
}

}  // namespace

void add_table_cases(Suite& suite) {
  const Target target = suite.target();
  suite.add("abi/tables", try_tables);
  suite.add("abi/devices", try_devices);
  suite.add("abi/caps", try_caps);
  suite.add("abi/shorter_caps", try_short_caps);
  suite.add("abi/bad_open", [index = target.index](Trial& trial) { try_bad_open(trial, index); });
  suite.add("abi/open_twice", [target](Trial& trial) { try_open_twice(trial, target); });
  suite.add("abi/deterministic", [target](Trial& trial) { try_deterministic(trial, target); });
}

}  // namespace backplane::conformance

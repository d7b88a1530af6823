// Loading plugins that are fine, and many that are not (tests/plugins).
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "core/base/abi_call.h"
#include "core/base/error.h"
#include "plugins/abi/backplane_kernels.h"
#include "plugins/host/host_table.h"
#include "plugins/host/registry.h"

namespace backplane::plugins {
namespace {

namespace fs = std::filesystem;

Registry fakes() { return Registry(SearchOptions{.plugins = {FAKE_PLUGINS}, .environment = {}, .folders = {}}); }

// The reason why a fake can't be loaded; empty if it can.
std::string load_problem(const char* name) {
  try {
    fakes().load(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    return error.what();
  }
  return {};
}

std::vector<DeviceEntry> devices_of(const char* plugin) {
  std::vector<DeviceEntry> devices;
  for (DeviceEntry& entry : fakes().list_devices()) {
    if (entry.plugin == plugin) devices.push_back(std::move(entry));
  }
  return devices;
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Loader, GoodPluginIsLoadedOnce) {
  const Registry registry = fakes();
  const auto plugin = registry.load("good");
  EXPECT_EQ(plugin->name(), "good");
  EXPECT_EQ(plugin->version(), "fake 1");
  EXPECT_EQ(plugin->abi_minor(), 0u);
  EXPECT_EQ(plugin->path(), fs::canonical(fs::path(FAKE_PLUGINS) / "good.so"));
  EXPECT_EQ(plugin->tables().size, sizeof(bp_tables));
  EXPECT_NE(plugin->tables().device->run, nullptr);
  EXPECT_EQ(plugin->tables().kv->create, nullptr);
  EXPECT_EQ(fakes().load("good"), plugin) << "a second registry must not call the entry point again";
}

TEST(Loader, DevicesOfGoodPlugin) {
  const auto devices = devices_of("good");
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "good:first");
  EXPECT_EQ(devices[1].name, "good:second.1");
  EXPECT_EQ(devices[1].index, 1u);
  EXPECT_TRUE(devices[1].available);
  EXPECT_EQ(devices[1].reason, "");
  EXPECT_EQ(devices[1].memory_total, 1001u);
  EXPECT_EQ(devices[1].description, "Line one line two");
}

TEST(Loader, WhatCannotBeLoadedSaysWhy) {
  EXPECT_CONTAINS(load_problem("wrong_major"), "exports backplane_plugin_v2, this core needs backplane_plugin_v1");
  EXPECT_CONTAINS(load_problem("no_symbol"), "not a Backplane plugin: it doesn't export backplane_plugin_v1");
  EXPECT_CONTAINS(load_problem("missing"), "lacks required functions: device.run, buffer.free");
  EXPECT_CONTAINS(load_problem("refuses"), "the moon is in the wrong phase");
  EXPECT_CONTAINS(load_problem("overrun"), "wrote outside the tables");
  EXPECT_CONTAINS(load_problem("renamed"), "calls itself 'original', not 'renamed'");
  EXPECT_CONTAINS(load_problem("unresolved"), "undefined symbol: function_of_an_absent_library");
  EXPECT_CONTAINS(load_problem("unheard_of"), "no plugin is called 'unheard_of'");
  EXPECT_CONTAINS(load_problem("unheard_of"), "good");
  EXPECT_EQ(load_problem("refuses"), load_problem("refuses")) << "a failure is final";
}

TEST(Loader, BadPluginsAreListedBesideGoodOnes) {
  for (const char* name : {"wrong_major", "no_symbol", "missing", "refuses", "overrun", "renamed", "unresolved"}) {
    const auto devices = devices_of(name);
    ASSERT_EQ(devices.size(), 1u) << name;
    EXPECT_EQ(devices[0].name, name);
    EXPECT_FALSE(devices[0].available);
    EXPECT_EQ(devices[0].reason, load_problem(name));
    EXPECT_EQ(devices[0].description, std::string("Fake: ") + name);
  }
}

TEST(Loader, PluginThatCannotCountIsUnavailable) {
  EXPECT_EQ(load_problem("no_driver"), "");
  const auto devices = devices_of("no_driver");
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_FALSE(devices[0].available);
  EXPECT_EQ(devices[0].reason, "the driver is not installed");
}

TEST(Loader, NewerPluginRunsOnThisCore) {
  const auto plugin = fakes().load("newer");
  EXPECT_EQ(plugin->abi_minor(), 7u);
  EXPECT_NE(plugin->tables().device->run, nullptr);
  EXPECT_EQ(plugin->tables().device->size, sizeof(bp_device_table));
  EXPECT_EQ(fakes().find_device("newer").name, "newer:0") << "without describe a device is named by its index";
}

TEST(Loader, OlderPluginLeavesTheRestUnimplemented) {
  const auto plugin = fakes().load("older");
  EXPECT_NE(plugin->tables().device->run, nullptr);
  EXPECT_EQ(plugin->tables().device->prepare, nullptr);
  EXPECT_EQ(plugin->tables().device->uncompile, nullptr);
}

TEST(Loader, IncompleteGroupIsDropped) {
  const auto plugin = fakes().load("half_group");
  EXPECT_EQ(plugin->tables().stream->create, nullptr);
  EXPECT_EQ(plugin->tables().stream->size, sizeof(bp_stream_table));
  EXPECT_NE(plugin->tables().graph->launch, nullptr);
}

TEST(Loader, DeviceNamesAreChecked) {
  const auto devices = devices_of("bad_names");
  ASSERT_EQ(devices.size(), 6u);
  EXPECT_TRUE(devices[0].available);
  EXPECT_EQ(devices[0].name, "bad_names:same");
  EXPECT_FALSE(devices[1].available);
  EXPECT_CONTAINS(devices[1].reason, "two devices");
  for (const int i : {2, 3}) {
    EXPECT_FALSE(devices[i].available);
    EXPECT_CONTAINS(devices[i].reason, "invalid name");
    EXPECT_EQ(devices[i].name, "bad_names:" + std::to_string(i));
  }
  EXPECT_FALSE(devices[4].available);
  EXPECT_EQ(devices[4].reason, "it fell off the bus");
  EXPECT_TRUE(devices[5].available);
  EXPECT_EQ(devices[5].description, std::string(128, 'y'));
}

TEST(Loader, FindDevice) {
  const Registry registry = fakes();
  EXPECT_EQ(registry.find_device("good").name, "good:first");
  const DeviceRef second = registry.find_device("good:second.1");
  EXPECT_EQ(second.index, 1u);
  EXPECT_EQ(second.plugin, registry.load("good"));
  EXPECT_EQ(registry.find_device("bad_names:last").index, 5u);
  const auto problem = [&](const char* name) -> std::string {
    try {
      registry.find_device(name);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      return error.what();
    }
    return {};
  };
  for (const char* name : {"good:third", "", ":", "nothing", "good:", "good:first:more", "nothing:first"}) {
    EXPECT_CONTAINS(problem(name), "no device is called '" + std::string(name) + "'");
    EXPECT_CONTAINS(problem(name), "good:first, good:second.1");
    EXPECT_EQ(problem(name).find("no_driver"), std::string::npos) << problem(name);
  }
  EXPECT_CONTAINS(problem("no_driver"), "the driver is not installed");
  EXPECT_CONTAINS(problem("no_driver:0"), "the driver is not installed");
  EXPECT_CONTAINS(problem("bad_names:4"), "it fell off the bus");
  EXPECT_CONTAINS(problem("missing"), "device.run");
}

TEST(Loader, FilesThatAreNoLibraries) {
  const fs::path folder = fs::path(::testing::TempDir()) / "backplane_not_elf";
  fs::remove_all(folder);
  fs::create_directories(folder / "folder.so");
  std::ofstream(folder / "text.so") << std::string(100, 'x') << " is not a shared library";
  std::ofstream(folder / "empty.so").flush();
  fs::copy_file(fs::path(FAKE_PLUGINS) / "good.so", folder / "cut.so");
  fs::resize_file(folder / "cut.so", 1000);
  fs::copy_file(fs::path(FAKE_PLUGINS) / "good.so", folder / "halved.so");
  fs::resize_file(folder / "halved.so", 6000);  // past the headers, before the end of the last segment
  for (const char* name : {"text", "empty", "cut", "halved"}) {
    const Registry registry(
        SearchOptions{.plugins = {folder / (std::string(name) + ".so")}, .environment = {}, .folders = {}});
    const auto devices = registry.list_devices();
    ASSERT_EQ(devices.size(), 1u);
    EXPECT_FALSE(devices[0].available);
    EXPECT_CONTAINS(devices[0].reason, (folder / name).string() + ".so");
    const bool cut = name[0] == 'c' || name[0] == 'h';
    EXPECT_CONTAINS(devices[0].reason, cut ? "is cut short" : name[0] == 't' ? "invalid ELF header" : "file too short");
  }
  std::ofstream(folder / "backplane_gone.json") << R"({"name": "gone", "abi_major": 1, "file": "gone.so"})";
  std::ofstream(folder / "backplane_next.json") << R"({"name": "next", "abi_major": 2, "file": "text.so"})";
  const auto devices = Registry(SearchOptions{.plugins = {folder}, .environment = {}, .folders = {}}).list_devices();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_CONTAINS(devices[0].reason, "library is not there");
  EXPECT_CONTAINS(devices[1].reason, "built for version 2 of the plugin ABI, this core speaks version 1");
  fs::remove_all(folder);
}

TEST(Loader, ThreadsLoadTheSamePlugin) {
  const Registry registry = fakes();
  std::vector<std::shared_ptr<const Plugin>> plugins(8);
  std::vector<std::thread> threads;
  for (auto& plugin : plugins) {
    threads.emplace_back([&] {
      plugin = registry.load("half_group");
      EXPECT_EQ(registry.list_devices().size(), registry.list_devices().size());
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& plugin : plugins) EXPECT_EQ(plugin, plugins[0]);
}

TEST(HostTable, ServicesAreThere) {
  const bp_host* host = host_table();
  EXPECT_EQ(host->size, sizeof(bp_host));
  EXPECT_EQ(host->abi_major, std::uint32_t{BP_ABI_MAJOR});
  EXPECT_EQ(host->query_extension(host->self, "anything"), nullptr);
  EXPECT_EQ(host->query_extension(host->self, nullptr), nullptr);
  const auto* kernels =
      static_cast<const bp_kernels_extension*>(host->query_extension(host->self, BP_KERNELS_EXTENSION));
  ASSERT_NE(kernels, nullptr);
  AbiCall op;
  EXPECT_EQ(op.kernel(), nullptr);
  kernels->took(op.context(), "the first");
  kernels->took(op.context(), "another");
  EXPECT_STREQ(op.kernel(), "the first");
  kernels->took(nullptr, "of nothing");
  host->log(host->self, 99, nullptr, nullptr);
  host->log(host->self, -1, "test", "dropped");
  EXPECT_EQ(host->fail(nullptr, BP_INVALID, "nowhere to keep it"), BP_INVALID);
  AbiCall call;
  EXPECT_EQ(host->fail(call.context(), BP_DEVICE_LOST, "first"), BP_DEVICE_LOST);
  EXPECT_EQ(host->fail(call.context(), BP_INVALID, "second"), BP_INVALID);
  EXPECT_EQ(call.text(), "first");
}

TEST(HostTable, LoopCoversEachItemOnce) {
  const bp_host* host = host_table();
  for (const unsigned threads : {1u, 3u}) {
    set_host_threads(threads);
    EXPECT_EQ(host->threads(host->self), threads);
    std::vector<std::atomic<int>> seen(1000);
    const bp_loop_body body = [](void* argument, std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
      EXPECT_LT(worker, host_table()->threads(host_table()->self));
      for (std::uint64_t i = begin; i < end; ++i) (*static_cast<std::vector<std::atomic<int>>*>(argument))[i]++;
    };
    host->parallel_for(host->self, seen.size(), 0, body, &seen);
    host->parallel_for(host->self, 0, 1, body, &seen);
    for (const auto& count : seen) EXPECT_EQ(count, 1);
  }
  set_host_threads(0);
}

TEST(HostTable, ThrowingBodyDoesNotEndTheProcess) {
  const bp_loop_body body = [](void*, std::uint64_t, std::uint64_t, std::uint32_t) { throw 1; };
  host_table()->parallel_for(host_table()->self, 10, 1, body, nullptr);
}

}  // namespace
}  // namespace backplane::plugins

// Today's plugins in a core of another version: an older one, whose structs and tables end earlier, or a later one,
// whose are longer and which asks for what today's plugins have never heard of. The header that this file is compiled
// with decides which; the library is the very one that is installed.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "tests/unit/versions/session.h"

namespace backplane::versions_test {
namespace {

bp_status fail(bp_context context, bp_status status, const char* text) {
  if (context != nullptr) *reinterpret_cast<std::string*>(context) = text;
  return status;
}

// What this core lends to plugins; beyond its size there is no memory.
const bp_host* host_table() {
  static const Fenced<bp_host>* const host = [] {
    auto* made = new Fenced<bp_host>;
    bp_host& table = *made->get();
    table.abi_major = BP_ABI_MAJOR;
    table.abi_minor = BP_ABI_MINOR;
    table.log = [](void*, std::int32_t, const char*, const char*) {};
    table.fail = fail;
    table.parallel_for = [](void*, std::uint64_t n, std::uint64_t, bp_loop_body body, void* argument) {
      body(argument, 0, n, 0);
    };
    table.threads = [](void*) -> std::uint32_t { return 1; };
    return made;
  }();
  return host->get();
}

struct Library {
  Watched<bp_driver_table> driver;
  Watched<bp_device_table> device;
  Watched<bp_buffer_table> buffer;
  Watched<bp_stream_table> stream;
  Watched<bp_weights_table> weights;
  Fenced<bp_tables> tables;
  std::string reason;
#ifdef BP_FEATURE_LATER
  Watched<bp_kv_table> kv;
  Watched<bp_graph_table> graph;
  Watched<bp_comm_table> comm;
  Watched<bp_later_table> later;
#endif

  explicit Library(const std::string& name) {
    const std::string path = BACKPLANE_PLUGIN_OUTPUT_DIR "/backplane_" + name + ".so";
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(dlerror());
    const auto entry = reinterpret_cast<bp_plugin_query_fn>(dlsym(handle, BP_ENTRY_POINT_NAME));
    if (entry == nullptr) throw std::runtime_error("the plugin has no entry point");
    tables->driver = driver.get();
    tables->device = device.get();
    tables->buffer = buffer.get();
    tables->stream = stream.get();
    tables->weights = weights.get();
#ifdef BP_FEATURE_LATER
    tables->kv = kv.get();
    tables->graph = graph.get();
    tables->comm = comm.get();
    tables->later = later.get();
#endif
    if (entry(host_table(), context(), tables.get()) != BP_OK) throw std::runtime_error("it refuses: " + reason);
  }

  bp_context context() { return reinterpret_cast<bp_context>(&reason); }

  bool intact() const {
    bool all = driver.intact() && device.intact() && buffer.intact() && stream.intact() && weights.intact();
#ifdef BP_FEATURE_LATER
    all = all && kv.intact() && graph.intact() && comm.intact() && later.intact();
#endif
    return all;
  }
};

Library& library(const std::string& name) {
  static Library cpu("cpu"), smallest("template");
  return name == "cpu" ? cpu : smallest;
}

class OtherCore : public ::testing::TestWithParam<const char*> {
 protected:
  Library& lib_ = library(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Plugins, OtherCore, ::testing::Values("cpu", "template"),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(OtherCore, PluginFillsWhatBothKnow) {
  EXPECT_TRUE(lib_.intact()) << "it wrote beyond the size of a table";
  EXPECT_STREQ(lib_.driver->name, GetParam());
  EXPECT_EQ(lib_.driver->abi_minor, 0u);
  EXPECT_TRUE(lib_.driver->count && lib_.driver->open && lib_.driver->close);
  EXPECT_TRUE(lib_.device->caps && lib_.device->supports && lib_.device->run);
  EXPECT_TRUE(lib_.buffer->alloc && lib_.buffer->free && lib_.buffer->upload && lib_.buffer->download);
  EXPECT_EQ(lib_.stream->create, nullptr);
#ifdef BP_FEATURE_LATER
  EXPECT_NE(lib_.buffer->copy, nullptr);
  EXPECT_EQ(lib_.driver->later, nullptr) << "what a plugin doesn't know it doesn't implement";
  EXPECT_EQ(lib_.device->later, nullptr);
  EXPECT_EQ(lib_.buffer->later, nullptr);
  EXPECT_EQ(lib_.later->act, nullptr);
#endif
}

TEST_P(OtherCore, CapabilitiesFitTheirStruct) {
  Session session(*lib_.tables.get(), 0, lib_.context(), lib_.reason);
  Watched<bp_caps> caps;
  ASSERT_EQ(lib_.device->caps(session.device(), session.context(), caps.get()), BP_OK) << lib_.reason;
  EXPECT_TRUE(caps.intact());
  EXPECT_EQ(caps->activation_type, bp_type{BP_TYPE_F32});
  EXPECT_NE(caps->alignment, 0u);
#ifdef BP_FEATURE_LATER
  EXPECT_EQ(caps->later, 0u);
  Watched<bp_device_info> info;
  ASSERT_EQ(lib_.driver->describe(session.context(), 0, info.get()), BP_OK);
  EXPECT_TRUE(info.intact());
  EXPECT_EQ(info->later, 0u);
#endif
}

TEST_P(OtherCore, MultipliesMatrices) {
  Session session(*lib_.tables.get(), 0, lib_.context(), lib_.reason);
  run_linear(session);
}

TEST(OtherCoreCpu, RunsABlockAndAttention) {
  Library& lib = library("cpu");
  Session session(*lib.tables.get(), 0, lib.context(), lib.reason);
  run_block(session);
  run_attention(session);
}

#ifdef BP_FEATURE_LATER

TEST_P(OtherCore, LaterAttributeIsDeclined) {
  Session session(*lib_.tables.get(), 0, lib_.context(), lib_.reason);
  bp_linear_args args{};
  args.x = session.put({1, 2}, {1, 2});
  args.weight.tensor = session.put({1, 2}, {3, 4});
  args.out = session.put({1, 1}, Floats(1));
  args.later = 5;  // a plugin of today can't see it, but for its bit
  bp_support support{};
  const bp_status status = session.ask(BP_OP_LINEAR, args, BP_FEATURE_LATER, &support);
  EXPECT_TRUE(status == BP_UNSUPPORTED || (status == BP_OK && (support.features & BP_FEATURE_LATER) == 0)) << status;
  EXPECT_EQ(support.later, 0u);
  args.later = 0;
  EXPECT_EQ(session.ask(BP_OP_LINEAR, args, 0, &support), BP_OK) << lib_.reason;
}

TEST_P(OtherCore, LaterOpTypeFlagAndMemoryAreNo) {
  Session session(*lib_.tables.get(), 0, lib_.context(), lib_.reason);
  bp_linear_args args{};
  args.x = session.put({1, 2}, {1, 2});
  args.weight.tensor = session.put({1, 2}, {3, 4});
  args.out = session.put({1, 1}, Floats(1));
  EXPECT_EQ(session.ask(BP_OP_LATER, args), BP_UNSUPPORTED);
  EXPECT_EQ(session.run(BP_OP_LATER, args), BP_UNSUPPORTED);
  args.weight.tensor.type = BP_TYPE_LATER;
  EXPECT_EQ(session.ask(BP_OP_LINEAR, args), BP_UNSUPPORTED);
  EXPECT_EQ(session.run(BP_OP_LINEAR, args), BP_UNSUPPORTED);

  bp_buffer buffer = nullptr;
  EXPECT_EQ(lib_.buffer->alloc(session.device(), session.context(), 64, BP_MEMORY_LATER, &buffer), BP_UNSUPPORTED);
  Fenced<bp_open_params> params;
  params->flags = BP_OPEN_LATER;
  bp_device device = nullptr;
  EXPECT_EQ(lib_.driver->open(session.context(), 0, params.get(), &device), BP_UNSUPPORTED);
}

TEST(OtherCoreCpu, LaterKindsAreNo) {
  Library& lib = library("cpu");
  Session session(*lib.tables.get(), 0, lib.context(), lib.reason);
  bp_norm_args norm{};
  norm.x = norm.out = session.put({1, 2}, {3, 4});
  norm.kind = BP_NORM_LATER;
  EXPECT_EQ(session.ask(BP_OP_NORM, norm), BP_UNSUPPORTED);
  EXPECT_EQ(session.run(BP_OP_NORM, norm), BP_UNSUPPORTED);
  bp_activation_args act{};
  act.x = act.out = norm.x;
  act.kind = BP_ACT_LATER;
  EXPECT_EQ(session.ask(BP_OP_ACT, act), BP_UNSUPPORTED);
  EXPECT_EQ(session.run(BP_OP_ACT, act), BP_UNSUPPORTED);
  expect_near(session.get(norm.x), {3, 4});
}

#endif

}  // namespace
}  // namespace backplane::versions_test

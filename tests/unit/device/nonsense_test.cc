// Plugins that answer nonsense: an Error that says so, never a crash.
#include <atomic>
#include <limits>

#include "tests/support/expect_error.h"
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

using device::Device;
using device::FallbackPolicy;
using test::load_on;
using test::open_opaque;

class NonsenseTest : public testing::Test {
 protected:
  NonsenseTest() : path_(write_tiny_llama(folder_, {.layers = 1})) {}

  std::unique_ptr<models::LoadedModel> load(std::shared_ptr<Device> device) {
    return load_on(path_, std::move(device), test::policy(FallbackPolicy::kAllow));
  }
  static std::shared_ptr<Device> open(const bp_tables& tables) { return Device::open({&tables, "opaque"}, 0); }
  static const bp_tables& real() { return test::find_opaque("opaque:f32").plugin->tables(); }

  test::TempFolder folder_;
  std::filesystem::path path_;
};

TEST_F(NonsenseTest, SuccessWithoutAHandle) {
  EXPECT_ERROR(open_opaque("opaque:f32", "lie=null_handle"), ErrorCode::kDevice, "success without a result");
  using Groups = std::set<std::string>;
  for (const Groups& without : {Groups{"stream"}, Groups{"stream", "weights"}, Groups{"stream", "weights", "kv"}}) {
    const auto device = open_opaque("opaque:f32", "lie=null_handle", without);
    EXPECT_ERROR(load(device), ErrorCode::kDevice, "success without a result");
  }
  test::TableSet& tables = test::changed_tables(real());
  tables.driver.open = [](bp_context, std::uint32_t, const bp_open_params*, bp_device*) { return bp_status{BP_OK}; };
  EXPECT_ERROR(open(tables.tables), ErrorCode::kDevice, "success without a result");
}

TEST_F(NonsenseTest, AHandleBesideAFailureIsNoHandle) {
  // Destroying it would end the process.
  const auto bad = [](auto* handle) {
    *handle = reinterpret_cast<std::remove_pointer_t<decltype(handle)>>(std::uintptr_t{0xBAD});
    return bp_status{BP_INTERNAL};
  };
  static constexpr auto kBad = bad;
  test::TableSet& stream = test::changed_tables(real());
  stream.stream.create = [](bp_device, bp_context, bp_stream* made) { return kBad(made); };
  EXPECT_ERROR(open(stream.tables), ErrorCode::kDevice, "internal error");
  test::TableSet& weights = test::changed_tables(real());
  weights.weights.create = [](bp_device, bp_context, const bp_weight_desc*, bp_weight* made) { return kBad(made); };
  EXPECT_ERROR(load(open(weights.tables)), ErrorCode::kDevice, "internal error");
  test::TableSet& kv = test::changed_tables(real());
  kv.kv.create = [](bp_device, bp_context, const bp_kv_desc*, bp_kv* made) { return kBad(made); };
  EXPECT_ERROR(load(open(kv.tables)), ErrorCode::kDevice, "internal error");
  test::TableSet& buffer = test::changed_tables(real());
  buffer.buffer.alloc = [](bp_device, bp_context, std::uint64_t, bp_memory, bp_buffer* made) { return kBad(made); };
  EXPECT_ERROR(load(open(buffer.tables)), ErrorCode::kDevice, "internal error");
}

TEST_F(NonsenseTest, APromiseThatWasAskedForAndIsNotGiven) {
  test::TableSet& changed = test::changed_tables(real());
  static const auto caps_of = real().device->caps;
  changed.device.caps = [](bp_device device, bp_context context, bp_caps* caps) {
    const bp_status status = caps_of(device, context, caps);
    caps->flags &= ~std::uint64_t{BP_CAP_BATCH_INVARIANT};
    return status;
  };
  EXPECT_NE(Device::open({&changed.tables, "opaque"}, 0), nullptr);
  EXPECT_NE(Device::open({&real(), "opaque"}, 0, true), nullptr);
  EXPECT_ERROR(Device::open({&changed.tables, "opaque"}, 0, true), ErrorCode::kDevice, "without both capabilities");
}

TEST_F(NonsenseTest, Capabilities) {
  EXPECT_ERROR(open_opaque("opaque:f32", "lie=caps"), ErrorCode::kDevice, "isn't a floating point type");
  EXPECT_ERROR(open_opaque("opaque:f32", "lie=alignment"), ErrorCode::kDevice, "isn't a power of two");
  static const auto real_caps = real().device->caps;
  test::TableSet& visible = test::changed_tables(real());
  visible.device.caps = [](bp_device device, bp_context context, bp_caps* caps) {
    const bp_status status = real_caps(device, context, caps);
    caps->flags |= BP_CAP_HOST_VISIBLE;
    std::memset(caps->name, 'x', sizeof(caps->name));  // without an end
    return status;
  };
  visible.buffer.map = nullptr;
  EXPECT_ERROR(open(visible.tables), ErrorCode::kDevice, "without a map function");
}

TEST_F(NonsenseTest, SupportAnswers) {
  EXPECT_ERROR(load(open_opaque("opaque:f32", "lie=workspace")), ErrorCode::kCapacity, "workspace");
  EXPECT_ERROR(load(open_opaque("opaque:f32", "lie=activation")), ErrorCode::kDevice, "an activation type that isn't");
}

TEST_F(NonsenseTest, YesWithoutTheFeaturesIsNo) {
  const auto cpu = test::open_device("cpu:f32");
  const auto want = test::run_all(*load_on(path_, cpu, {}, cpu));
  const auto model = load(open_opaque("opaque:f32", "lie=features"));
  test::expect_same(test::run_all(*model), want);
  bool found = false;
  for (const auto& entry : model->executor().ledger().entries()) {
    found |= entry.op == "ROPE" && entry.reason == "does not honor attributes 0x1000 of ROPE";
    EXPECT_NE(entry.op, "ADD") << "needs no feature";
  }
  EXPECT_TRUE(found);
}

TEST_F(NonsenseTest, UnknownStatusAndUnprintableText) {
  static const auto real_run = real().device->run;
  static std::atomic<int> countdown{5};
  test::TableSet& tables = test::changed_tables(real());
  tables.device.run = [](bp_device device, bp_stream stream, bp_context context, const bp_op* op) {
    return --countdown == 0 ? bp_status{77} : real_run(device, stream, context, op);
  };
  const auto model = load(open(tables.tables));
  EXPECT_ERROR(test::run_all(*model), ErrorCode::kDevice, "unknown status 77");
}

// prepare and unprepare in pairs, whatever fails.
struct Prepared {
  static inline std::atomic<int> live{0}, calls{0}, fail_at{0}, missing{0};
  static inline std::atomic<bool> null{false};
  static inline decltype(bp_device_table::run) real_run = nullptr;

  static bp_status prepare(bp_device, bp_context, const bp_op_query* query, bp_prepared* prepared) {
    const bool told = query->features != std::numeric_limits<std::uint64_t>::max() && query->largest && query->name;
    if (++calls == fail_at || !told) return BP_INTERNAL;
    if (null) return BP_OK;
    ++live;
    *prepared = reinterpret_cast<bp_prepared>(static_cast<std::uintptr_t>(query->code));
    return BP_OK;
  }
  static void unprepare(bp_device, bp_prepared) { --live; }
  static bp_status run(bp_device device, bp_stream stream, bp_context context, const bp_op* op) {
    if (reinterpret_cast<std::uintptr_t>(op->prepared) != op->code) ++missing;
    return real_run(device, stream, context, op);
  }
};

// The features that prepare is told: those that the op will have in the form that was chosen.
struct Told {
  static inline std::atomic<int> transposed{0}, canonical{0}, other{0};

  static bp_status prepare(bp_device, bp_context, const bp_op_query* query, bp_prepared* prepared) {
    const bool is_product = query->code == BP_OP_LINEAR_ACT || query->code == BP_OP_LINEAR_ADD;
    if (is_product && (query->features & BP_FEATURE_TRANSPOSED)) {
      ++transposed;
    } else if (query->code == BP_OP_ATTN_PREFILL && (query->features & BP_FEATURE_KV_CANONICAL)) {
      ++canonical;
    } else {
      ++other;
    }
    *prepared = reinterpret_cast<bp_prepared>(std::uintptr_t{1});
    return BP_OK;
  }
  static void unprepare(bp_device, bp_prepared) {}
};

TEST_F(NonsenseTest, PrepareIsToldTheForm) {
  const plugins::DeviceRef cpu = test::registry().find_device("cpu:f32");
  test::TableSet& tables = test::changed_tables(cpu.plugin->tables());
  tables.device.prepare = Told::prepare;
  tables.device.unprepare = Told::unprepare;
  const auto device = Device::open({&tables.tables, "cpu"}, cpu.index);
  const auto model = load_on(write_tiny_gpt2(folder_), device, {}, device);
  EXPECT_EQ(Told::transposed, 2 * 4) << "the matrices of two layers, used where they lie in the file";
  EXPECT_EQ(Told::canonical, 2);
  EXPECT_GT(Told::other, 10);
}

TEST_F(NonsenseTest, PreparedOps) {
  test::TableSet& tables = test::changed_tables(real());
  Prepared::real_run = tables.device.run;
  tables.device.run = Prepared::run;
  tables.device.prepare = Prepared::prepare;
  tables.device.unprepare = Prepared::unprepare;
  {
    const auto model = load(open(tables.tables));
    EXPECT_EQ(Prepared::live, Prepared::calls);
    EXPECT_GT(Prepared::live, 10);
    test::run_all(*model);
    EXPECT_EQ(Prepared::missing, 0) << "each op comes with what was prepared for it";
  }
  EXPECT_EQ(Prepared::live, 0);
  Prepared::fail_at = Prepared::calls + 5;
  EXPECT_ERROR(load(open(tables.tables)), ErrorCode::kDevice, "prepare");
  EXPECT_EQ(Prepared::live, 0);
  Prepared::null = true;
  EXPECT_ERROR(load(open(tables.tables)), ErrorCode::kDevice, "success without a result");
  EXPECT_EQ(Prepared::live, 0);
}

}  // namespace
}  // namespace backplane

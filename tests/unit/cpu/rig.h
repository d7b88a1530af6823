// The plugin as the core would load it, and tensors in its memory: everything here goes through the ABI.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/thread_pool.h"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cpu_test {

using plugin::type_info;
using Values = std::vector<double>;
using Shape = std::vector<std::int64_t>;

// The loaded library, once for the program; its host runs loops on as many threads as the test says.
class Library {
 public:
  static Library& get() {
    static Library library;
    return library;
  }

  void set_threads(unsigned count) { pool = std::make_unique<ThreadPool>(count); }

  bp_host host{};
  bp_driver_table driver{};
  bp_device_table device{};
  bp_buffer_table buffer{};
  std::unique_ptr<ThreadPool> pool = std::make_unique<ThreadPool>(2);

 private:
  Library() {
    void* handle = dlopen(BACKPLANE_PLUGIN_OUTPUT_DIR "/backplane_cpu.so", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(dlerror());
    const auto entry = reinterpret_cast<bp_plugin_query_fn>(dlsym(handle, BP_ENTRY_POINT_NAME));
    if (entry == nullptr) throw std::runtime_error("the plugin has no entry point");
    host.size = sizeof(host);
    host.abi_major = BP_ABI_MAJOR;
    host.abi_minor = BP_ABI_MINOR;
    host.self = this;
    host.log = [](void*, std::int32_t, const char*, const char*) {};
    host.fail = [](bp_context context, bp_status status, const char* text) {
      if (context != nullptr) *reinterpret_cast<std::string*>(context) = text;
      return status;
    };
    host.parallel_for = [](void* self, std::uint64_t n, std::uint64_t grain, bp_loop_body body, void* argument) {
      static_cast<Library*>(self)->pool->parallel_for(
          n, grain, [&](std::uint64_t begin, std::uint64_t end, unsigned w) { body(argument, begin, end, w); });
    };
    host.threads = [](void* self) -> std::uint32_t { return static_cast<Library*>(self)->pool->threads(); };
    host.query_extension = [](void*, const char*) -> const void* { return nullptr; };
    bp_tables tables{};
    tables.size = sizeof(tables);
    tables.driver = &driver;
    tables.device = &device;
    tables.buffer = &buffer;
    driver.size = sizeof(driver);
    device.size = sizeof(device);
    buffer.size = sizeof(buffer);
    if (entry(&host, nullptr, &tables) != BP_OK) throw std::runtime_error("the plugin refuses");
  }
};

// A device with the buffers of a test.
class Rig {
 public:
  explicit Rig(std::uint32_t index, unsigned threads = 2) : index_(index) {
    Library::get().set_threads(threads);
    bp_open_params params{};
    params.size = sizeof(params);
    EXPECT_EQ(Library::get().driver.open(context(), index, &params, &device_), BP_OK) << reason;
  }
  ~Rig() {
    for (bp_buffer buffer : buffers_) lib_.buffer.free(device_, buffer);
    lib_.driver.close(device_);
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  bp_type real() const { return index_ == 0 ? BP_TYPE_F32 : BP_TYPE_F64; }
  // Relative error that an op with sums of some hundred terms may have.
  double tolerance() const { return index_ == 0 ? 2e-5 : 1e-13; }
  bp_device device() const { return device_; }
  bp_context context() { return reinterpret_cast<bp_context>(&reason); }

  bp_buffer alloc(std::uint64_t bytes) {
    bp_buffer buffer = nullptr;
    EXPECT_EQ(lib_.buffer.alloc(device_, context(), bytes, BP_MEMORY_DEVICE, &buffer), BP_OK) << reason;
    buffers_.push_back(buffer);
    return buffer;
  }

  // Memory of exactly that size, so that a sanitizer sees a step beyond it.
  bp_tensor bytes(bp_type type, const Shape& shape, const void* data = nullptr, std::int64_t gap = 0) {
    bp_tensor t = layout(type, shape, gap);
    const std::uint64_t size = std::max<std::uint64_t>(1, *plugin::extent_bytes(t));
    t.buffer = alloc(size);
    std::memset(address(t), 0, size);
    if (data != nullptr && gap == 0) std::memcpy(address(t), data, *plugin::extent_bytes(t));
    return t;
  }

  // A tensor of a plain type with these values; `gap` bytes lie between its rows (of the innermost dimension).
  bp_tensor tensor(bp_type type, const Shape& shape, const Values& values, std::int64_t gap = 0) {
    bp_tensor t = bytes(type, shape, nullptr, gap);
    for (std::size_t i = 0; i < values.size(); ++i) put(type, values[i], element(t, i));
    return t;
  }
  bp_tensor reals(const Shape& shape, const Values& values, std::int64_t gap = 0) {
    return tensor(real(), shape, values, gap);
  }
  bp_tensor reals(const Shape& shape, std::int64_t gap = 0) { return bytes(real(), shape, nullptr, gap); }

  Values read(const bp_tensor& t) {
    Values values(*plugin::element_count(t));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = get(t.type, element(t, i));
    return values;
  }

  std::byte* address(const bp_tensor& t) {
    void* base = nullptr;
    EXPECT_EQ(lib_.buffer.map(device_, context(), t.buffer, &base), BP_OK);
    return static_cast<std::byte*>(base) + t.offset;
  }

  // Asks for support with the arguments themselves, then runs with the workspace that was asked for.
  template <class Args>
  bp_status run(std::uint32_t code, Args args, std::uint64_t features = BP_FEATURE_KV_CANONICAL) {
    args.size = sizeof(args);
    bp_support answer{};
    const bp_status status = ask(code, args, &answer, features);
    if (status != BP_OK) return status;
    return run_with(code, args, answer.workspace_bytes);
  }

  template <class Args>
  bp_status ask(std::uint32_t code, Args args, bp_support* answer, std::uint64_t features = BP_FEATURE_KV_CANONICAL) {
    args.size = sizeof(args);
    bp_op_query query{};
    query.size = sizeof(query);
    query.code = code;
    query.smallest = query.largest = &args;
    const bool cache = code == BP_OP_KV_WRITE || code == BP_OP_ATTN_PREFILL || code == BP_OP_ATTN_DECODE ||
                       code == BP_OP_QKV_ROPE_WRITE;
    query.features = cache ? features : features & ~std::uint64_t{BP_FEATURE_KV_CANONICAL};
    answer->size = sizeof(*answer);
    reason.clear();
    return lib_.device.supports(device_, context(), &query, answer);
  }

  template <class Args>
  bp_status run_with(std::uint32_t code, Args args, std::uint64_t workspace_bytes) {
    args.size = sizeof(args);
    bp_op op{};
    op.size = sizeof(op);
    op.code = code;
    op.args = &args;
    if (workspace_bytes > 0) op.workspace = alloc(workspace_bytes);
    op.workspace_bytes = workspace_bytes;
    reason.clear();
    return lib_.device.run(device_, nullptr, context(), &op);
  }

  std::string reason;  // of the last call that failed

 private:
  static bp_tensor layout(bp_type type, const Shape& shape, std::int64_t gap) {
    bp_tensor t{};
    t.type = type;
    t.rank = static_cast<std::uint32_t>(shape.size());
    std::int64_t stride = type_info(type).block_bytes;
    for (auto& size : t.shape) size = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      t.shape[i] = shape[i];
      t.stride[i] = stride;
      stride *= i + 1 == shape.size() ? shape[i] / type_info(type).block_elements : shape[i];
      if (i + 1 == shape.size()) stride += gap;
    }
    return t;
  }

  std::byte* element(const bp_tensor& t, std::size_t number) {
    std::int64_t offset = 0;
    for (std::uint32_t i = t.rank; i-- > 0;) {
      offset += static_cast<std::int64_t>(number) % t.shape[i] * t.stride[i];
      number /= static_cast<std::size_t>(t.shape[i]);
    }
    return address(t) + offset;
  }

  template <class T>
  static void store(double value, std::byte* to) {
    const auto stored = static_cast<T>(value);
    std::memcpy(to, &stored, sizeof(stored));
  }
  template <class T>
  static double load(const std::byte* from) {
    T stored;
    std::memcpy(&stored, from, sizeof(stored));
    return static_cast<double>(stored);
  }
  static void put(bp_type type, double value, std::byte* to) {
    if (type == BP_TYPE_F64) store<double>(value, to);
    if (type == BP_TYPE_F32) store<float>(value, to);
    if (type == BP_TYPE_I32) store<std::int32_t>(value, to);
    if (type == BP_TYPE_U64) store<std::uint64_t>(value, to);
    if (type == BP_TYPE_BF16) {  // values that BF16 holds exactly
      const auto single = static_cast<float>(value);
      std::memcpy(to, reinterpret_cast<const std::byte*>(&single) + 2, 2);
    }
  }
  static double get(bp_type type, const std::byte* from) {
    if (type == BP_TYPE_F64) return load<double>(from);
    if (type == BP_TYPE_F32) return load<float>(from);
    if (type == BP_TYPE_I32) return load<std::int32_t>(from);
    std::uint32_t bits = 0;
    std::memcpy(&bits, from, type_info(type).block_bytes);
    if (type == BP_TYPE_BF16) {
      bits <<= 16;
      return load<float>(reinterpret_cast<const std::byte*>(&bits));
    }
    return bits;
  }

  Library& lib_ = Library::get();
  std::uint32_t index_;
  bp_device device_ = nullptr;
  std::vector<bp_buffer> buffers_;
};

// Values that F32 holds exactly, so that both devices and the formulas see the same.
inline Values random_values(std::size_t count, unsigned seed, double scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Values values(count);
  for (double& value : values) value = static_cast<float>(normal(generator) * scale);
  return values;
}

inline void expect_near(const Values& actual, const Values& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 1e-30;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * largest) << "element " << i;
  }
}

// Both devices.
class CpuTest : public ::testing::TestWithParam<std::uint32_t> {};
inline std::string device_name(const ::testing::TestParamInfo<std::uint32_t>& info) {
  return info.param == 0 ? "f32" : "f64";
}

}  // namespace backplane::cpu_test

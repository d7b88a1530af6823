// One op at a time on the fast CPU, with weights of its own layout.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "plugins/host/host_table.h"
#include "plugins/sdk/backplane_plugin.hpp"
#include "tests/support/devices.h"
#include "tests/support/tiny_model.h"

namespace backplane::test {

// An open onednn:0 with the buffers and weights of a test.
class Onednn {
 public:
  // Nothing where this plugin, or this build of it, hasn't such options.
  static std::optional<Onednn> open(const std::string& options) {
    const plugins::DeviceRef ref = registry().find_device("onednn:0");
    try {
      return Onednn(device::Device::open({&ref.plugin->tables(), ref.plugin->name()}, ref.index, false, options));
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  Onednn(Onednn&&) = default;
  ~Onednn() {
    for (bp_weight weight : weights_) device_->tables().weights->destroy(device_->handle(), weight);
  }

  // Zeros; rows lie `gap` elements further apart than they are long.
  bp_tensor tensor(bp_type type, std::int64_t rows, std::int64_t columns, std::int64_t gap = 0) {
    bp_tensor t{};
    t.type = type;
    t.rank = 2;
    const std::int64_t element = plugin::type_info(type).block_bytes;
    std::fill(std::begin(t.shape), std::end(t.shape), 1);
    t.shape[0] = rows;
    t.shape[1] = columns;
    t.stride[0] = (columns + gap) * element;
    t.stride[1] = element;
    buffers_.push_back(device_->alloc(static_cast<std::uint64_t>(rows * t.stride[0]), "test"));
    t.buffer = buffers_.back().handle();
    std::memset(buffers_.back().host(), 0, buffers_.back().bytes());
    return t;
  }
  template <class T>
  T* row(const bp_tensor& t, std::int64_t r) {
    for (const device::Buffer& buffer : buffers_) {
      if (buffer.handle() == t.buffer) return reinterpret_cast<T*>(buffer.host() + t.offset + r * t.stride[0]);
    }
    return nullptr;
  }
  bp_tensor floats(const std::vector<float>& values, std::int64_t rows, std::int64_t gap = 0) {
    const auto columns = static_cast<std::int64_t>(values.size()) / rows;
    const bp_tensor t = tensor(BP_TYPE_F32, rows, columns, gap);
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(values.data() + r * columns, columns, row<float>(t, r));
    return t;
  }

  // Imported from a file's bytes.
  bp_matrix matrix(bp_type type, std::int64_t rows, std::int64_t columns, std::span<const std::byte> data) {
    bp_weight_part part{};
    part.size = sizeof(part);
    part.type = type;
    part.rows = static_cast<std::uint64_t>(rows);
    part.columns = static_cast<std::uint64_t>(columns);
    bp_weight_desc desc{};
    desc.size = sizeof(desc);
    desc.uses = BP_USE_LINEAR;
    desc.parts = &part;
    desc.part_count = 1;
    desc.part_stride = sizeof(part);
    const bp_weights_table& table = *device_->tables().weights;
    bp_matrix made{};
    made.weight = device_->create<bp_weight>("create", [&](bp_context context, bp_weight* weight) {
      return table.create(device_->handle(), context, &desc, weight);
    });
    weights_.push_back(made.weight);
    device_->call("import", [&](bp_context context) {
      return table.import_rows(device_->handle(), device_->stream(), context, made.weight, 0, 0, part.rows, data.data(),
                               data.size());
    });
    device_->call("finish", [&](bp_context context) {
      return table.finish(device_->handle(), device_->stream(), context, made.weight);
    });
    made.tensor.type = type;
    made.tensor.rank = 2;
    std::fill(std::begin(made.tensor.shape), std::end(made.tensor.shape), 1);
    made.tensor.shape[0] = rows;
    made.tensor.shape[1] = columns;
    return made;
  }

  // Throws Error where the device refuses.
  template <class Args>
  void run(std::uint32_t code, Args args) {
    args.size = sizeof(args);
    bp_op_query query{};
    query.size = sizeof(query);
    query.code = code;
    query.smallest = query.largest = &args;
    const device::Support support = device_->supports(query);
    ASSERT_TRUE(support.yes) << support.reason;
    bp_op op{};
    op.size = sizeof(op);
    op.code = code;
    op.args = &args;
    op.workspace_bytes = support.answer.workspace_bytes;
    if (op.workspace_bytes > 0) {
      buffers_.push_back(device_->alloc(op.workspace_bytes, "test"));
      op.workspace = buffers_.back().handle();
    }
    device_->run(op);
    device_->sync();
  }

 private:
  explicit Onednn(std::shared_ptr<device::Device> device) : device_(std::move(device)) {}

  std::shared_ptr<device::Device> device_;
  std::vector<device::Buffer> buffers_;
  std::vector<bp_weight> weights_;
};

}  // namespace backplane::test

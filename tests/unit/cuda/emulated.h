// A device of the CUDA backend on the emulation, and small things to do with it.
#pragma once

#include <cuda_emulation/control.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/device/device.h"
#include "plugins/host/registry.h"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::test {

inline std::shared_ptr<device::Device> open_emulated(std::uint32_t index = 0, bool deterministic = false) {
  static const plugins::Registry registry(
      plugins::SearchOptions{.plugins = {}, .environment = {}, .folders = {CUDA_EMULATED_DIR}});
  const auto plugin = registry.load("cuda_emulated");
  return device::Device::open({&plugin->tables(), plugin->name()}, index, deterministic);
}

// A contiguous [rows,columns] with memory of its own.
struct Tensor {
  Tensor(const std::shared_ptr<device::Device>& on, bp_type type, std::int64_t rows, std::int64_t columns) {
    const std::int64_t element = plugin::type_info(type).block_bytes;
    view.type = type;
    view.rank = 2;
    std::fill(std::begin(view.shape), std::end(view.shape), 1);
    view.shape[0] = rows;
    view.shape[1] = columns;
    view.stride[0] = columns * element;
    view.stride[1] = element;
    buffer = on->alloc(static_cast<std::uint64_t>(rows * columns * element), "a test");
    view.buffer = buffer.handle();
  }
  Tensor(const std::shared_ptr<device::Device>& on, std::int64_t rows, const std::vector<float>& values)
      : Tensor(on, BP_TYPE_F32, rows, static_cast<std::int64_t>(values.size()) / rows) {
    on->upload(buffer, 0, std::as_bytes(std::span(values)));
  }
  std::vector<float> read(device::Device& on) const {
    std::vector<float> values(buffer.bytes() / sizeof(float));
    on.download(buffer, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }

  device::Buffer buffer;
  bp_tensor view{};
};

template <class Args>
void enqueue(device::Device& on, std::uint32_t code, Args args, const device::Buffer* workspace = nullptr) {
  args.size = sizeof(args);
  bp_op op{};
  op.size = sizeof(op);
  op.code = code;
  op.layer = UINT32_MAX;
  op.args = &args;
  if (workspace != nullptr) {
    op.workspace = workspace->handle();
    op.workspace_bytes = workspace->bytes();
  }
  on.run(op);
}

// out = 2 x
inline void enqueue_doubling(device::Device& on, const Tensor& x, const Tensor& out) {
  bp_scalar_args args{};
  args.x = x.view;
  args.out = out.view;
  args.value = 2;
  enqueue(on, BP_OP_SCALE, args);
}

}  // namespace backplane::test

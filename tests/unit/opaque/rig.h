// Single calls on the opaque test plugin, past the core.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/device/storage.h"
#include "tests/support/opaque_device.h"

namespace backplane::test {

// x += x on four numbers, on a stream of its own.
class Rig {
 public:
  explicit Rig(const std::string& options = {})
      : device_(open_opaque("opaque:f32", options.empty() ? report.option() : report.option() + "," + options)),
        buffer_(device_->alloc(16, "test")),
        stream_(make_stream()) {
    set({1, 2, 3, 4});
  }
  ~Rig() {
    if (stream_) device_->tables().stream->destroy(device_->handle(), stream_);
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  device::Device& device() { return *device_; }
  bp_stream stream() const { return stream_; }
  std::string reason() const { return reason_; }  // of the last call that failed

  // function(tables, device, stream, context) -> bp_status
  template <class Function>
  bp_status call(Function&& function) {
    AbiCall abi;
    const bp_status status = function(device_->tables(), device_->handle(), stream_, abi.context());
    if (status != BP_OK) reason_ = abi.text();
    return status;
  }
  bp_status twice() {
    bp_binary_args args{};
    args.size = sizeof(args);
    args.a = args.b = args.out = tensor();
    args.alpha = 1;
    return run(BP_OP_ADD, args);
  }
  template <class Args>
  bp_status run(std::uint32_t code, const Args& args) {
    bp_op op{};
    op.size = sizeof(op);
    op.code = code;
    op.args = &args;
    return call([&](auto& tables, auto... at) { return start(tables, at..., op); });
  }
  bp_status sync() {
    return call([](auto& tables, auto... at) { return tables.stream->sync(at...); });
  }
  bp_status begin() {
    return call([](auto& tables, auto... at) { return tables.graph->capture_begin(at...); });
  }
  bp_status end(bp_graph& graph) {
    return call([&](auto& tables, auto... at) { return tables.graph->capture_end(at..., &graph); });
  }
  bp_status launch(bp_graph graph) {
    return call([&](auto& tables, auto... at) { return tables.graph->launch(at..., graph); });
  }
  void destroy(bp_graph graph) { device_->tables().graph->destroy(device_->handle(), graph); }

  bp_tensor tensor() const { return device::make_tensor(nullptr, DType::kF32, {1, 4}).abi(buffer_.handle()); }
  void set(const std::vector<float>& values) { device_->upload(buffer_, 0, std::as_bytes(std::span(values))); }
  // What the buffer holds; on the device's own stream.
  std::vector<float> get() {
    std::vector<float> values(4);
    device_->download(buffer_, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }

  opaque::Report report;  // first: the device outlives everything else

 private:
  static bp_status start(const bp_tables& tables, bp_device device, bp_stream stream, bp_context context,
                         const bp_op& op) {
    return tables.device->run(device, stream, context, &op);
  }
  bp_stream make_stream() {
    return device_->create<bp_stream>("create", [&](bp_context context, bp_stream* stream) {
      return device_->tables().stream->create(device_->handle(), context, stream);
    });
  }

  std::shared_ptr<device::Device> device_;
  device::Buffer buffer_;
  bp_stream stream_;
  std::string reason_;
};

}  // namespace backplane::test

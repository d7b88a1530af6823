// One device in a case: the subject or the oracle. Makes tensors with guards around them, and runs ops.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "tests/conformance/numbers.h"
#include "tests/conformance/outcome.h"
#include "tests/conformance/query.h"

namespace backplane::conformance {

// Whether the plugin implements a table; all of it or none (the loader sees to that).
bool has_streams(const device::Device& device);
bool has_weights(const device::Device& device);
bool has_kv(const device::Device& device);
bool has_graphs(const device::Device& device);
bool has_comm(const device::Device& device);
bool has_compile(const device::Device& device);

class Side {
 public:
  enum class Role { kSubject, kOracle };
  // The oracle keeps activations and parameters in F64, whatever `activation` the subject has.
  // `own_stream`: works on a stream of its own (where the plugin has streams), not on the device's.
  Side(std::shared_ptr<device::Device> device, Role role, DType activation, bool own_stream = false);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  device::Device& device() { return *device_; }
  bool is_oracle() const { return role_ == Role::kOracle; }
  DType activation() const { return activation_; }
  DType parameter_type() const { return activation_ == DType::kF64 ? DType::kF64 : DType::kF32; }

  // From now on the rows of activations have gaps between them and start at any element.
  void set_gaps(bool gaps) { gaps_ = gaps; }
  bool gaps() const { return gaps_; }

  // Whole tensors in buffers of their own. What surrounds them, and outputs before they are written, is NaN.
  bp_tensor input(const Array& values) { return place(activation_, values, gaps_); }
  bp_tensor parameters(const Array& values) { return place(parameter_type(), values, false); }
  bp_tensor exact(DType type, const Array& values) { return place(type, values, false); }
  bp_tensor raw(DType type, const Shape& shape, std::span<const std::byte> contiguous, bool gaps = false);
  bp_tensor output(const Shape& shape) { return output(activation_, shape, gaps_); }
  bp_tensor output(DType type, const Shape& shape, bool gaps = false);
  // The op may write these elements.
  void changes(const bp_tensor& tensor);

  // Asks, prepares, runs and waits. Throws Skipped with the plugin's reason, Retyped, or Failed.
  template <class Args>
  void run(std::uint32_t code, Args args, std::uint64_t features = 0) {
    enqueue(ready(code, args, features), args);
    sync();
  }
  // The same in steps: what an op needs beside its arguments, which this side keeps; then any number of runs.
  struct Ready {
    std::uint32_t code = 0;
    bp_prepared prepared = nullptr;
    bp_tensor workspace{};
    std::uint64_t workspace_bytes = 0;
  };
  template <class Args>
  Ready ready(std::uint32_t code, Args args, std::uint64_t features = 0) {
    return ready_between(code, args, args, features);
  }
  // For every shape between the two.
  template <class Args>
  Ready ready_between(std::uint32_t code, Args smallest, Args largest, std::uint64_t features = 0) {
    smallest.size = largest.size = sizeof(Args);
    const Planned<Args> least(smallest), most(largest);
    return make_ready(question(code, &least.get(), &most.get(), features));
  }
  template <class Args>
  void enqueue(const Ready& op, Args args) {
    std::string reason;
    expect_ok(op, try_enqueue(op, args, reason), reason);
  }
  template <class Args>
  bp_status try_enqueue(const Ready& op, Args args, std::string& reason) {
    args.size = sizeof(args);
    return start(op, &args, reason);
  }
  // Only asks.
  template <class Args>
  const bp_support& ask(std::uint32_t code, Args args, std::uint64_t features = 0) {
    args.size = sizeof(args);
    const Planned<Args> planned(args);
    question(code, &planned.get(), &planned.get(), features);
    return answer_;
  }
  // What run is called with. `args` must be complete, size included.
  bp_op op(const Ready& ready_op, const void* args) const;
  const bp_support& support() const { return answer_; }  // of the last op that was asked for

  bp_stream stream() const { return stream_; }
  void sync();
  std::vector<std::byte> bytes(const bp_tensor& tensor);  // its elements, contiguous
  Array read(const bp_tensor& tensor);
  // Replaces the elements; the tensor is contiguous.
  void write(const bp_tensor& tensor, std::span<const std::byte> contiguous);
  void check_guards();

  // Counts and arrays of a step, also on the device. Both live as long as this object; the host's arrays are the
  // caller's.
  const bp_step* step(const bp_step& counts_and_arrays);
  // An array of the step on the device as a tensor, such as ROPE's positions: `offset` is that of the array.
  bp_tensor step_array(const bp_step& step, std::uint64_t offset, std::int64_t count) const;
  // Brings arrays of the same sizes to where the step's are on the device, ordered on the stream, and waits.
  void rewrite(const bp_step& step, const bp_step& arrays);

  // Destroys it before this side's buffers are freed.
  void keep(std::shared_ptr<void> object) { kept_.push_back(std::move(object)); }

 private:
  static constexpr std::byte kPoison{0xff};  // NaN in every float type, -1 in integers
  static constexpr std::uint64_t kGuard = 64;
  struct Slab {
    device::Buffer buffer;
    std::vector<std::byte> image;    // what it should hold, outputs apart
    std::vector<bp_tensor> outputs;  // what ops may have written
  };
  bp_tensor place(DType type, const Array& values, bool gaps);
  bp_tensor layout(DType type, const Shape& shape, bool gaps, Slab& slab);
  void upload(Slab& slab);
  Slab& slab_of(bp_buffer buffer);
  static void fill_step(std::vector<std::byte>& image, const bp_step& offsets, const bp_step& arrays);
  std::vector<std::byte> download(const Slab& slab);
  bp_op_query question(std::uint32_t code, const void* smallest, const void* largest, std::uint64_t features);
  Ready make_ready(const bp_op_query& query);
  bp_status start(const Ready& op, const void* args, std::string& reason);
  void expect_ok(const Ready& op, bp_status status, const std::string& reason) const;

  std::shared_ptr<device::Device> device_;
  Role role_;
  DType activation_;
  bp_stream stream_;
  bool owns_stream_ = false;
  bool gaps_ = false;
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::vector<std::unique_ptr<bp_step>> steps_;
  std::vector<std::shared_ptr<void>> kept_;
  bp_support answer_{};
};

}  // namespace backplane::conformance

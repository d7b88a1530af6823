// The ops. Each has two functions; the SDK's `check` has seen types and shapes before:
//   workspace_bytes   what `run` can use of a workspace, for the largest shapes
//   run               enqueues the op; it still looks at where tensors lie
#pragma once

#include <cstdint>
#include <span>

#include "backends/cuda/device.h"
#include "plugins/sdk/backplane_kernels.hpp"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cuda {

// What `run` gets beside the arguments.
struct Call {
  Stream& stream;
  bp_context context;
  const bp_op& op;
};

template <class Args>
std::uint64_t workspace_bytes(const Args&) {
  return 0;
}
std::uint64_t workspace_bytes(const bp_linear_args& args);
std::uint64_t workspace_bytes(const bp_attention_args& args);
std::uint64_t workspace_bytes(const bp_qkv_args& args);
std::uint64_t workspace_bytes(const bp_gateup_args& args);
// For one that depends on the device, too.
template <class Args>
std::uint64_t workspace_bytes(const Device&, const Args& args) {
  return workspace_bytes(args);
}
std::uint64_t workspace_bytes(const Device& device, const bp_head_argmax_args& args);

void run(const Call&, const bp_embed_args&);
void run(const Call&, const bp_norm_args&);
void run(const Call&, const bp_linear_args&);
void run(const Call&, const bp_rope_args&);
void run(const Call&, const bp_kv_write_args&);
void run(const Call&, const bp_attention_args&);
void run(const Call&, const bp_activation_args&);
void run(const Call&, const bp_glu_args&);
void run(const Call&, const bp_binary_args&);
void run(const Call&, const bp_scalar_args&);  // SCALE, SOFTCAP, and FILL:
void fill(const Call&, const bp_scalar_args&);
void run(const Call&, const bp_unary_args&);
// Refuses what CAST has no kernel for.
void check_cast(std::uint32_t code, const bp_unary_args&);
void run(const Call&, const bp_gather_args&);
void run(const Call&, const bp_topk_args&);
void run(const Call&, const bp_sample_args&);
void run(const Call&, const bp_advance_args&);
void run(const Call&, const bp_add_norm_args&);
void run(const Call&, const bp_qkv_args&);
void run(const Call&, const bp_gateup_args&);
void run(const Call&, const bp_head_argmax_args&);

// ---- From tensors to what kernels take. All throw BP_INVALID for what doesn't lie in its buffer.

// The strides of a tensor that was checked, for data at `data`.
Rows rows_at(const bp_tensor& tensor, void* data);

template <class T>
Rows rows_of(const bp_tensor& tensor, const char* name) {
  const plugin::View<T> view(tensor, name);
  return plugin::is_empty(tensor) ? Rows{} : rows_at(tensor, const_cast<std::remove_const_t<T>*>(view.data()));
}
// Activations, whose type the SDK's check has seen.
inline Rows input(const bp_tensor& tensor, const char* name) {
  return tensor.type == BP_TYPE_BF16 ? rows_of<const std::uint16_t>(tensor, name) : rows_of<const float>(tensor, name);
}
inline Rows output(const bp_tensor& tensor, const char* name) {
  return tensor.type == BP_TYPE_BF16 ? rows_of<std::uint16_t>(tensor, name) : rows_of<float>(tensor, name);
}

// A vector of a type, or null for one that is absent.
template <class T>
T* vector_of(const bp_tensor& tensor, const char* name) {
  if (plugin::is_absent(tensor) || plugin::is_empty(tensor)) return nullptr;
  return plugin::View<T>(tensor, name).data();
}

Matrix matrix_of(const bp_matrix& matrix, const char* name);

// What single ops are to the kernels; fused ones contain them.
NormCall norm_call(const bp_norm_args& args, const bp_tensor& x, const bp_tensor& out);
// Gives an op's products the norm of their x, where there is one: few tokens' products make it themselves, for others
// it is enqueued.
void take_norm(const Call& call, const bp_norm_args* x_norm, const bp_tensor& x, std::span<LinearCall> products);
RopeCall rope_call(const Call& call, const bp_rope_args& args, const bp_tensor& x);
KvWriteCall kv_write_call(const Call& call, const bp_kv_write_args& args);

// An array of the step, where it lies on the device.
template <class T>
const T* step_array(const bp_step& step, std::uint64_t offset, std::uint64_t count) {
  if (count == 0) return nullptr;
  plugin::require(step.buffer != nullptr, "a step that is not on the device");
  const plugin::HostBuffer& buffer = plugin::host_buffer(step.buffer);
  plugin::require(offset <= buffer.bytes && count <= (buffer.bytes - offset) / sizeof(T) && offset % alignof(T) == 0,
                  "an array of the step lies outside its buffer");
  return reinterpret_cast<const T*>(buffer.data + offset);
}

template <class KernelCall>
void launch(const Call& call, KernelCall&& kernel) {
  plugin::took(call.context, kernel_name(kernel));
  if constexpr (requires { kernel.activation; }) kernel.activation = call.stream.device.activation;
  check(enqueue(call.stream.handle, kernel), "a kernel's launch");
}

// By cuBLASLt where that takes it and the op has the workspace of a LINEAR, else by our own kernels.
void launch_product(const Call& call, LinearCall& product);

}  // namespace backplane::cuda

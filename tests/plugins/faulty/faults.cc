// The faults that change what an op computes.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "faulty.h"

namespace faulty {
namespace {

using backplane::plugin::float_to_half;
using backplane::plugin::half_to_float;

float* row_of(const bp_tensor& tensor, std::int64_t row) {
  return reinterpret_cast<float*>(address_of(tensor) + row * tensor.stride[0]);
}

void run_cpu(Device& device, const bp_op& op) {
  call_cpu([&](bp_context context) { return cpu().device->run(device.cpu, nullptr, context, &op); });
}

template <class Args>
void run_changed(Device& device, bp_op op, const Args& args) {
  op.args = &args;
  run_cpu(device, op);
}

// For every query head by itself, with the pages of one KV head.
void attend_by_head(Device& device, const bp_op& op, const bp_attention_args& given) {
  for (std::int64_t h = 0; h < given.q.shape[1]; ++h) {
    bp_attention_args args = given;
    const auto take = [](bp_tensor& tensor, int dimension, std::int64_t index) {
      tensor.offset += static_cast<std::uint64_t>(index * tensor.stride[dimension]);
      tensor.shape[dimension] = 1;
    };
    take(args.q, 1, h);
    take(args.out, 1, h);
    take(args.k_pages, 2, h % given.kv_heads);
    take(args.v_pages, 2, h % given.kv_heads);
    if (!sdk::is_absent(args.sinks)) take(args.sinks, 0, h);
    args.kv_heads = 1;
    run_changed(device, op, args);
  }
}

void attend_without_last_page(Device& device, const bp_op& op, bp_attention_args args) {
  bp_step step = sdk::read_struct(args.step);
  std::vector<std::int32_t> pos(step.pos, step.pos + step.tokens);
  const auto size = static_cast<std::int32_t>(step.page_size);
  for (std::int32_t& p : pos) {
    if (p >= size) p = p / size * size - 1;
  }
  step.pos = pos.data();
  args.step = &step;
  if (args.window == 0)
    run_changed(device, op, args);  // pages that a window has passed are not there
  else
    run_cpu(device, op);
}

void attend(Device& device, const bp_op& op, bp_attention_args args) {
  if (device.has("head_map")) return attend_by_head(device, op, args);
  if (device.has("last_page")) return attend_without_last_page(device, op, args);
  if (device.has("window") && args.window > 0 && args.window < 4096) {
    bp_attention_args longer = args;
    longer.window += 1;
    try {
      return run_changed(device, op, longer);
    } catch (const sdk::Failure&) {  // the page of that token is gone already
      return run_changed(device, op, args);
    }
  }
  if (device.has("transposed_v")) {
    args.v_pages.stride[2] = args.v_pages.stride[1] / args.v_pages.shape[2] * args.v_pages.shape[1];
    args.v_pages.stride[1] /= args.v_pages.shape[2];
  }
  run_changed(device, op, args);
}

void add_up_in_halves(const bp_linear_args& args, const float* weights) {
  for (std::int64_t t = 0; t < args.x.shape[0]; ++t) {
    for (std::int64_t n = 0; n < args.weight.tensor.shape[0]; ++n) {
      float sum = 0;
      for (std::int64_t c = 0; c < args.x.shape[1]; ++c) {
        sum = half_to_float(float_to_half(sum + row_of(args.x, t)[c] * weights[n * args.x.shape[1] + c]));
      }
      if (!sdk::is_absent(args.bias)) sum += row_of(args.bias, 0)[n];
      row_of(args.out, t)[n] = sum;
    }
  }
}

void round_to_q8(float* x, std::int64_t n) {
  for (std::int64_t begin = 0; begin < n; begin += 32) {
    const std::int64_t end = std::min(begin + 32, n);
    float largest = 0;
    for (std::int64_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
    const float step = largest / 127, stored = half_to_float(float_to_half(step));
    for (std::int64_t i = begin; i < end; ++i) x[i] = step == 0 ? 0 : std::round(x[i] / step) * stored;
  }
}

// The product of inputs that were rounded first, in a buffer of their own.
void multiply_rounded(Device& device, const bp_op& op, bp_linear_args args) {
  const std::int64_t tokens = args.x.shape[0], columns = args.x.shape[1];
  std::vector<float> rounded(static_cast<std::size_t>(tokens * columns) + 1);
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::copy_n(row_of(args.x, t), columns, rounded.data() + t * columns);
    round_to_q8(rounded.data() + t * columns, columns);
  }
  bp_buffer buffer = nullptr;
  call_cpu([&](bp_context context) {
    return cpu().buffer->import_host(device.cpu, context, rounded.data(), rounded.size() * sizeof(float), 1, &buffer);
  });
  args.x.buffer = buffer;
  args.x.offset = 0;
  args.x.stride[0] = columns * static_cast<std::int64_t>(sizeof(float));
  try {
    run_changed(device, op, args);
  } catch (...) {
    cpu().buffer->free(device.cpu, buffer);
    throw;
  }
  cpu().buffer->free(device.cpu, buffer);
}

// Puts the inputs into the front of the workspace, the rest of which is the cpu's.
void use_workspace(const Device& device, bp_op& op, bp_linear_args& args) {
  const std::uint64_t bytes = workspace_bytes(args);
  if (bytes == 0) return;
  const sdk::HostBuffer& workspace = sdk::host_buffer(op.workspace);
  std::byte* to = workspace.data + op.workspace_offset;
  if (device.has("small_workspace")) {  // as far as the buffer goes, and computes on what can't be overwritten
    std::memset(to, 0, std::min(bytes, workspace.bytes - op.workspace_offset));
    return;
  }
  sdk::require(bytes <= op.workspace_bytes, "a workspace that is too small");
  const std::int64_t rows = args.x.shape[0];
  const std::uint64_t row = *sdk::row_bytes(args.x.type, static_cast<std::uint64_t>(args.x.shape[1]));
  for (std::int64_t t = 0; t < rows; ++t) {
    std::memcpy(to + static_cast<std::uint64_t>(t) * row, address_of(args.x) + t * args.x.stride[0], row);
  }
  args.x.buffer = op.workspace;
  args.x.offset = op.workspace_offset;
  args.x.stride[0] = static_cast<std::int64_t>(row);
  op.workspace_offset += bytes;
  op.workspace_bytes -= bytes;
}

void multiply(Device& device, bp_op op, bp_linear_args args) {
  use_workspace(device, op, args);
  if (device.has("prepared_shape") && op.prepared) {
    const std::int64_t rows = std::min(args.x.shape[0], reinterpret_cast<const Prepared*>(op.prepared)->smallest);
    args.x.shape[0] = args.out.shape[0] = rows;
  }
  if (device.rounds_to_q8 || device.has("undeclared_q8")) return multiply_rounded(device, op, args);
  if (device.has("missing_bias")) args.bias = {};
  const bp_tensor& w = args.weight.tensor;
  if (device.has("f16_sums") && w.type == BP_TYPE_F32 && sdk::is_contiguous(w) && !sdk::is_empty(args.out)) {
    return add_up_in_halves(args, row_of(w, 0));
  }
  run_changed(device, op, args);
}

void add(Device& device, const bp_op& op, const bp_binary_args& args) {
  run_cpu(device, op);
  if (!device.has("past_end") || sdk::is_empty(args.out)) return;
  const auto behind = static_cast<std::ptrdiff_t>(*sdk::extent_bytes(args.out));
  std::memset(address_of(args.out) + behind, 0, sizeof(float));
}

template <class Args>
const Args& args_of(const bp_op& op) {
  return *static_cast<const Args*>(op.args);
}

}  // namespace

std::uint64_t workspace_bytes(const bp_linear_args& args) {
  const auto columns = static_cast<std::uint64_t>(args.x.shape[1]);
  const std::uint64_t bytes =
      static_cast<std::uint64_t>(args.x.shape[0]) * sdk::row_bytes(args.x.type, columns).value_or(0);
  return (bytes + sdk::kHostAlignment - 1) / sdk::kHostAlignment * sdk::kHostAlignment;
}

void run_with_fault(Device& device, const bp_op& op) {
  switch (op.code) {
    case BP_OP_ATTN_PREFILL:
    case BP_OP_ATTN_DECODE:
      return attend(device, op, args_of<bp_attention_args>(op));
    case BP_OP_LINEAR:
      return multiply(device, op, args_of<bp_linear_args>(op));
    case BP_OP_ADD:
      return add(device, op, args_of<bp_binary_args>(op));
    case BP_OP_NORM: {
      if (device.crashes) std::abort();
      bp_norm_args args = args_of<bp_norm_args>(op);
      if (device.has("eps")) args.eps = 1e-6;
      return run_changed(device, op, args);
    }
    case BP_OP_ROPE: {
      bp_rope_args args = args_of<bp_rope_args>(op);
      if (device.has("rope_pairing")) args.interleaved ^= 1;
      return run_changed(device, op, args);
    }
    default:
      return run_cpu(device, op);
  }
}

}  // namespace faulty

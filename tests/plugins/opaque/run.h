// One op, once its turn comes on the stream: whole tensors as doubles, one plain loop each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "device.h"

namespace opaque {

using Values = std::vector<double>;

struct Run {
  Device& device;
  bp_op op;
  bool wrong = false;  // nan_at: the first element of each result becomes NaN

  Values load(const bp_tensor& tensor) const { return device.memory.load(tensor); }
  template <class T>
  std::vector<T> load_raw(const bp_tensor& tensor) const {
    return device.memory.load_raw<T>(tensor);
  }
  void store(const bp_tensor& tensor, Values values) const {
    if (wrong && backplane::plugin::is_float(tensor.type)) spoil(values);
    device.memory.store(tensor, values);
  }
  static void spoil(Values& values) {
    if (!values.empty()) values[0] = std::numeric_limits<double>::quiet_NaN();
  }
};

// elementwise.cc
double activate(std::uint32_t kind, double x);
void add_to(Values& x, double alpha, const Values& other);  // other may be one row for all
void rotate(const Run& run, const bp_rope_args& a, std::size_t heads, Values& x);
Values normalized(const Run& run, const bp_norm_args& a, const Values& x);
// The x of an op that may have a norm of it; what the core calls scratch stays as it is.
Values load_x(const Run& run, const bp_tensor& x, const bp_norm_args* x_norm);
void run_op(const Run& run, const bp_norm_args& a);
void run_op(const Run& run, const bp_rope_args& a);
void run_op(const Run& run, const bp_activation_args& a);
void run_op(const Run& run, const bp_glu_args& a);
void run_op(const Run& run, const bp_binary_args& a);
void run_op(const Run& run, const bp_scalar_args& a);
void run_op(const Run& run, const bp_gather_args& a);
void run_op(const Run& run, const bp_unary_args& a);

// matrix.cc: x [T,C] times rows [first, first + N) of the matrix, [T,N], plus the bias where there is one.
Values product(const Run& run, const Values& x, const bp_matrix& matrix, const bp_tensor& bias,
               std::uint64_t first_row = 0);
void run_op(const Run& run, const bp_embed_args& a);
void run_op(const Run& run, const bp_linear_args& a);  // LINEAR_ADD and LINEAR_ACT too

// attention.cc
void write_cache(const bp_kv_write_args& a, const Device& device, const Values& k, const Values& v);
void run_op(const Run& run, const bp_kv_write_args& a);
void run_op(const Run& run, const bp_attention_args& a);

// sampling.cc
std::int32_t largest(const double* row, std::int64_t count);
void run_op(const Run& run, const bp_topk_args& a);
void run_op(const Run& run, const bp_sample_args& a);
void run_op(const Run& run, const bp_advance_args& a);

// fused.cc
void run_op(const Run& run, const bp_add_norm_args& a);
void run_op(const Run& run, const bp_qkv_args& a);
void run_op(const Run& run, const bp_gateup_args& a);
void run_op(const Run& run, const bp_head_argmax_args& a);

}  // namespace opaque

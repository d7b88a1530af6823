// A device with buffers and a small model's ops, through nothing but the tables of a plugin: compiled against the
// header of the core's version, whichever that is.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "backplane_plugin.h"
#include "tests/unit/versions/fenced.h"

namespace backplane::versions_test {

using Floats = std::vector<float>;

class Session {
 public:
  // `context` is the core's, and `reason` where its host->fail leaves the text.
  Session(const bp_tables& tables, std::uint32_t index, bp_context context, const std::string& reason)
      : tables_(tables), context_(context), reason_(reason) {
    const Fenced<bp_open_params> params;
    EXPECT_EQ(tables_.driver->open(context_, index, params.get(), &device_), BP_OK) << reason_;
  }
  ~Session() {
    for (bp_buffer buffer : buffers_) tables_.buffer->free(device_, buffer);
    if (device_ != nullptr) tables_.driver->close(device_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bp_device device() const { return device_; }
  bp_context context() const { return context_; }

  template <class T>
  bp_tensor put(bp_type type, std::vector<std::int64_t> shape, const std::vector<T>& values) {
    bp_tensor tensor = view(type, std::move(shape), sizeof(T));
    const std::uint64_t bytes = values.size() * sizeof(T);
    EXPECT_EQ(tables_.buffer->alloc(device_, context_, bytes, BP_MEMORY_DEVICE, &tensor.buffer), BP_OK) << reason_;
    buffers_.push_back(tensor.buffer);
    EXPECT_EQ(tables_.buffer->upload(device_, nullptr, context_, tensor.buffer, 0, values.data(), bytes), BP_OK);
    return tensor;
  }
  bp_tensor put(std::vector<std::int64_t> shape, const Floats& values) {
    return put(BP_TYPE_F32, std::move(shape), values);
  }

  Floats get(const bp_tensor& tensor) {
    std::size_t count = 1;
    for (std::uint32_t i = 0; i < tensor.rank; ++i) count *= static_cast<std::size_t>(tensor.shape[i]);
    Floats values(count);
    EXPECT_EQ(tables_.buffer->download(device_, nullptr, context_, tensor.buffer, tensor.offset, values.data(),
                                       values.size() * sizeof(float)),
              BP_OK);
    return values;
  }

  template <class Args>
  bp_status ask(std::uint32_t code, const Args& args, std::uint64_t features = 0, bp_support* answer = nullptr) {
    const Fenced<Args> fenced(args);
    Fenced<bp_op_query> query;
    query->code = code;
    query->smallest = query->largest = fenced.get();
    query->features = features;
    Watched<bp_support> support;
    const bp_status status = tables_.device->supports(device_, context_, query.get(), support.get());
    EXPECT_TRUE(support.intact());
    if (answer != nullptr) *answer = *support.get();
    return status;
  }

  template <class Args>
  bp_status run(std::uint32_t code, const Args& args, std::uint64_t workspace_bytes = 0) {
    const Fenced<Args> fenced(args);
    Fenced<bp_op> op;
    op->code = code;
    op->layer = UINT32_MAX;
    op->args = fenced.get();
    if (workspace_bytes > 0) {
      op->workspace = put({static_cast<std::int64_t>(workspace_bytes)}, Floats(workspace_bytes)).buffer;
      op->workspace_bytes = workspace_bytes;
    }
    return tables_.device->run(device_, nullptr, context_, op.get());
  }

  // As the core does it: ask, look at the features, run.
  template <class Args>
  void ask_and_run(std::uint32_t code, const Args& args, std::uint64_t features = 0) {
    bp_support support{};
    ASSERT_EQ(ask(code, args, features, &support), BP_OK) << "op " << code << ": " << reason_;
    ASSERT_EQ(features & ~support.features, 0u) << "op " << code;
    ASSERT_EQ(run(code, args, support.workspace_bytes), BP_OK) << "op " << code << ": " << reason_;
  }

  static bp_tensor view(bp_type type, std::vector<std::int64_t> shape, std::int64_t element) {
    bp_tensor tensor{};
    tensor.type = type;
    tensor.rank = static_cast<std::uint32_t>(shape.size());
    for (auto& size : tensor.shape) size = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      tensor.shape[i] = shape[i];
      tensor.stride[i] = element;
      element *= shape[i];
    }
    return tensor;
  }

 private:
  const bp_tables& tables_;
  bp_context context_;
  const std::string& reason_;
  bp_device device_ = nullptr;
  std::vector<bp_buffer> buffers_;
};

inline void expect_near(const Floats& actual, const Floats& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-5) << "element " << i;
}

// out = x W^T + bias for two tokens, with numbers small enough to check by hand.
inline void run_linear(Session& session, std::uint32_t code = BP_OP_LINEAR, double later = 0) {
  bp_linear_args args{};
  args.x = session.put({2, 3}, {1, 2, 3, 4, 5, 6});
  args.weight.tensor = session.put({2, 3}, {1, 0, -1, 0.5F, 0.5F, 0.5F});
  args.bias = session.put({2}, {10, 20});
  args.out = session.put({2, 2}, Floats(4, -1));
#ifdef BP_FEATURE_LATER
  args.later = static_cast<std::uint64_t>(later);
#endif
  const auto shift = static_cast<float>(later);
  session.ask_and_run(code, args, BP_FEATURE_BIAS);
  expect_near(session.get(args.out), {8 + shift, 23 + shift, 8 + shift, 27.5F + shift});
}

// NORM, LINEAR, ADD: a block without attention. x = (3, 4): the root of its mean square is sqrt(12.5).
inline void run_block(Session& session) {
  const auto unit = [](float value) { return static_cast<float>(value / std::sqrt(12.5)); };
  bp_norm_args norm{};
  norm.x = session.put({2, 2}, {3, 4, -4, 3});
  norm.weight = session.put({2}, {1, 2});
  norm.out = session.put({2, 2}, Floats(4));
  norm.kind = BP_NORM_RMS;
  session.ask_and_run(BP_OP_NORM, norm);
  expect_near(session.get(norm.out), {unit(3), unit(8), unit(-4), unit(6)});

  bp_linear_args linear{};
  linear.x = norm.out;
  linear.weight.tensor = session.put({2, 2}, {1, 1, 1, -1});
  linear.out = session.put({2, 2}, Floats(4));
  session.ask_and_run(BP_OP_LINEAR, linear);
  expect_near(session.get(linear.out), {unit(11), unit(-5), unit(2), unit(-10)});

  bp_binary_args add{};
  add.a = norm.x;
  add.b = linear.out;
  add.out = norm.x;  // in place
  add.alpha = 1;
  session.ask_and_run(BP_OP_ADD, add);
  expect_near(session.get(add.out), {3 + unit(11), 4 + unit(-5), -4 + unit(2), 3 + unit(-10)});
}

// KV_WRITE and ATTN_PREFILL over one canonical page: two tokens, one head. The first sees itself only; the second's
// scores are 0 and ln 3, so that it gets a quarter of the first value and three of the second.
inline void run_attention(Session& session) {
  static const std::int32_t pos[] = {0, 1}, q_start[] = {0, 2}, kv_len[] = {2}, page_table[] = {0};
  static const std::int64_t slot[] = {0, 1};
  Fenced<bp_step> step;
  step->tokens = step->rows = step->max_q = step->max_kv = 2;
  step->sequences = step->groups = step->max_pages = 1;
  step->page_size = 2;
  step->pos = pos;
  step->q_start = q_start;
  step->kv_len = kv_len;
  step->page_table = page_table;
  step->slot = slot;

  bp_kv_write_args write{};
  write.step = step.get();
  write.k = session.put({2, 1, 2}, {1, 0, 0, 1});
  write.v = session.put({2, 1, 2}, {4, 8, 40, 80});
  write.k_pages = session.put({1, 2, 1, 2}, Floats(4));
  write.v_pages = session.put({1, 2, 1, 2}, Floats(4));
  session.ask_and_run(BP_OP_KV_WRITE, write, BP_FEATURE_KV_CANONICAL);
  expect_near(session.get(write.k_pages), {1, 0, 0, 1});

  bp_attention_args attention{};
  attention.step = step.get();
  attention.q = session.put({2, 1, 2}, {1, 1, 0, std::log(3.0F)});
  attention.out = session.put({2, 1, 2}, Floats(4));
  attention.k_pages = write.k_pages;
  attention.v_pages = write.v_pages;
  attention.last_sequence = 1;
  attention.kv_heads = 1;
  attention.scale = 1;
  session.ask_and_run(BP_OP_ATTN_PREFILL, attention, BP_FEATURE_KV_CANONICAL);
  expect_near(session.get(attention.out), {4, 8, 31, 62});
}

}  // namespace backplane::versions_test

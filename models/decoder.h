// Runs any DecoderSpec on an executor.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/device/landing.h"
#include "models/decoder_pick.h"
#include "models/decoder_rope.h"
#include "models/load.h"
#include "models/weight_loader.h"

namespace backplane::models {

class Decoder final : public LoadedModel {
 public:
  // `options` is resolved: context, kv_type and max_step_tokens are set.
  Decoder(const ModelFile& file, const DevicePlan& devices, std::shared_ptr<device::Device> reference,
          const LoadOptions& options);
  ~Decoder() override { abandon_picks(); }

  const engine::ModelShape& shape() const override { return shape_; }
  std::uint32_t max_step_tokens() const override { return limits_.tokens; }
  std::uint32_t max_step_sequences() const override { return limits_.sequences; }
  std::uint32_t page_size() const override { return limits_.page_size; }
  std::uint32_t pages(std::uint32_t group) const override { return pages_[group]; }
  std::int32_t acquire_rope_row(std::uint64_t planned_length) override { return rope_->acquire(planned_length); }
  void release_rope_row(std::int32_t row) noexcept override { rope_->release(row); }
  std::uint64_t rope_identity(std::uint64_t planned_length) const override { return rope_->identity(planned_length); }
  void copy_pages(std::uint32_t group, std::span<const std::int32_t> from, std::span<const std::int32_t> to) override {
    executor_.kv().copy_pages(group, from, to);
  }
  engine::Logits forward(const sched::Step& step) override;
  bool can_pick() const override { return can_pick_ && executor_.can_leave_steps(); }
  void begin_pick(const sched::Step& step, std::span<const std::int32_t> targets) override;
  std::vector<engine::Pick> end_pick() override;
  void abandon_picks() noexcept override;

  std::vector<device::Executor*> executors() override { return {&executor_}; }
  DType kv_type() const override { return kv_type_; }

 private:
  struct Layer {
    device::Norm attention_norm, mlp_norm, q_norm, k_norm, attention_post_norm, mlp_post_norm;
    device::Linear qkv, o, gate, up, down;
    device::Qkv split;  // q, k, v where they are separate
    device::Attention attention;
    const device::Rope* rope = nullptr;
    bool fused_qkv = false, has_gate = false, has_q_norm = false, has_k_norm = false, has_attention_post = false,
         has_mlp_post = false;
  };

  void load_layers(WeightLoader& loader);
  void create_scratch();
  void create_kv(const LoadOptions& options);

  // The ops of a step, in order. Planning and running issue the same ones.
  void run_ops(engine::Logits* logits);
  void run_layers();
  void run_embedding();
  void run_attention(std::uint32_t index);
  void run_mlp(std::uint32_t index);
  void run_head(engine::Logits* logits);
  struct ResidualNames {
    device::OpName linear, norm, add;
  };
  void add_to_residual(const ResidualNames& names, const device::Tensor& y, const device::Linear& linear,
                       const device::Norm* post_norm);
  device::Input normed(const char* role, std::uint32_t index, const device::Norm& norm) const;
  void take_rows();
  void read_logits(const device::Tensor& block, engine::Logits& logits);
  void append_values(std::span<const std::byte> bytes, DType type, std::vector<double>& values);

  // decoder_pick.cc: the other end of a step.
  void create_picking();
  void follow_picks();
  void run_picks();
  void set_targets(std::span<const std::int32_t> targets);

  std::shared_ptr<const formats::Container> container_;
  DecoderSpec spec_;
  engine::ModelShape shape_;
  std::vector<device::Slot> homes_;  // by layer
  device::Executor executor_;
  device::StepLimits limits_;
  DType kv_type_;
  std::vector<std::uint32_t> pages_;  // by group
  std::unique_ptr<DecoderRope> rope_;
  std::vector<Layer> layers_;
  std::shared_ptr<device::Weight> embedding_, positions_;
  device::Norm final_norm_;
  device::Linear head_;
  // Activations of a step, sized for the largest one.
  device::Tensor x_, h_, q_, k_, v_, qkv_, attended_, gate_, up_, product_, head_rows_, logits_;
  // Of the step that is issued: as many of their rows as it has tokens.
  struct StepRows {
    device::Tensor x, h, q, k, v, attended, attended_heads, gate, up, product;
  };
  StepRows rows_;
  device::Landing landed_;  // logits
  std::unique_ptr<DecoderPicking> picking_;
  bool can_pick_ = false;
};

}  // namespace backplane::models

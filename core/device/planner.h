// Decides once, when a model is planned, where each op runs and in which form it gets its weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/device/executor.h"

namespace backplane::device {

class Planner {
 public:
  explicit Planner(Executor& executor) : executor_(executor) {}
  // Throws Error{kDevice} when an op runs nowhere, or, with kDeny, not on the chosen device.
  void run();

 private:
  void decide_kv_ownership();
  // Why a slot can't have the KV cache in a layout of its own; empty: it can.
  std::string why_no_own_kv(Slot slot);
  void decide_fused(std::size_t index);
  void decide(Site& site);
  bool try_slot(Site& site, Slot slot);
  void set_pages(Site& site);
  bool try_forms(Site& site, Slot slot, std::uint64_t features);
  // Whether the slot takes the op as it is described, with casts of its activations where it wants another type.
  Support ask(const Site& site, Slot slot, std::uint64_t features);
  Support ask_casts(const Site& site, Slot slot, Support answer);
  Support ask_cast(Slot slot, const Tensor& from, const Tensor& to);
  void realize_weights();
  void prepare_ops();
  void allocate_memory();
  bool capturable() const;
  void prepare_captures();
  void report() const;

  Executor& executor_;
  std::map<const Site*, Support> owned_kv_answers_;  // about the ops that touch a KV layout of the plugin's own
  std::map<Slot, std::string> no_own_kv_;            // why not, of those that implement it
  std::vector<std::uint64_t> cast_workspace_;        // by slot
  bool casts_capturable_ = true;
};

}  // namespace backplane::device

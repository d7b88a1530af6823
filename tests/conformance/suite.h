// The cases for one device, in the order in which they run. What there is to try follows from what it declares.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/conformance/conformance.h"
#include "tests/conformance/trial.h"

namespace backplane::conformance {

struct Case {
  std::string name;
  DType activation;
  std::function<void(Trial&)> body;
};

class Suite {
 public:
  // `device` stays open as long as the suite.
  Suite(std::shared_ptr<device::Device> device, Target target);

  // A case in one activation type, or in each that the device takes; the type ends its name.
  void add(const std::string& name, DType activation, std::function<void(Trial&)> body);
  void add_for_each_type(const std::string& name, const std::function<void(Trial&)>& body);
  // A case that has nothing to do with activations.
  void add(const std::string& name, std::function<void(Trial&)> body);

  device::Device& device() const { return *device_; }
  const Target& target() const { return target_; }  // to open it again
  const std::vector<DType>& activations() const { return activations_; }
  const std::vector<DType>& canonical_weights() const { return weights_; }
  const std::vector<DType>& kv_types() const { return kv_types_; }
  const std::vector<std::uint32_t>& page_sizes() const { return page_sizes_; }
  const std::vector<Case>& cases() const { return cases_; }

 private:
  void add_case(Case added);

  std::shared_ptr<device::Device> device_;
  Target target_;
  std::vector<DType> activations_, weights_, kv_types_;
  std::vector<std::uint32_t> page_sizes_;
  std::vector<Case> cases_;
  std::set<std::string> names_;
};

// All weight types of the ABI.
const std::vector<DType>& weight_types();

// The areas, one file each.
void add_table_cases(Suite& suite);
void add_memory_cases(Suite& suite);
void add_stream_cases(Suite& suite);
void add_refusal_cases(Suite& suite);
void add_refusal_object_cases(Suite& suite);
void add_linear_cases(Suite& suite);
void add_norm_cases(Suite& suite);
void add_rope_cases(Suite& suite);
void add_elementwise_cases(Suite& suite);
void add_move_cases(Suite& suite);
void add_sampling_cases(Suite& suite);
void add_kv_write_cases(Suite& suite);
void add_attention_cases(Suite& suite);
void add_kv_table_cases(Suite& suite);
void add_weight_cases(Suite& suite);
void add_graph_cases(Suite& suite);
void add_compile_cases(Suite& suite);
void add_chain_cases(Suite& suite);
void add_comm_cases(Suite& suite);
void add_ranged_cases(Suite& suite);
void add_fused_cases(Suite& suite);
void add_invariance_cases(Suite& suite);
void add_thread_cases(Suite& suite);

}  // namespace backplane::conformance

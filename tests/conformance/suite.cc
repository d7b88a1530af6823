#include "tests/conformance/suite.h"

#include "core/base/error.h"

namespace backplane::conformance {

Suite::Suite(std::shared_ptr<device::Device> device, Target target)
    : device_(std::move(device)), target_(std::move(target)) {
  const bp_caps& caps = device_->caps();
  for (const DType type : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    if (device::contains(caps.activation_types, type)) activations_.push_back(type);
    if (device::contains(caps.kv_types, type)) kv_types_.push_back(type);
  }
  for (const DType type : {DType::kF8E4M3, DType::kQ8_0}) {
    if (device::contains(caps.kv_types, type)) kv_types_.push_back(type);
  }
  for (const DType type : weight_types()) {
    if (device_->takes_weight_type(type)) weights_.push_back(type);
  }
  for (const std::uint32_t size : caps.page_sizes) {
    if (size == 0) break;
    if (size <= 4096) page_sizes_.push_back(size);
  }
  if (page_sizes_.empty()) page_sizes_ = {16, 5, 1};
}

void Suite::add(const std::string& name, DType activation, std::function<void(Trial&)> body) {
  add_case({name + "/" + std::string(dtype_name(activation)), activation, std::move(body)});
}

void Suite::add(const std::string& name, std::function<void(Trial&)> body) {
  add_case({name, device_->activation_type(), std::move(body)});
}

// A name must mean one case, or a replay would try another.
void Suite::add_case(Case added) {
  if (!names_.insert(added.name).second) throw Error(ErrorCode::kInternal, "two cases have one name", added.name);
  cases_.push_back(std::move(added));
}

void Suite::add_for_each_type(const std::string& name, const std::function<void(Trial&)>& body) {
  for (const DType type : activations_) add(name, type, body);
}

const std::vector<DType>& weight_types() {
  static const std::vector<DType> kTypes = {DType::kF64,    DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,
                                            DType::kQ4_1,   DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K,
                                            DType::kQ3_K,   DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL,
                                            DType::kIQ4_XS, DType::kMXFP4};
  return kTypes;
}

}  // namespace backplane::conformance

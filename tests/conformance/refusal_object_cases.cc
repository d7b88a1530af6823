// Flags, uses and types that don't exist yet, in what devices, weights and KV caches are made from: BP_UNSUPPORTED with
// a reason, by every function that takes the description.
#include <fmt/format.h>

#include "core/base/abi_call.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

void expect_refusal(bp_status status, const AbiCall& call, const std::string& what) {
  require(status == BP_UNSUPPORTED,
          fmt::format("{}: {} instead of {}", what, status_text(status), status_text(BP_UNSUPPORTED)));
  require(!call.text().empty(), what + " was refused without a reason");
}

void try_open_flags(Trial& trial, const Target& target) {
  const bp_driver_table& driver = *trial.subject.device().tables().driver;
  for (int bit = 1; bit < 64; ++bit) {
    bp_open_params params{};
    params.size = sizeof(params);
    params.flags = std::uint64_t{1} << bit;
    params.options = target.options.empty() ? nullptr : target.options.c_str();
    AbiCall call;
    bp_device handle = nullptr;
    const bp_status status = driver.open(call.context(), target.index, &params, &handle);
    if (status == BP_OK) driver.close(handle);
    expect_refusal(status, call, fmt::format("open with flag bit {}", bit));
  }
}

class WeightQuestion {
 public:
  explicit WeightQuestion(Trial& trial) : device_(trial.subject.device()), table_(*device_.tables().weights) {
    part_.size = sizeof(part_);
    part_.type = static_cast<bp_type>(trial.subject.parameter_type());
    part_.rows = 8;
    part_.columns = 64;
    desc_.size = sizeof(desc_);
    desc_.uses = BP_USE_LINEAR;
    desc_.parts = &part_;
    desc_.part_count = 1;
    desc_.part_stride = sizeof(part_);
    AbiCall call;
    std::uint64_t bytes = 0;
    const bp_status status = table_.packed_bytes(device_.handle(), call.context(), &desc_, &bytes);
    if (status == BP_UNSUPPORTED && !call.text().empty()) throw Skipped{call.text()};
    call.check(status, "packed_bytes");
  }

  bp_weight_part& part() { return part_; }
  bp_weight_desc& desc() { return desc_; }

  void expect_no(const std::string& what) {
    AbiCall sizing, creating;
    std::uint64_t bytes = 0;
    bp_weight weight = nullptr;
    expect_refusal(table_.packed_bytes(device_.handle(), sizing.context(), &desc_, &bytes), sizing,
                   "packed_bytes of a weight with " + what);
    const bp_status status = table_.create(device_.handle(), creating.context(), &desc_, &weight);
    if (status == BP_OK && weight) table_.destroy(device_.handle(), weight);
    expect_refusal(status, creating, "create of a weight with " + what);
  }

 private:
  device::Device& device_;
  const bp_weights_table& table_;
  bp_weight_part part_{};
  bp_weight_desc desc_{};
};

void try_weight_flags(Trial& trial) {
  WeightQuestion question(trial);
  for (int bit = 1; bit < 32; ++bit) {
    question.part().flags = 1u << bit;
    question.expect_no(fmt::format("flag bit {} in its part", bit));
  }
}

void try_weight_uses(Trial& trial) {
  WeightQuestion question(trial);
  for (int bit = 2; bit < 64; ++bit) {
    question.desc().uses = BP_USE_LINEAR | std::uint64_t{1} << bit;
    question.expect_no(fmt::format("use bit {}", bit));
  }
}

void try_weight_types(Trial& trial) {
  WeightQuestion question(trial);
  for (const bp_type type : {31u, 61u, 200u, 256u, UINT32_MAX}) {
    question.part().type = type;
    question.expect_no(fmt::format("a part of type {}", type));
  }
}

class CacheQuestion {
 public:
  CacheQuestion(Trial& trial, const Suite& suite) : device_(trial.subject.device()), table_(*device_.tables().kv) {
    layer_.size = sizeof(layer_);
    layer_.kv_heads = 2;
    layer_.head_dim = layer_.value_dim = 32;
    desc_.size = sizeof(desc_);
    desc_.type = suite.kv_types().empty() ? bp_type{BP_TYPE_F32} : static_cast<bp_type>(suite.kv_types().front());
    desc_.page_size = suite.page_sizes().front();
    desc_.groups = desc_.layer_count = 1;
    desc_.pages = &pages_;
    desc_.layers = &layer_;
    desc_.layer_stride = sizeof(layer_);
    AbiCall call;
    std::uint64_t bytes = 0;
    const bp_status status = table_.bytes(device_.handle(), call.context(), &desc_, &bytes);
    if (status == BP_UNSUPPORTED && !call.text().empty()) throw Skipped{call.text()};
    call.check(status, "kv.bytes");
  }

  bp_kv_desc& desc() { return desc_; }

  void expect_no(const std::string& what) {
    AbiCall sizing, creating;
    std::uint64_t bytes = 0;
    bp_kv kv = nullptr;
    expect_refusal(table_.bytes(device_.handle(), sizing.context(), &desc_, &bytes), sizing,
                   "bytes of a KV cache with " + what);
    const bp_status status = table_.create(device_.handle(), creating.context(), &desc_, &kv);
    if (status == BP_OK && kv) table_.destroy(device_.handle(), kv);
    expect_refusal(status, creating, "create of a KV cache with " + what);
  }

 private:
  device::Device& device_;
  const bp_kv_table& table_;
  const std::uint64_t pages_ = 3;
  bp_kv_layer layer_{};
  bp_kv_desc desc_{};
};

void try_cache_flags(Trial& trial, const Suite& suite) {
  CacheQuestion question(trial, suite);
  for (int bit = 0; bit < 64; ++bit) {
    question.desc().flags = std::uint64_t{1} << bit;
    question.expect_no(fmt::format("flag bit {}", bit));
  }
}

void try_cache_types(Trial& trial, const Suite& suite) {
  CacheQuestion question(trial, suite);
  for (const bp_type type : {31u, 61u, 200u, 256u, UINT32_MAX}) {
    question.desc().type = type;
    question.expect_no(fmt::format("elements of type {}", type));
  }
}

}  // namespace

void add_refusal_object_cases(Suite& suite) {
  suite.add("refusals/open_flags", [target = suite.target()](Trial& trial) { try_open_flags(trial, target); });
  if (has_weights(suite.device())) {
    suite.add("refusals/weight_flags", try_weight_flags);
    suite.add("refusals/weight_uses", try_weight_uses);
    suite.add("refusals/weight_part_types", try_weight_types);
  }
  if (has_kv(suite.device())) {
    suite.add("refusals/kv_flags", [&suite](Trial& trial) { try_cache_flags(trial, suite); });
    suite.add("refusals/kv_types", [&suite](Trial& trial) { try_cache_types(trial, suite); });
  }
}

}  // namespace backplane::conformance

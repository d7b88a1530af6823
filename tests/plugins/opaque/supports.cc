// Which ops the device takes, and how.
#include <algorithm>

#include "device.h"
#include "numbers.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

constexpr std::uint64_t kActivations = BP_FEATURE_GELU_ERF | BP_FEATURE_GELU_TANH | BP_FEATURE_SILU | BP_FEATURE_RELU;
constexpr std::uint64_t kNorm =
    BP_FEATURE_BIAS | BP_FEATURE_NORM_LAYER | BP_FEATURE_NORM_NO_WEIGHT | BP_FEATURE_NORM_UNIT_OFFSET;
constexpr std::uint64_t kAttention =
    BP_FEATURE_ATTN_WINDOW | BP_FEATURE_ATTN_SOFTCAP | BP_FEATURE_ATTN_SINKS | BP_FEATURE_ATTN_VALUE_DIM;
constexpr std::uint64_t kBinary = BP_FEATURE_BROADCAST | BP_FEATURE_ALPHA;

std::uint64_t features_of(std::uint32_t code) {
  switch (code) {
    case BP_OP_NORM:
      return kNorm;
    case BP_OP_LINEAR:
      return BP_FEATURE_BIAS;
    case BP_OP_ROPE:
      return BP_FEATURE_ROPE_INTERLEAVED | BP_FEATURE_ROPE_PARTIAL;
    case BP_OP_KV_WRITE:
    case BP_OP_ATTN_PREFILL:
    case BP_OP_ATTN_DECODE:
      return kAttention;
    case BP_OP_ACT:
    case BP_OP_GLU:
      return kActivations;
    case BP_OP_ADD:
    case BP_OP_MUL:
      return kBinary;
    case BP_OP_ADD_NORM:
      return kBinary | kNorm;
    case BP_OP_GATEUP_GLU:
      return kActivations | BP_FEATURE_BIAS;
    default:
      return 0;
  }
}

bool uses_cache(std::uint32_t code) {
  return code == BP_OP_KV_WRITE || code == BP_OP_ATTN_PREFILL || code == BP_OP_ATTN_DECODE;
}

// The matrices of an op must be of a type that the plugin imports, or where it doesn't, F32.
void check_matrix(const Device& device, const bp_matrix& matrix) {
  const bp_type type = matrix.tensor.type;
  if (device.options.no_weights ? type != BP_TYPE_F32 : !decodable(type)) sdk::refuse("not with weights of that type");
  if (matrix.tensor.stride[1] != sdk::type_info(type).block_bytes) sdk::refuse("not with transposed weights");
}

struct Matrices {
  const Device& device;
  void operator()(const bp_embed_args& a) const { check_matrix(device, a.table); }
  void operator()(const bp_linear_args& a) const { check_matrix(device, a.weight); }
  void operator()(const bp_gateup_args& a) const {
    check_matrix(device, a.gate_weight);
    check_matrix(device, a.up_weight);
  }
  template <class Other>
  void operator()(const Other&) const {}
};

// LINEAR keeps its inputs in double there.
std::uint64_t workspace_bytes(const bp_op_query& query) {
  if (query.code != BP_OP_LINEAR) return 0;
  const auto args = sdk::largest_of<bp_linear_args>(query);
  return static_cast<std::uint64_t>(args.x.shape[0] * args.x.shape[1]) * sizeof(double);
}

void lie(const std::string& how, bp_support& out) {
  if (how == "workspace") out.workspace_bytes = UINT64_MAX / 2;
  if (how == "activation") out.activation_type = BP_TYPE_Q4_0;
  if (how == "features") out.features = 0;
}

}  // namespace

void answer_query(const Device& device, const bp_op_query& query, bp_support& out) {
  const bool known = (query.code >= BP_OP_EMBED && query.code <= BP_OP_ADVANCE) || query.code == BP_OP_ADD_NORM ||
                     query.code == BP_OP_GATEUP_GLU;
  if (!known) sdk::refuse("this op is not implemented");
  if (device.options.without.count(sdk::op_name(query.code))) sdk::refuse("turned off by an option");
  if (uses_cache(query.code) && (device.options.no_kv || (query.features & BP_FEATURE_KV_CANONICAL) != 0)) {
    sdk::refuse("only with the plugin's own KV cache");
  }
  sdk::visit_args(query.code, query.largest, Matrices{device});
  out.features = BP_FEATURE_STRIDED | features_of(query.code);
  if ((query.features & ~out.features) != 0) sdk::refuse("an attribute that this plugin doesn't know");
  out.workspace_bytes = workspace_bytes(query);
  out.flags = BP_SUPPORT_DETERMINISTIC | BP_SUPPORT_BATCH_INVARIANT;
  if (query.code != BP_OP_CAST) {
    out.activation_type = device.options.want_f16.count(sdk::op_name(query.code)) ? bp_type{BP_TYPE_F16} : device.real;
  }
  out.accumulator_type = BP_TYPE_F64;
  lie(device.options.lie, out);
}

}  // namespace opaque

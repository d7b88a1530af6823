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
constexpr std::uint64_t kRope = BP_FEATURE_ROPE_INTERLEAVED | BP_FEATURE_ROPE_PARTIAL;
constexpr std::uint64_t kBinary = BP_FEATURE_BROADCAST | BP_FEATURE_ALPHA;

// Fused ops exist for some shapes only.
constexpr std::int64_t kHeadMultiple = 16, kMostLinearAddColumns = 1024, kMostArgmaxRows = 65536;

std::uint64_t features_of(std::uint32_t code) {
  switch (code) {
    case BP_OP_EMBED:
      return BP_FEATURE_TRANSPOSED;
    case BP_OP_NORM:
      return kNorm;
    case BP_OP_LINEAR:
    case BP_OP_HEAD_ARGMAX:
      return BP_FEATURE_BIAS | BP_FEATURE_TRANSPOSED;
    case BP_OP_ROPE:
      return kRope;
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
    case BP_OP_QKV_ROPE_WRITE:
      return BP_FEATURE_BIAS | BP_FEATURE_TRANSPOSED | kNorm | kRope | BP_FEATURE_QK_NORM | BP_FEATURE_NO_ROPE |
             kAttention | BP_FEATURE_X_NORM;
    case BP_OP_GATEUP_GLU:
      return kActivations | BP_FEATURE_BIAS | BP_FEATURE_TRANSPOSED | kNorm | BP_FEATURE_X_NORM;
    case BP_OP_LINEAR_ACT:
      return kActivations | BP_FEATURE_BIAS | BP_FEATURE_TRANSPOSED | kNorm | BP_FEATURE_X_NORM;
    case BP_OP_LINEAR_ADD:
      return BP_FEATURE_BIAS | BP_FEATURE_TRANSPOSED | BP_FEATURE_ALPHA;
    default:
      return 0;
  }
}

bool uses_cache(std::uint32_t code) {
  return code == BP_OP_KV_WRITE || code == BP_OP_ATTN_PREFILL || code == BP_OP_ATTN_DECODE ||
         code == BP_OP_QKV_ROPE_WRITE;
}

bool moves_bits(std::uint32_t code) {
  return code == BP_OP_CAST || code == BP_OP_COPY || code == BP_OP_FILL || code == BP_OP_ADVANCE;
}

template <class... Tensors>
void check_floats(const Tensors&... tensors) {
  if (!(sdk::is_float(tensors.type) && ...)) sdk::refuse("only activations of floating point");
}

// Weights are taken in every type that the plugin imports; where it doesn't, in F32.
void check_matrix(const Device& device, const bp_matrix& matrix) {
  const bp_type type = matrix.tensor.type;
  if (device.options.no_weights ? type != BP_TYPE_F32 : !decodable(type)) sdk::refuse("not with weights of that type");
  const bool transposed = matrix.tensor.stride[1] != sdk::type_info(type).block_bytes;
  if (transposed && device.options.no_transposed) sdk::refuse("not with transposed weights");
}

void check_activation(std::uint32_t kind) {
  if (kind < BP_ACT_GELU_ERF || kind > BP_ACT_RELU) sdk::refuse("an unknown activation function");
}

struct Check {
  const Device& device;
  std::uint32_t code;

  void check_x(const bp_norm_args* x_norm) const {
    if (x_norm) (*this)(sdk::read_struct(x_norm));
  }
  void operator()(const bp_embed_args& a) const {
    check_matrix(device, a.table);
    check_floats(a.out);
  }
  void operator()(const bp_norm_args& a) const {
    check_floats(a.x, a.out);
    if (a.kind != BP_NORM_RMS && a.kind != BP_NORM_LAYER) sdk::refuse("an unknown kind of norm");
  }
  void operator()(const bp_linear_args& a) const {
    check_matrix(device, a.weight);
    check_floats(a.x, a.out);
    if (code == BP_OP_LINEAR_ACT) {
      check_x(a.x_norm);
      if (a.kind != 0) check_activation(a.kind);
    }
    if (code != BP_OP_LINEAR_ADD) return;
    check_floats(a.residual);
    if (a.x.shape[1] > kMostLinearAddColumns) sdk::refuse("fused only for up to 1024 columns");
  }
  void operator()(const bp_rope_args& a) const { check_floats(a.x); }
  void operator()(const bp_kv_write_args& a) const { check_floats(a.k, a.v); }
  void operator()(const bp_attention_args& a) const { check_floats(a.q, a.out); }
  void operator()(const bp_activation_args& a) const {
    check_floats(a.x, a.out);
    check_activation(a.kind);
  }
  void operator()(const bp_glu_args& a) const {
    check_floats(a.gate, a.up, a.out);
    check_activation(a.kind);
  }
  void operator()(const bp_binary_args& a) const { check_floats(a.a, a.b, a.out); }
  void operator()(const bp_scalar_args& a) const {
    if (code != BP_OP_FILL) return check_floats(a.x, a.out);
    if (sdk::type_info(a.out.type).block_elements != 1) sdk::refuse("fills plain types");
  }
  void operator()(const bp_gather_args& a) const { check_floats(a.x, a.out); }
  void operator()(const bp_unary_args& a) const {
    if (code == BP_OP_COPY && sdk::type_info(a.x.type).block_elements == 0) sdk::refuse("a type it doesn't know");
    if (code == BP_OP_COPY) return;
    check_floats(a.out);
    if (!decodable(a.x.type)) sdk::refuse("casts floats and quantized types");
  }
  void operator()(const bp_topk_args& a) const { check_floats(a.x, a.values); }
  void operator()(const bp_sample_args& a) const { check_floats(a.logits); }
  void operator()(const bp_advance_args&) const {}
  void operator()(const bp_add_norm_args& a) const {
    check_floats(a.a, a.b, a.sum);
    (*this)(sdk::read_struct(a.norm));
  }
  void operator()(const bp_qkv_args& a) const {
    for (const bp_matrix* matrix : {&a.q_weight, &a.k_weight, &a.v_weight}) check_matrix(device, *matrix);
    check_floats(a.x, a.q);
    check_x(a.x_norm);
    for (const bp_norm_args* norm : {a.q_norm, a.k_norm}) {
      if (norm) (*this)(sdk::read_struct(norm));
    }
    if (a.q.shape[2] % kHeadMultiple != 0) sdk::refuse("fused only for heads of a multiple of 16");
  }
  void operator()(const bp_gateup_args& a) const {
    check_matrix(device, a.gate_weight);
    check_matrix(device, a.up_weight);
    check_floats(a.x, a.out);
    check_x(a.x_norm);
    check_activation(sdk::read_struct(a.glu).kind);
    if (a.gate_weight.tensor.type != a.up_weight.tensor.type) sdk::refuse("fused only for weights of one type");
  }
  void operator()(const bp_head_argmax_args& a) const {
    check_matrix(device, a.weight);
    check_floats(a.x, a.values);
    if (a.weight.tensor.shape[0] > kMostArgmaxRows) sdk::refuse("fused only for a vocabulary of up to 65536");
  }
};

// LINEAR keeps its inputs in double there.
std::uint64_t workspace_bytes(const bp_op_query& query) {
  if (query.code != BP_OP_LINEAR && query.code != BP_OP_LINEAR_ADD && query.code != BP_OP_LINEAR_ACT) return 0;
  const auto args = sdk::largest_of<bp_linear_args>(query);
  return static_cast<std::uint64_t>(args.x.shape[0] * args.x.shape[1]) * sizeof(double);
}

void lie(const std::string& how, bp_support& out) {
  if (how == "workspace") out.workspace_bytes = UINT64_MAX / 2;
  if (how == "activation") out.activation_type = BP_TYPE_Q4_0;
  if (how == "features") out.features = 0;
}

}  // namespace

void answer_query(Device& device, const bp_op_query& query, bp_support& out) {
  const Options& options = device.options;
  const std::string name = sdk::op_name(query.code);
  if (device.next_question_is_refused()) sdk::refuse("an injected no");
  if (options.without.count(name)) sdk::refuse("turned off by an option");
  if (uses_cache(query.code) && (options.no_kv || (query.features & BP_FEATURE_KV_CANONICAL) != 0)) {
    sdk::refuse("only with the plugin's own KV cache");
  }
  sdk::visit_args(query.code, query.largest, Check{device, query.code});
  out.features = BP_FEATURE_STRIDED | features_of(query.code);
  if ((query.features & ~out.features) != 0) sdk::refuse("an attribute that this plugin doesn't know");
  out.workspace_bytes = workspace_bytes(query);
  out.flags = BP_SUPPORT_DETERMINISTIC | BP_SUPPORT_BATCH_INVARIANT;
  if (!options.no_graph && !options.uncapturable.count(name)) out.flags |= BP_SUPPORT_CAPTURE_SAFE;
  if (!moves_bits(query.code)) {
    out.activation_type = options.want_f16.count(name) ? bp_type{BP_TYPE_F16} : device.real;
  }
  out.accumulator_type = BP_TYPE_F64;
  lie(options.lie, out);
}

}  // namespace opaque

#include "tests/conformance/questions.h"

#include <algorithm>

#include "core/base/abi_call.h"
#include "tests/conformance/side.h"

namespace backplane::conformance {
namespace {

constexpr std::int64_t kTokens = 4, kWidth = 64, kOutputs = 8, kVocabulary = 32, kHeads = 4, kKvHeads = 2, kDim = 32,
                       kPages = 3;

// The structs of one question. Each op uses its own, fused ones those of their parts too.
struct Structs {
  bp_step step{};
  bp_embed_args embed{};
  bp_norm_args norm{};
  bp_linear_args linear{};
  bp_rope_args rope{};
  bp_kv_write_args write{};
  bp_attention_args attention{};
  bp_activation_args activation{};
  bp_glu_args glu{};
  bp_binary_args binary{};
  bp_scalar_args scalar{};
  bp_gather_args gather{};
  bp_unary_args unary{};
  bp_topk_args topk{};
  bp_sample_args sample{};
  bp_advance_args advance{};
  bp_add_norm_args add_norm{};
  bp_qkv_args qkv{};
  bp_gateup_args gateup{};
  bp_head_argmax_args head{};
};

class Maker {
 public:
  Maker(const device::Device& device, DType activation)
      : real_(static_cast<bp_type>(activation)),
        parameter_(activation == DType::kF64 ? bp_type{BP_TYPE_F64} : bp_type{BP_TYPE_F32}),
        own_cache_(has_kv(device)) {
    const std::uint32_t liked = device.caps().page_sizes[0];
    page_size_ = liked == 0 ? 16 : liked;
    for (const DType type : {DType::kF64, DType::kBF16, DType::kF16, DType::kF32}) {
      if (device.takes_kv_type(type)) cache_type_ = static_cast<bp_type>(type);
    }
    weight_ = parameter_;
    if (device.takes_weight_type(static_cast<DType>(parameter_)) || has_weights(device)) return;
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
      if (device.takes_weight_type(type)) weight_ = static_cast<bp_type>(type);
    }
  }

  std::vector<Question> all() {
    fill_step();
    fill_single();
    fill_cache();
    fill_fused();
    return std::move(questions_);
  }

 private:
  bp_tensor real(const std::vector<std::int64_t>& shape) const { return shape_of(real_, shape); }
  bp_tensor parameters(std::int64_t size) const { return shape_of(parameter_, {size}); }
  bp_matrix matrix(std::int64_t rows) const {
    bp_matrix m{};
    m.tensor = shape_of(weight_, {rows, kWidth});
    return m;
  }

  // `fill` sets the struct behind the member and says which of its tensors are activations.
  template <class Args, class Fill>
  void add(std::uint32_t code, Args Structs::*member, std::uint64_t features, Fill&& fill) {
    auto structs = std::make_shared<Structs>(base_);
    Args& args = structs.get()->*member;
    args.size = sizeof(Args);
    Question question;
    question.code = code;
    question.features = features;
    fill(*structs, args, question);
    question.args = std::shared_ptr<void>(structs, &args);
    questions_.push_back(std::move(question));
  }

  static void set_norm(bp_norm_args& a, const bp_tensor& x, const bp_tensor& weight) {
    a.size = sizeof(a);
    a.x = a.out = x;
    a.weight = weight;
    a.eps = 1e-5;
    a.kind = BP_NORM_RMS;
  }

  void set_rope(bp_rope_args& a) const {
    a.size = sizeof(a);
    a.x = real({kTokens, kHeads, kDim});
    a.pos = a.row = shape_of(BP_TYPE_I32, {kTokens});
    a.inv_freq = shape_of(BP_TYPE_F64, {1, kDim / 2});
    a.scale = shape_of(BP_TYPE_F64, {1});
    a.n_dims = kDim;
  }

  template <class Args>
  void set_pages(Args& a) const {
    if (own_cache_) return;
    a.k_pages = a.v_pages = shape_of(cache_type_, {kPages, page_size_, kKvHeads, kDim});
  }
  std::uint64_t cache_feature() const { return own_cache_ ? 0 : std::uint64_t{BP_FEATURE_KV_CANONICAL}; }

  void set_write(Structs& s, bp_kv_write_args& a) const {
    a.size = sizeof(a);
    a.step = &s.step;
    a.k = a.v = real({kTokens, kKvHeads, kDim});
    set_pages(a);
  }

  void fill_step() {
    bp_step& step = base_.step;
    step.size = sizeof(step);
    step.tokens = step.max_q = kTokens;
    step.sequences = step.n_decode = step.groups = step.rows = 1;
    step.page_size = step.max_kv = static_cast<std::uint32_t>(page_size_);
    step.max_pages = 1;
  }

  void fill_single();
  void fill_elementwise();
  void fill_sampling();
  void fill_cache();
  void fill_fused();

  bp_type real_, parameter_, weight_, cache_type_ = BP_TYPE_F32;
  bool own_cache_;
  std::int64_t page_size_;
  Structs base_;
  std::vector<Question> questions_;
};

void Maker::fill_single() {
  add(BP_OP_EMBED, &Structs::embed, 0, [&](Structs&, bp_embed_args& a, Question& q) {
    a.ids = shape_of(BP_TYPE_I32, {kTokens});
    a.table = matrix(kVocabulary);
    a.out = real({kTokens, kWidth});
    q.activations = {&a.out};
  });
  add(BP_OP_NORM, &Structs::norm, 0, [&](Structs&, bp_norm_args& a, Question& q) {
    set_norm(a, real({kTokens, kWidth}), parameters(kWidth));
    q.activations = {&a.x, &a.out};
    q.kind = &a.kind;
  });
  add(BP_OP_LINEAR, &Structs::linear, 0, [&](Structs&, bp_linear_args& a, Question& q) {
    a.x = real({kTokens, kWidth});
    a.weight = matrix(kOutputs);
    a.out = real({kTokens, kOutputs});
    q.activations = {&a.x, &a.out};
  });
  add(BP_OP_ROPE, &Structs::rope, 0, [&](Structs&, bp_rope_args& a, Question& q) {
    set_rope(a);
    q.activations = {&a.x};
  });
  add(BP_OP_GATHER_ROWS, &Structs::gather, 0, [&](Structs&, bp_gather_args& a, Question& q) {
    a.x = real({kTokens, kWidth});
    a.index = shape_of(BP_TYPE_I32, {2});
    a.out = real({2, kWidth});
    q.activations = {&a.x, &a.out};
  });
  fill_elementwise();
  fill_sampling();
}

void Maker::fill_elementwise() {
  add(BP_OP_ACT, &Structs::activation, BP_FEATURE_RELU, [&](Structs&, bp_activation_args& a, Question& q) {
    a.x = a.out = real({kTokens, kWidth});
    a.kind = BP_ACT_RELU;
    q.activations = {&a.x, &a.out};
    q.kind = &a.kind;
  });
  add(BP_OP_GLU, &Structs::glu, BP_FEATURE_SILU, [&](Structs&, bp_glu_args& a, Question& q) {
    a.gate = a.up = a.out = real({kTokens, kWidth});
    a.kind = BP_ACT_SILU;
    q.activations = {&a.gate, &a.up, &a.out};
    q.kind = &a.kind;
  });
  for (const std::uint32_t code : {BP_OP_ADD, BP_OP_MUL}) {
    add(code, &Structs::binary, 0, [&](Structs&, bp_binary_args& a, Question& q) {
      a.a = a.b = a.out = real({kTokens, kWidth});
      a.alpha = 1;
      q.activations = {&a.a, &a.b, &a.out};
    });
  }
  for (const std::uint32_t code : {BP_OP_SCALE, BP_OP_SOFTCAP, BP_OP_FILL}) {
    add(code, &Structs::scalar, 0, [&](Structs&, bp_scalar_args& a, Question& q) {
      a.out = real({kTokens, kWidth});
      if (code != BP_OP_FILL) a.x = a.out, q.activations.push_back(&a.x);
      a.value = 2;
      q.activations.push_back(&a.out);
    });
  }
  for (const std::uint32_t code : {BP_OP_CAST, BP_OP_COPY}) {
    add(code, &Structs::unary, 0, [&](Structs&, bp_unary_args& a, Question& q) {
      a.x = a.out = real({kTokens, kWidth});
      q.activations = {&a.x, &a.out};
    });
  }
}

void Maker::fill_sampling() {
  add(BP_OP_TOPK, &Structs::topk, 0, [&](Structs&, bp_topk_args& a, Question& q) {
    a.x = real({2, kVocabulary});
    a.ids = shape_of(BP_TYPE_I32, {2, 3});
    a.values = real({2, 3});
    q.activations = {&a.x, &a.values};
  });
  add(BP_OP_SAMPLE, &Structs::sample, 0, [&](Structs&, bp_sample_args& a, Question& q) {
    a.logits = real({2, kVocabulary});
    a.temperature = a.top_p = a.min_p = shape_of(BP_TYPE_F64, {2});
    a.top_k = a.ids = shape_of(BP_TYPE_I32, {2});
    a.seed = a.counter = shape_of(BP_TYPE_U64, {2});
    q.activations = {&a.logits};
  });
  add(BP_OP_ADVANCE, &Structs::advance, 0, [&](Structs&, bp_advance_args& a, Question&) {
    a.ids = a.target = shape_of(BP_TYPE_I32, {2});
    a.token = shape_of(BP_TYPE_I32, {kTokens});
  });
  add(BP_OP_HEAD_ARGMAX, &Structs::head, 0, [&](Structs&, bp_head_argmax_args& a, Question& q) {
    a.x = real({2, kWidth});
    a.weight = matrix(kVocabulary);
    a.ids = shape_of(BP_TYPE_I32, {2});
    a.values = real({2});
    q.activations = {&a.x, &a.values};
  });
}

void Maker::fill_cache() {
  add(BP_OP_KV_WRITE, &Structs::write, cache_feature(), [&](Structs& s, bp_kv_write_args& a, Question& q) {
    set_write(s, a);
    q.activations = {&a.k, &a.v};
  });
  for (const std::uint32_t code : {BP_OP_ATTN_PREFILL, BP_OP_ATTN_DECODE}) {
    add(code, &Structs::attention, cache_feature(), [&](Structs& s, bp_attention_args& a, Question& q) {
      a.step = &s.step;
      a.q = a.out = real({kTokens, kHeads, kDim});
      set_pages(a);
      a.last_sequence = 1;
      a.kv_heads = kKvHeads;
      a.scale = 0.125;
      q.activations = {&a.q, &a.out};
    });
  }
}

void Maker::fill_fused() {
  add(BP_OP_ADD_NORM, &Structs::add_norm, 0, [&](Structs& s, bp_add_norm_args& a, Question& q) {
    a.a = a.b = a.sum = real({kTokens, kWidth});
    a.alpha = 1;
    set_norm(s.norm, a.sum, parameters(kWidth));
    a.norm = &s.norm;
    q.activations = {&a.a, &a.b, &a.sum, &s.norm.x, &s.norm.out};
    q.kind = &s.norm.kind;
  });
  add(BP_OP_QKV_ROPE_WRITE, &Structs::qkv, cache_feature(), [&](Structs& s, bp_qkv_args& a, Question& q) {
    a.x = real({kTokens, kWidth});
    a.q_weight = matrix(kHeads * kDim);
    a.k_weight = a.v_weight = matrix(kKvHeads * kDim);
    a.q = real({kTokens, kHeads, kDim});
    set_rope(s.rope);
    set_write(s, s.write);
    a.rope = &s.rope;
    a.write = &s.write;
    q.activations = {&a.x, &a.q, &s.rope.x, &s.write.k, &s.write.v};
  });
  add(BP_OP_GATEUP_GLU, &Structs::gateup, BP_FEATURE_SILU, [&](Structs& s, bp_gateup_args& a, Question& q) {
    a.x = real({kTokens, kWidth});
    a.gate_weight = a.up_weight = matrix(kOutputs);
    a.out = real({kTokens, kOutputs});
    s.glu.size = sizeof(s.glu);
    s.glu.gate = s.glu.up = s.glu.out = a.out;
    s.glu.kind = BP_ACT_SILU;
    a.glu = &s.glu;
    q.activations = {&a.x, &a.out, &s.glu.gate, &s.glu.up, &s.glu.out};
    q.kind = &s.glu.kind;
  });
  add(BP_OP_LINEAR_ADD, &Structs::linear, 0, [&](Structs&, bp_linear_args& a, Question& q) {
    a.x = real({kTokens, kWidth});
    a.weight = matrix(kOutputs);
    a.out = a.residual = real({kTokens, kOutputs});
    a.alpha = 1;
    q.activations = {&a.x, &a.out, &a.residual};
  });
  const std::uint64_t act_features = BP_FEATURE_RELU | std::uint64_t{BP_FEATURE_X_NORM};
  add(BP_OP_LINEAR_ACT, &Structs::linear, act_features, [&](Structs& s, bp_linear_args& a, Question& q) {
    a.x = real({kTokens, kWidth});
    a.weight = matrix(kOutputs);
    a.out = real({kTokens, kOutputs});
    set_norm(s.norm, a.x, parameters(kWidth));
    a.x_norm = &s.norm;
    a.kind = BP_ACT_RELU;
    q.activations = {&a.x, &a.out, &s.norm.x, &s.norm.out};
  });
}

}  // namespace

bp_tensor shape_of(bp_type type, const std::vector<std::int64_t>& shape) {
  const DTypeInfo& info = dtype_info(static_cast<DType>(type));
  bp_tensor t{};
  t.type = type;
  t.rank = static_cast<std::uint32_t>(shape.size());
  std::fill(std::begin(t.shape), std::end(t.shape), 1);
  std::int64_t stride = info.block_bytes;
  for (std::uint32_t d = t.rank; d-- > 0;) {
    t.shape[d] = shape[d];
    t.stride[d] = stride;
    stride *= d + 1 == t.rank ? shape[d] / info.block_elements : shape[d];
  }
  return t;
}

std::vector<Question> proper_questions(const device::Device& device, DType activation) {
  return Maker(device, activation).all();
}

Answer ask(device::Device& device, const Question& question) {
  bp_op_query query{};
  query.size = sizeof(query);
  query.code = question.code;
  query.layer = UINT32_MAX;
  query.smallest = query.largest = question.args.get();
  query.features = question.features;
  Answer answer;
  answer.support.size = sizeof(bp_support);
  AbiCall call;
  answer.status = device.tables().device->supports(device.handle(), call.context(), &query, &answer.support);
  answer.reason = call.text();
  return answer;
}

}  // namespace backplane::conformance

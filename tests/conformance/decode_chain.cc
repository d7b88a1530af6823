// The ops of a step that decodes.
#include <algorithm>
#include <cmath>

#include "tests/conformance/chain.h"
#include "tests/conformance/values.h"

namespace backplane::conformance {
namespace {

constexpr double kEps = 1e-5;

bp_tensor reshaped(bp_tensor t, const Shape& shape) {
  const auto element = static_cast<std::int64_t>(dtype_info(static_cast<DType>(t.type)).block_bytes);
  t.rank = static_cast<std::uint32_t>(shape.size());
  std::int64_t stride = element;
  for (std::uint32_t d = t.rank; d-- > 0; stride *= shape[d]) {
    t.shape[d] = shape[d];
    t.stride[d] = stride;
  }
  return t;
}

// The numbers that an array of the step has, as ROPE takes them.
Array as_array(const std::int32_t* values, std::int64_t count) {
  Array out({count});
  std::copy_n(values, count, out.data.begin());
  return out;
}

}  // namespace

DecodeArrays::DecodeArrays(const PagedStep& paged, const std::vector<Row>& rows) : rows_(rows), step_(paged.step) {
  const std::size_t count = rows.size(), sequences = paged.sequences.size(), width = paged.step.max_pages;
  q_start_ = {0};
  table_.assign(2 * count * width, -1);
  slot_.assign(2 * count, -1);
  for (std::size_t b = 0; b < count; ++b) {
    const std::int64_t last = rows[b].length - 1;
    token_.push_back(static_cast<std::int32_t>(b));
    pos_.push_back(static_cast<std::int32_t>(last));
    q_start_.push_back(static_cast<std::int32_t>(b + 1));
    kv_len_.push_back(static_cast<std::int32_t>(rows[b].length));
    rope_row_.push_back(rows[b].rope_row);
    if (rows[b].writes) slot_[count + b] = paged.slot(rows[b].sequence, last);
    const std::int32_t* from = paged.step.page_table + (sequences + rows[b].sequence) * width;
    const std::int64_t pages = last / paged.spec.page_size + 1;
    std::copy_n(from, pages, table_.begin() + static_cast<std::ptrdiff_t>((count + b) * width));
  }
  step_.tokens = step_.sequences = step_.n_decode = static_cast<std::uint32_t>(count);
  step_.max_q = 1;
  step_.token = token_.data();
  step_.pos = pos_.data();
  step_.q_start = q_start_.data();
  step_.kv_len = kv_len_.data();
  step_.page_table = table_.data();
  step_.slot = slot_.data();
  step_.rope_row = rope_row_.data();
}

void DecodeArrays::overwrite() {
  for (auto* array : {&token_, &pos_, &q_start_, &kv_len_, &table_, &rope_row_}) {
    std::fill(array->begin(), array->end(), -1);
  }
  std::fill(slot_.begin(), slot_.end(), -1);
}

CacheSpec DecodeChain::cache_spec(const Trial& trial, Cache where) {
  const device::Device& device = const_cast<Trial&>(trial).subject.device();
  CacheSpec spec{.where = where, .kv_heads = kKvHeads, .dim = kDim, .value_dim = kDim};
  const std::uint32_t liked = device.caps().page_sizes[0];
  spec.page_size = liked == 0 ? 16 : liked;
  for (const DType type : {DType::kF64, DType::kBF16, DType::kF16, DType::kF32}) {
    if (device.takes_kv_type(type)) spec.type = type;
  }
  return spec;
}

DecodeChain::DecodeChain(Trial& trial, Cache where)
    : trial_(trial),
      paged_(trial, cache_spec(trial, where), {{4, 5}, {32, 33}, {17, 18}}, 3),
      first_(paged_, longest()),
      cache_(trial.subject, paged_, true),
      gate_(random_weight(trial, trial.subject.parameter_type(), kHeads * kDim, kWidth)),
      up_(random_weight(trial, trial.subject.parameter_type(), kHeads * kDim, kWidth)),
      norm_(trial.draw_parameters({kWidth})),
      frequencies_({2, kDim / 2}),
      scales_({2}),
      keys_(paged_.k),
      values_(paged_.v),
      list_(trial.subject) {
  for (std::int64_t i = 0; i < kDim / 2; ++i) {
    frequencies_.row(0)[i] = std::pow(1e4, -2.0 * static_cast<double>(i) / kDim);
    frequencies_.row(1)[i] = frequencies_.row(0)[i] / 4;
  }
  scales_.data = {1, 0.75};
  cache_.writable();
  make_list();
}

void DecodeChain::make_list() {
  Side& side = trial_.subject;
  const Form form = form_for(side.device(), gate_.type);
  const std::int64_t tokens = first_.step().tokens, width = kHeads * kDim;
  inputs_ = {trial_.draw({tokens, kWidth}), trial_.draw({tokens, kKvHeads, kDim}),
             trial_.draw({tokens, kKvHeads, kDim})};
  step_ = side.step(first_.step());
  bp_norm_args norm{};
  norm.x = x_ = side.input(inputs_.x);
  norm.weight = side.parameters(norm_);
  norm.out = side.output({tokens, kWidth});
  norm.eps = kEps;
  norm.kind = BP_NORM_RMS;
  list_.add(BP_OP_NORM, norm);
  bp_linear_args gate{}, up{};
  gate.x = up.x = norm.out;
  gate.weight = matrix_on(side, gate_, form, BP_USE_LINEAR);
  gate.out = side.output({tokens, width});
  list_.add(BP_OP_LINEAR, gate);
  up.weight = matrix_on(side, up_, form, BP_USE_LINEAR);
  up.out = side.output({tokens, width});
  list_.add(BP_OP_LINEAR, up);
  bp_glu_args glu{};
  glu.gate = glu.out = gate.out;
  glu.up = up.out;
  glu.kind = BP_ACT_SILU;
  list_.add(BP_OP_GLU, glu, BP_FEATURE_SILU);
  bp_rope_args rope{};
  rope.x = reshaped(gate.out, {tokens, kHeads, kDim});
  rope.pos = side.step_array(*step_, step_->pos_offset, tokens);
  rope.row = side.step_array(*step_, step_->rope_row_offset, tokens);
  rope.inv_freq = side.exact(DType::kF64, frequencies_);
  rope.scale = side.exact(DType::kF64, scales_);
  rope.n_dims = kDim;
  list_.add(BP_OP_ROPE, rope);
  bp_kv_write_args write{};
  write.step = step_;
  write.k = k_ = side.input(inputs_.k);
  write.v = v_ = side.input(inputs_.v);
  cache_.bind(write);
  list_.add(BP_OP_KV_WRITE, write, cache_.features());
  bp_attention_args attention{};
  attention.step = step_;
  attention.q = rope.x;
  attention.out = out_ = side.output({tokens, kHeads, kDim});
  cache_.bind(attention);
  attention.last_sequence = static_cast<std::uint32_t>(tokens);
  attention.kv_heads = kKvHeads;
  attention.scale = 1 / std::sqrt(static_cast<double>(kDim));
  list_.add(BP_OP_ATTN_DECODE, attention, cache_.features());
}

void DecodeChain::set(const std::vector<DecodeArrays::Row>& rows) {
  Side& side = list_.side();
  const DType type = trial_.activation();
  const std::int64_t tokens = first_.step().tokens;
  inputs_ = {trial_.draw({tokens, kWidth}), trial_.draw({tokens, kKvHeads, kDim}),
             trial_.draw({tokens, kKvHeads, kDim})};
  side.write(x_, encode(type, inputs_.x));
  side.write(k_, encode(type, inputs_.k));
  side.write(v_, encode(type, inputs_.v));
  arrays_ = std::make_unique<DecodeArrays>(paged_, rows);
  side.rewrite(*step_, arrays_->step());
}

Array DecodeChain::expected_attention(const DecodeArrays& arrays, const Array& q, const Array& q_bound, Array& bound) {
  Side& side = trial_.oracle;
  const DType cache = paged_.spec.type;
  bp_attention_args args{};
  args.step = side.step(arrays.step());
  args.q = side.input(q);
  args.out = side.output(q.shape);
  args.k_pages = side.raw(cache, keys_.shape, encode(cache, keys_));
  args.v_pages = side.raw(cache, values_.shape, encode(cache, values_));
  args.group = PagedStep::kGroup;
  args.layer = PagedStep::kLayer;
  args.last_sequence = arrays.step().sequences;
  args.kv_heads = kKvHeads;
  args.scale = 1 / std::sqrt(static_cast<double>(kDim));
  side.run(BP_OP_ATTN_DECODE, args, BP_FEATURE_KV_CANONICAL);
  const Array out = side.read(args.out);
  const Arithmetic arithmetic = arithmetic_of(list_.support(6), trial_.activation());
  bound = Array(out.shape);
  for (std::size_t b = 0; b < arrays.rows().size(); ++b) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      AttentionTerms terms{{}, {}, kDim, kDim, args.scale, 0, {}};
      for (std::int64_t j = 0; j < arrays.rows()[b].length; ++j) {
        const std::int64_t at = paged_.slot(arrays.rows()[b].sequence, j) * kKvHeads + h / (kHeads / kKvHeads);
        terms.keys.push_back(keys_.row(at));
        terms.values.push_back(values_.row(at));
      }
      const std::int64_t row = static_cast<std::int64_t>(b) * kHeads + h;
      attention_bound(arithmetic, q.row(row), q_bound.row(row), terms, out.row(row), bound.row(row));
    }
  }
  return out;
}

void DecodeChain::judge(const std::string& what) {
  const DecodeArrays& arrays = *arrays_;
  const std::int64_t tokens = arrays.step().tokens;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t slot = arrays.step().slot[tokens + t];
    if (slot < 0) continue;
    for (std::int64_t i = 0; i < kKvHeads * kDim; ++i) {
      keys_.row(slot * kKvHeads)[i] = round_to(paged_.spec.type, inputs_.k.row(t * kKvHeads)[i]);
      values_.row(slot * kKvHeads)[i] = round_to(paged_.spec.type, inputs_.v.row(t * kKvHeads)[i]);
    }
  }
  const Value n = normed(trial_, list_.support(0), exactly(inputs_.x), norm_, kEps);
  const Value gate = projected(trial_, list_.support(1), n, gate_, nullptr);
  const Value up = projected(trial_, list_.support(2), n, up_, nullptr);
  Value q = gated(trial_, list_.support(3), gate, up);
  q.exact.shape = q.bound.shape = {tokens, kHeads, kDim};
  const Array pos = as_array(arrays.step().pos, tokens), row = as_array(arrays.step().rope_row, tokens);
  q = rotated(trial_, list_.support(4), q, {pos, row, frequencies_, scales_, kDim, false});
  Array bound;
  const Array expected = expected_attention(arrays, q.exact, q.bound, bound);
  trial_.compare(what, list_.side().read(out_), expected, bound);
  const auto [k, v] = cache_.contents();
  trial_.same_bytes("K pages " + what, paged_.spec.type, k, encode(paged_.spec.type, keys_));
  trial_.same_bytes("V pages " + what, paged_.spec.type, v, encode(paged_.spec.type, values_));
}

}  // namespace backplane::conformance

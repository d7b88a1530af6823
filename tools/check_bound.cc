#include "tools/check_bound.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/base/error.h"
#include "core/device/reference.h"
#include "tests/conformance/random.h"

namespace backplane::tools::check {
namespace {

namespace dev = backplane::device;
using conformance::Arithmetic;

template <class Args>
const Args& args_of(const OpRun& run) {
  return *static_cast<const Args*>(run.site.largest.get());
}

Array constant(const OpRun& run, std::size_t number, DType type, conformance::Shape shape) {
  dev::Storage& storage = *run.site.constants.at(number);
  std::vector<std::byte> bytes(storage.bytes());
  storage.get_host(0, bytes);
  bytes.resize(static_cast<std::size_t>(conformance::element_count(shape)) * dtype_info(type).block_bytes);
  return conformance::decode(type, std::move(shape), bytes);
}

Array parameter(const OpRun& run, std::size_t number, std::int64_t size) {
  return constant(run, number, run.executor.parameter_type(), {size});
}

Array norm(const Arithmetic& a, const OpRun& run) {
  const auto& args = args_of<bp_norm_args>(run);
  const Array& x = run.values.before[0];
  const bool has_weight = args.weight.type != BP_TYPE_NONE, has_bias = args.bias.type != BP_TYPE_NONE;
  Array weight, bias;
  if (has_weight) weight = parameter(run, 0, x.columns());
  if (has_bias) bias = parameter(run, has_weight ? 1 : 0, x.columns());
  return conformance::norm_bound(
      a, run.values.out, x,
      {args.kind, args.eps, args.unit_offset, has_weight ? &weight : nullptr, has_bias ? &bias : nullptr});
}

// A band of rows of the weight at a time: all of a vocabulary in double would be large.
Array linear(const Arithmetic& a, const OpRun& run) {
  constexpr std::int64_t kBand = 1024;
  const Array &x = run.values.before[0], &y = run.values.out;
  const dev::WeightSource& source = run.site.matrices[0].weight->source();
  dev::StoredMatrix stored = source.stored;
  std::vector<std::byte> turned;
  if (source.transposed) {
    turned = dev::transpose(run.executor.reference(), stored);
    stored = {turned, stored.type, stored.columns, stored.rows};
  }
  Array bias, ties, bound(y.shape);
  const bool has_bias = args_of<bp_linear_args>(run).bias.type != BP_TYPE_NONE;
  if (has_bias) bias = parameter(run, 0, y.columns());
  conformance::quantize_activations(x, run.quantized, ties);
  const std::uint64_t row_size = *row_bytes(stored.type, stored.columns);
  const DType plain = run.executor.parameter_type();
  for (std::int64_t begin = 0; begin < y.columns(); begin += kBand) {
    const std::int64_t count = std::min(kBand, y.columns() - begin);
    const auto part =
        stored.data.subspan(static_cast<std::uint64_t>(begin) * row_size, static_cast<std::uint64_t>(count) * row_size);
    const Array weight = conformance::decode(
        plain, {count, x.columns()},
        dev::convert(run.executor.reference(), {part, stored.type, static_cast<std::uint64_t>(count), stored.columns},
                     plain));
    Array some({y.rows(), count}), addend;
    for (std::int64_t t = 0; t < y.rows(); ++t) std::copy_n(y.row(t) + begin, count, some.row(t));
    if (has_bias)
      addend.shape = {count}, addend.data.assign(bias.data.begin() + begin, bias.data.begin() + begin + count);
    const Array each =
        conformance::linear_bound(a, some,
                                  {x, weight, has_bias ? &addend : nullptr,
                                   run.quantized == DType::kNone ? nullptr : &ties, is_quantized(stored.type)});
    for (std::int64_t t = 0; t < y.rows(); ++t) std::copy_n(each.row(t), count, bound.row(t) + begin);
  }
  return bound;
}

Array rope(const Arithmetic& a, const OpRun& run) {
  const auto& args = args_of<bp_rope_args>(run);
  const std::int64_t tokens = run.step.tokens();
  Array pos({tokens}), row({tokens});
  std::copy(run.step.pos.begin(), run.step.pos.end(), pos.data.begin());
  std::copy(run.step.rope_row.begin(), run.step.rope_row.end(), row.data.begin());
  const Array frequencies = constant(run, 0, DType::kF64, {args.inv_freq.shape[0], args.inv_freq.shape[1]});
  const Array scale = constant(run, 1, DType::kF64, {args.scale.shape[0]});
  return conformance::rope_bound(a, run.values.out, run.values.before[0],
                                 {pos, row, frequencies, scale, args.n_dims, args.interleaved != 0});
}

// The tokens that a query sees, as rows of the pages: position by position.
std::vector<std::int64_t> seen_slots(const OpRun& run, const bp_attention_args& args, std::size_t sequence,
                                     std::int64_t last) {
  const std::int64_t first = args.window == 0 ? 0 : std::max<std::int64_t>(0, last - args.window + 1);
  const std::int32_t* table =
      run.step.page_table.data() + (args.group * run.step.sequences() + sequence) * std::size_t{run.step.max_pages};
  std::vector<std::int64_t> slots;
  for (std::int64_t j = first; j <= last; ++j) {
    slots.push_back(std::int64_t{table[j / run.step.page_size]} * run.step.page_size + j % run.step.page_size);
  }
  return slots;
}

Array attention(const Arithmetic& a, const OpRun& run) {
  const auto& args = args_of<bp_attention_args>(run);
  const Array& q = run.values.before[0];
  const std::int64_t heads = q.shape[1];
  Array bound(run.values.out.shape), sinks;
  if (args.sinks.type != BP_TYPE_NONE) sinks = parameter(run, 0, heads);
  const bool decode = run.site.code == BP_OP_ATTN_DECODE;
  const std::size_t begin = decode ? 0 : run.step.n_decode, end = decode ? run.step.n_decode : run.step.sequences();
  const std::int64_t first_row = run.step.q_start[begin];
  for (std::size_t b = begin; b < end; ++b) {
    for (std::int64_t t = run.step.q_start[b]; t < run.step.q_start[b + 1]; ++t) {
      const auto slots = seen_slots(run, args, b, run.step.pos[static_cast<std::size_t>(t)]);
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t row = (t - first_row) * heads + h;
        conformance::AttentionTerms terms{{},           {}, run.kv->k.columns(), run.kv->v.columns(), args.scale,
                                          args.softcap, {}};
        if (!sinks.data.empty()) terms.sink = sinks.data[static_cast<std::size_t>(h)];
        for (const std::int64_t slot : slots) {
          const std::int64_t at = slot * args.kv_heads + h / (heads / args.kv_heads);
          terms.keys.push_back(run.kv->k.row(at));
          terms.values.push_back(run.kv->v.row(at));
        }
        conformance::attention_bound(a, q.row(t * heads + h), nullptr, terms, run.values.out.row(row), bound.row(row));
      }
    }
  }
  return bound;
}

// condition(i), underflow(i) for each element.
template <class Condition, class Underflow>
Array elementwise(const Arithmetic& a, const OpRun& run, Condition&& condition, Underflow&& underflow) {
  Array conditions(run.values.out.shape), lost(run.values.out.shape);
  for (std::size_t i = 0; i < conditions.data.size(); ++i) {
    conditions.data[i] = condition(i);
    lost.data[i] = underflow(i);
  }
  return conformance::elementwise_bound(a, run.values.out, conditions, &lost);
}

Array activation(const Arithmetic& a, const OpRun& run) {
  const bool glu = run.site.code == BP_OP_GLU;
  const std::uint32_t kind = glu ? args_of<bp_glu_args>(run).kind : args_of<bp_activation_args>(run).kind;
  const std::vector<double>& x = run.values.before[glu ? 1 : 0].data;  // up comes first
  const std::vector<double>& out = run.values.out.data;
  const auto lift = [&](std::size_t i) { return glu ? std::fabs(run.values.before[0].data[i]) : 1; };
  return elementwise(
      a, run,
      [&](std::size_t i) {
        return conformance::activation_condition(kind, x[i]) * lift(i) + (glu ? std::fabs(out[i]) : 0);
      },
      [&](std::size_t i) { return conformance::activation_underflow(kind, x[i], a) * lift(i); });
}

Array arithmetic_op(const Arithmetic& a, const OpRun& run) {
  const std::vector<double>&first = run.values.before[0].data, &out = run.values.out.data;
  const bool cap = run.site.code == BP_OP_SOFTCAP, sum = run.site.code == BP_OP_ADD;
  const double value = cap ? std::fabs(args_of<bp_scalar_args>(run).value) : 0;
  const double alpha = sum ? args_of<bp_binary_args>(run).alpha : 0;
  return elementwise(
      a, run,
      [&](std::size_t i) {
        if (sum) return std::fabs(run.values.before[1].data[i]) + std::fabs(alpha * first[i]);  // b comes first
        return std::fabs(out[i]) + (cap ? std::min(std::fabs(first[i]), value) : 0);
      },
      [&](std::size_t) { return 2 * value * a.tiny_sum(); });
}

}  // namespace

bool is_copy(std::uint32_t code) { return code == BP_OP_EMBED || code == BP_OP_GATHER_ROWS || code == BP_OP_KV_WRITE; }

Array bound_of(const Arithmetic& a, const OpRun& run) {
  switch (run.site.code) {
    case BP_OP_EMBED:
    case BP_OP_GATHER_ROWS:
      return Array(run.values.out.shape, a.flushes ? a.out.normal : 0);
    case BP_OP_NORM:
      return norm(a, run);
    case BP_OP_LINEAR:
      return linear(a, run);
    case BP_OP_ROPE:
      return rope(a, run);
    case BP_OP_ATTN_PREFILL:
    case BP_OP_ATTN_DECODE:
      return attention(a, run);
    case BP_OP_ACT:
    case BP_OP_GLU:
      return activation(a, run);
    case BP_OP_ADD:
    case BP_OP_MUL:
    case BP_OP_SCALE:
    case BP_OP_SOFTCAP:
      return arithmetic_op(a, run);
    default:
      throw Error(ErrorCode::kInternal, "no bound for this op", dev::op_name(run.site.code));
  }
}

}  // namespace backplane::tools::check

// QKV_ROPE_WRITE: projections, norms of heads, rotation and the write to the cache, as one op.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/conformance/paged.h"
#include "tests/conformance/suite.h"
#include "tests/conformance/weights.h"
#include "tests/conformance/x_norm.h"

namespace backplane::conformance {
namespace {

constexpr std::int64_t kHeads = 4, kKvHeads = 2, kDim = 32;

struct QkvSpec {
  DType type;
  Cache where;
  DType kv_type;
  std::int64_t page_size;
  bool bias = false, norm = false, rope = true, interleaved = false, x_norm = false;
};

struct Inputs {
  Array x, q_bias, k_bias, v_bias, q_norm, k_norm, pos, row, inv_freq, scale;
  Weight q, k, v;
};

Inputs make_inputs(Trial& trial, const QkvSpec& spec, const PagedStep& paged) {
  const std::int64_t columns = is_quantized(spec.type) ? dtype_info(spec.type).block_elements : 48;
  const std::int64_t tokens = paged.tokens();
  Inputs in;
  in.x = trial.draw({tokens, columns});
  in.q_bias = trial.draw_parameters({kHeads * kDim});
  in.k_bias = trial.draw_parameters({kKvHeads * kDim});
  in.v_bias = trial.draw_parameters({kKvHeads * kDim});
  in.q_norm = trial.draw_parameters({kDim});
  in.k_norm = trial.draw_parameters({kDim});
  in.q = random_weight(trial, spec.type, kHeads * kDim, columns);
  in.k = random_weight(trial, spec.type, kKvHeads * kDim, columns);
  in.v = random_weight(trial, spec.type, kKvHeads * kDim, columns);
  in.pos = Array({tokens});
  in.row = Array({tokens});
  in.inv_freq = Array({1, kDim / 2});
  in.scale = Array({1}, 1);
  std::copy(paged.positions().begin(), paged.positions().end(), in.pos.data.begin());
  for (std::int64_t i = 0; i < kDim / 2; ++i)
    in.inv_freq.data[static_cast<std::size_t>(i)] = std::pow(1e4, -2.0 * static_cast<double>(i) / kDim);
  return in;
}

struct Outputs {
  Array q;
  std::vector<std::byte> k_pages, v_pages;
};

Outputs run_fused(Trial& trial, Side& side, const QkvSpec& spec, const PagedStep& paged, const Inputs& in,
                  std::optional<XNorm>& x_norm) {
  const std::int64_t tokens = paged.tokens();
  const Form form = side.device().takes_weight_type(spec.type) ? Form::kCanonical : Form::kImported;
  Array ties;
  SideCache cache(side, paged, false);
  cache.writable();
  bp_qkv_args args{};
  args.q_weight = matrix_on(side, in.q, form, BP_USE_LINEAR);
  args.k_weight = matrix_on(side, in.k, form, BP_USE_LINEAR);
  args.v_weight = matrix_on(side, in.v, form, BP_USE_LINEAR);
  args.x = x_norm ? x_norm->bind(side, args.x_norm) : side.input(trial.input_for(side, in.x, ties));
  if (spec.bias) {
    args.q_bias = side.parameters(in.q_bias);
    args.k_bias = side.parameters(in.k_bias);
    args.v_bias = side.parameters(in.v_bias);
  }
  args.q = side.output({tokens, kHeads, kDim});
  bp_kv_write_args write{};
  write.size = sizeof(write);
  write.step = side.step(paged.step);
  write.k = side.output({tokens, kKvHeads, kDim});
  write.v = side.output({tokens, kKvHeads, kDim});
  cache.bind(write);
  args.write = &write;
  bp_norm_args norms[2] = {};
  if (spec.norm) {
    for (int i = 0; i < 2; ++i) {
      norms[i].size = sizeof(bp_norm_args);
      norms[i].x = norms[i].out = i == 0 ? args.q : write.k;
      norms[i].weight = side.parameters(i == 0 ? in.q_norm : in.k_norm);
      norms[i].eps = 1e-6;
      norms[i].kind = BP_NORM_RMS;
    }
    args.q_norm = &norms[0];
    args.k_norm = &norms[1];
  }
  bp_rope_args rope{};
  rope.size = sizeof(rope);
  rope.x = args.q;
  rope.pos = side.exact(DType::kI32, in.pos);
  rope.row = side.exact(DType::kI32, in.row);
  rope.inv_freq = side.exact(DType::kF64, in.inv_freq);
  rope.scale = side.exact(DType::kF64, in.scale);
  rope.n_dims = kDim;
  rope.interleaved = spec.interleaved ? 1 : 0;
  if (spec.rope) args.rope = &rope;
  const std::uint64_t features = (spec.bias ? std::uint64_t{BP_FEATURE_BIAS} : 0) |
                                 (spec.norm ? std::uint64_t{BP_FEATURE_QK_NORM} : 0) |
                                 (spec.rope ? 0 : std::uint64_t{BP_FEATURE_NO_ROPE}) |
                                 (spec.rope && spec.interleaved ? std::uint64_t{BP_FEATURE_ROPE_INTERLEAVED} : 0);
  side.run(BP_OP_QKV_ROPE_WRITE, args, features | cache.features() | (x_norm ? x_norm->features() : 0));
  Outputs out;
  out.q = side.read(args.q);
  std::tie(out.k_pages, out.v_pages) = cache.contents();
  return out;
}

// The parts on the oracle's side, in double on the host: only to carry errors through them.
Array carried_bound(Trial& trial, const QkvSpec& spec, const Inputs& in, const std::optional<XNorm::Result>& normed,
                    const Weight& weight, const Array& bias, const Array* norm_weight, bool rotate,
                    std::int64_t heads) {
  const Arithmetic a = trial.arithmetic();
  Array ties;
  const Array x = normed ? normed->y : trial.input_for(trial.oracle, in.x, ties);
  Array y({x.rows(), weight.rows});
  for (std::int64_t t = 0; t < y.rows(); ++t) {
    for (std::int64_t n = 0; n < y.columns(); ++n) {
      double sum = spec.bias ? bias.data[static_cast<std::size_t>(n)] : 0;
      for (std::int64_t c = 0; c < x.columns(); ++c) sum += x.row(t)[c] * weight.numbers.row(n)[c];
      y.row(t)[n] = sum;
    }
  }
  Array bound = linear_bound(a, y,
                             {normed ? x : in.x, weight.numbers, spec.bias ? &bias : nullptr, normed ? nullptr : &ties,
                              is_quantized(spec.type)});
  if (normed) {
    const Array carried = linear_of_errors(normed->errors, weight.numbers);
    for (std::size_t i = 0; i < bound.data.size(); ++i) bound.data[i] += carried.data[i];
  }
  y.shape = bound.shape = {x.rows(), heads, kDim};
  if (spec.norm && norm_weight) {
    const NormTerms terms{BP_NORM_RMS, 1e-6, 0, norm_weight, nullptr};
    Array unit(y.shape);
    for (std::int64_t r = 0; r < y.rows(); ++r) {
      double squares = 0;
      for (std::int64_t i = 0; i < kDim; ++i) squares += y.row(r)[i] * y.row(r)[i];
      for (std::int64_t i = 0; i < kDim; ++i) {
        unit.row(r)[i] =
            y.row(r)[i] / std::sqrt(squares / kDim + 1e-6) * norm_weight->data[static_cast<std::size_t>(i)];
      }
    }
    const Array own = norm_bound(a, unit, y, terms), carried = norm_of_errors(bound, y, terms);
    for (std::size_t i = 0; i < own.data.size(); ++i) bound.data[i] = own.data[i] + carried.data[i];
    y = unit;
  }
  if (rotate) {
    const RopeTerms terms{in.pos, in.row, in.inv_freq, in.scale, kDim, spec.interleaved};
    Array largest = y;  // than which no rotated element is larger: |a c| + |b s|
    for (double& value : largest.data) value = std::fabs(value);
    largest = rope_of_errors(largest, terms);
    const Array own = rope_bound(a, largest, y, terms), carried = rope_of_errors(bound, terms);
    for (std::size_t i = 0; i < own.data.size(); ++i) {
      bound.data[i] = own.data[i] + carried.data[i];
    }
  }
  return bound;
}

// What rounding element i of a row to the cache's type may add: it comes after the rest, and can go either way.
double rounding(DType type, const double* row, const double* bound, std::int64_t i) {
  if (!is_quantized(type)) {
    const Precision cache = precision_of(type);
    return 2 * cache.unit * std::fabs(row[i]) + cache.smallest;
  }
  // Two times half a step, which itself is rounded to 11 bits, and what a wrong largest element makes of the step.
  const std::int64_t begin = i / 32 * 32;
  double largest = 0, off = 0;
  for (std::int64_t k = begin; k < begin + 32; ++k) {
    largest = std::max(largest, std::fabs(row[k]));
    off = std::max(off, bound[k]);
  }
  return (largest + off) / 127 * (1 + 127 * std::ldexp(1.0, -10)) + off / 127;
}

// The rows of this step's tokens, which is all that was written; everything else must still be poison.
void compare_pages(Trial& trial, const char* what, const PagedStep& paged, const std::vector<std::byte>& actual,
                   const std::vector<std::byte>& expected, const Array& bound) {
  const DType type = paged.spec.type;
  const Shape shape = paged.k.shape;
  const Array got = decode(type, shape, actual), want = decode(type, shape, expected);
  Array allowed(shape);
  for (std::int64_t t = 0; t < paged.tokens(); ++t) {
    const std::int64_t slot = paged.slots()[static_cast<std::size_t>(t)];
    for (std::int64_t i = 0; i < kKvHeads * kDim; ++i) {
      allowed.row(slot * kKvHeads)[i] =
          bound.row(t * kKvHeads)[i] + rounding(type, want.row(slot * kKvHeads), bound.row(t * kKvHeads), i);
    }
  }
  trial.compare(what, got, want, allowed);
}

void try_qkv(Trial& trial, const QkvSpec& spec) {
  const CacheSpec cache{.where = spec.where,
                        .type = spec.kv_type,
                        .page_size = spec.page_size,
                        .kv_heads = kKvHeads,
                        .dim = kDim,
                        .value_dim = kDim};
  const PagedStep paged(trial, cache, {{5, 6}, {spec.page_size, spec.page_size + 1}, {0, 7}}, 2);
  const Inputs in = make_inputs(trial, spec, paged);
  std::optional<XNorm> x_norm;
  if (spec.x_norm) x_norm.emplace(trial, BP_NORM_LAYER, in.x);
  const auto [actual, expected] =
      trial.both([&](Side& side) { return run_fused(trial, side, spec, paged, in, x_norm); });
  std::optional<XNorm::Result> normed;
  if (x_norm) normed = x_norm->result();
  trial.compare("q", actual.q, expected.q,
                carried_bound(trial, spec, in, normed, in.q, in.q_bias, &in.q_norm, spec.rope, kHeads));
  compare_pages(trial, "K pages", paged, actual.k_pages, expected.k_pages,
                carried_bound(trial, spec, in, normed, in.k, in.k_bias, &in.k_norm, spec.rope, kKvHeads));
  compare_pages(trial, "V pages", paged, actual.v_pages, expected.v_pages,
                carried_bound(trial, spec, in, normed, in.v, in.v_bias, nullptr, false, kKvHeads));
}

}  // namespace

void add_qkv_cases(Suite& suite) {
  for (const Cache where : {Cache::kCanonical, Cache::kOwn}) {
    if (where == Cache::kOwn && !has_kv(suite.device())) continue;
    for (const DType kv_type : suite.kv_types()) {
      for (const DType type : {DType::kF32, DType::kF16, DType::kQ4_0, DType::kQ6_K}) {
        if (!suite.device().takes_weight_type(type) && !has_weights(suite.device())) continue;
        const QkvSpec plain{type, where, kv_type, suite.page_sizes().front()};
        const auto add = [&](const char* name, const QkvSpec& spec) {
          suite.add_for_each_type(
              fmt::format("QKV_ROPE_WRITE/{}/{}/{}/{}", cache_name(where), dtype_name(kv_type), dtype_name(type), name),
              [spec](Trial& trial) { try_qkv(trial, spec); });
        };
        add("halves", plain);
        QkvSpec spec = plain;
        spec.interleaved = spec.bias = true;
        add("interleaved_bias", spec);
        spec = plain;
        spec.norm = true;
        add("norm", spec);
        spec = plain;
        spec.rope = false;
        add("no_rope", spec);
        spec = plain;
        spec.x_norm = true;
        add("x_norm", spec);
      }
    }
  }
}

}  // namespace backplane::conformance

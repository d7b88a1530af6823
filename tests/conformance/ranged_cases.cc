// Ops that are asked for, and prepared, for a range of shapes, as the planner does it: one answer, one workspace and
// one handle serve every shape between the two ends.
#include <fmt/format.h>

#include <cmath>

#include "tests/conformance/paged.h"
#include "tests/conformance/suite.h"
#include "tests/conformance/values.h"

namespace backplane::conformance {
namespace {

constexpr std::int64_t kSizes[] = {1, 2, 7, 16, 33};
// The largest first, so that what it leaves behind would be seen; both ends more than once.
constexpr std::int64_t kOrder[] = {33, 1, 7, 2, 33, 16, 1};

// An op of one size, and what it must give, to be looked at after it ran.
template <class Args>
struct Shot {
  Args args;
  std::function<void(const std::string& what)> judge;
};

// `make(size)` gives a Shot. One question for all sizes.
template <class Make>
void run_range(Trial& trial, std::uint32_t code, std::uint64_t features, std::span<const std::int64_t> sizes,
               std::span<const std::int64_t> order, Make&& make) {
  Side& side = trial.subject;
  const Side::Ready op = side.ready_between(code, make(sizes.front()).args, make(sizes.back()).args, features);
  for (const std::int64_t size : order) {
    const auto shot = make(size);
    side.enqueue(op, shot.args);
    side.sync();
    shot.judge(fmt::format("size {} of {} to {}", size, sizes.front(), sizes.back()));
  }
}

// The same for ops whose size is the number of tokens.
template <class Make>
void run_tokens(Trial& trial, std::uint32_t code, std::uint64_t features, Make&& make) {
  run_range(trial, code, features, kSizes, kOrder, make);
}

template <class Args>
Shot<Args> shot_of(Trial& trial, const Args& args, const bp_tensor& out, std::function<Value()> expected) {
  return {args, [&trial, out, expected](const std::string& what) {
            const Value value = expected();
            trial.compare(what, trial.subject.read(out), value.exact, value.bound);
          }};
}

void try_norm(Trial& trial) {
  const Array weight = trial.draw_parameters({65});
  const bp_tensor on_subject = trial.subject.parameters(weight);
  run_tokens(trial, BP_OP_NORM, 0, [&](std::int64_t tokens) {
    const Array x = trial.draw({tokens, 65});
    bp_norm_args args{};
    args.x = trial.subject.input(x);
    args.weight = on_subject;
    args.out = trial.subject.output(x.shape);
    args.eps = 1e-5;
    args.kind = BP_NORM_RMS;
    return shot_of(trial, args, args.out,
                   [&trial, &weight, x] { return normed(trial, trial.subject.support(), exactly(x), weight, 1e-5); });
  });
}

void try_linear(Trial& trial, DType type) {
  const std::int64_t columns = is_quantized(type) ? 2 * dtype_info(type).block_elements : 70;
  const Weight weight = random_weight(trial, type, 19, columns);
  const Array bias = trial.draw_parameters({19});
  const Form form = form_for(trial.subject.device(), type);
  const bp_matrix on_subject = matrix_on(trial.subject, weight, form, BP_USE_LINEAR);
  const bp_tensor bias_on_subject = trial.subject.parameters(bias);
  run_tokens(trial, BP_OP_LINEAR, BP_FEATURE_BIAS, [&](std::int64_t tokens) {
    const Array x = trial.draw({tokens, columns});
    bp_linear_args args{};
    args.x = trial.subject.input(x);
    args.weight = on_subject;
    args.bias = bias_on_subject;
    args.out = trial.subject.output({tokens, 19});
    return shot_of(trial, args, args.out, [&trial, &weight, &bias, x] {
      return projected(trial, trial.subject.support(), exactly(x), weight, &bias);
    });
  });
}

void try_glu(Trial& trial) {
  run_tokens(trial, BP_OP_GLU, BP_FEATURE_SILU, [&](std::int64_t tokens) {
    const Array gate = trial.draw({tokens, 65}), up = trial.draw({tokens, 65});
    bp_glu_args args{};
    args.gate = trial.subject.input(gate);
    args.up = trial.subject.input(up);
    args.out = trial.subject.output(gate.shape);
    args.kind = BP_ACT_SILU;
    return shot_of(trial, args, args.out,
                   [&trial, gate, up] { return gated(trial, trial.subject.support(), exactly(gate), exactly(up)); });
  });
}

void try_add(Trial& trial) {
  run_tokens(trial, BP_OP_ADD, 0, [&](std::int64_t tokens) {
    const Array a = trial.draw({tokens, 33}), b = trial.draw({tokens, 33});
    bp_binary_args args{};
    args.a = trial.subject.input(a);
    args.b = trial.subject.input(b);
    args.out = trial.subject.output(a.shape);
    args.alpha = 1;
    return shot_of(trial, args, args.out,
                   [&trial, a, b] { return added(trial, trial.subject.support(), exactly(a), exactly(b)); });
  });
}

void try_rope(Trial& trial) {
  Array frequencies({1, 16});
  for (std::size_t i = 0; i < 16; ++i) frequencies.data[i] = std::pow(1e4, -static_cast<double>(i) / 16);
  const Array scale({1}, 1);
  Side& side = trial.subject;
  run_tokens(trial, BP_OP_ROPE, 0, [&](std::int64_t tokens) {
    const Array x = trial.draw({tokens, 3, 32}), row({tokens});
    Array pos({tokens});
    for (double& p : pos.data) p = static_cast<double>(trial.random.below(300));
    bp_rope_args args{};
    args.x = side.input(x);
    side.changes(args.x);
    args.pos = side.exact(DType::kI32, pos);
    args.row = side.exact(DType::kI32, row);
    args.inv_freq = side.exact(DType::kF64, frequencies);
    args.scale = side.exact(DType::kF64, scale);
    args.n_dims = 32;
    return shot_of(trial, args, args.x, [&trial, &frequencies, &scale, x, pos, row] {
      return rotated(trial, trial.subject.support(), exactly(x), {pos, row, frequencies, scale, 32, false});
    });
  });
}

void try_embed(Trial& trial) {
  const DType type = trial.subject.parameter_type();
  const Weight table = random_weight(trial, type, 23, 33);
  const Form form = form_for(trial.subject.device(), type);
  const bp_matrix on_subject = matrix_on(trial.subject, table, form, BP_USE_EMBED);
  run_tokens(trial, BP_OP_EMBED, 0, [&](std::int64_t tokens) {
    Array ids({tokens});
    for (double& id : ids.data) id = static_cast<double>(trial.random.below(23));
    bp_embed_args args{};
    args.ids = trial.subject.exact(DType::kI32, ids);
    args.table = on_subject;
    args.out = trial.subject.output({tokens, 33});
    Array expected({tokens, 33});
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto id = static_cast<std::int64_t>(ids.data[static_cast<std::size_t>(t)]);
      std::copy_n(table.numbers.row(id), 33, expected.row(t));
    }
    round_to(trial.activation(), expected);
    return Shot<bp_embed_args>{args, [&trial, args, expected](const std::string& what) {
                                 trial.same(what, trial.subject.read(args.out), expected);
                               }};
  });
}

// Steps that grow in every dimension: sequences, tokens, pages.
std::vector<Sequence> sequences_of(std::int64_t size, std::int64_t page, bool decode) {
  const std::vector<Sequence> decodes = {{0, 1}, {page, page + 1}, {5, 6}, {3 * page, 3 * page + 1}, {2, 3}};
  const std::vector<Sequence> prefills = {{0, 1}, {0, page + 3}, {page - 1, page + 2}, {0, 2 * page + 1}, {1, 7}};
  const auto& all = decode ? decodes : prefills;
  return {all.begin(), all.begin() + size};
}

struct PagedShot {
  std::unique_ptr<PagedStep> paged;
  std::unique_ptr<SideCache> cache;
};

Value attended(Trial& trial, const PagedStep& paged, bp_attention_args args, std::uint32_t code, const Array& q) {
  Side& side = trial.oracle;
  const SideCache cache(side, paged, true);
  args.step = side.step(paged.step);
  args.q = side.input(q);
  args.out = side.output(q.shape);
  cache.bind(args);
  side.run(code, args, cache.features());
  Value out{side.read(args.out), Array(q.shape)};
  const Arithmetic arithmetic = trial.arithmetic();
  const std::int64_t heads = q.shape[1], group = heads / paged.spec.kv_heads;
  for (std::int64_t t = 0; t < paged.tokens(); ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      AttentionTerms terms{{}, {}, paged.spec.dim, paged.spec.value_dim, args.scale, 0, {}};
      const std::size_t b = paged.sequence_of(t);
      for (std::int64_t j = 0; j <= paged.positions()[static_cast<std::size_t>(t)]; ++j) {
        terms.keys.push_back(paged.key(b, j, h / group));
        terms.values.push_back(paged.value(b, j, h / group));
      }
      const std::int64_t row = t * heads + h;
      attention_bound(arithmetic, q.row(row), nullptr, terms, out.exact.row(row), out.bound.row(row));
    }
  }
  return out;
}

void try_attention(Trial& trial, std::uint32_t code, const CacheSpec& spec) {
  constexpr std::int64_t kSteps[] = {1, 2, 3, 5}, kStepOrder[] = {5, 1, 3, 2, 5, 1};
  const bool decode = code == BP_OP_ATTN_DECODE;
  std::vector<PagedShot> kept;
  const std::uint64_t features = spec.where == Cache::kOwn ? 0 : std::uint64_t{BP_FEATURE_KV_CANONICAL};
  run_range(trial, code, features, kSteps, kStepOrder, [&](std::int64_t size) {
    const auto sequences = sequences_of(size, spec.page_size, decode);
    const auto decodes = static_cast<std::uint32_t>(decode ? size : 0);
    auto paged = std::make_unique<PagedStep>(trial, spec, sequences, decodes);
    const Array q = trial.draw({paged->tokens(), 4, spec.dim});
    auto cache = std::make_unique<SideCache>(trial.subject, *paged, true);
    bp_attention_args args{};
    args.step = trial.subject.step(paged->step);
    args.q = trial.subject.input(q);
    args.out = trial.subject.output(q.shape);
    cache->bind(args);
    args.last_sequence = static_cast<std::uint32_t>(size);
    args.kv_heads = static_cast<std::uint32_t>(spec.kv_heads);
    args.scale = 1 / std::sqrt(static_cast<double>(spec.dim));
    kept.push_back({std::move(paged), std::move(cache)});
    return shot_of(trial, args, args.out, [&trial, step = kept.back().paged.get(), args, code, q] {
      return attended(trial, *step, args, code, q);
    });
  });
}

void try_kv_write(Trial& trial, const CacheSpec& spec) {
  constexpr std::int64_t kSteps[] = {1, 2, 3, 5}, kStepOrder[] = {5, 1, 3, 2, 5, 1};
  std::vector<PagedShot> kept;
  const std::uint64_t features = spec.where == Cache::kOwn ? 0 : std::uint64_t{BP_FEATURE_KV_CANONICAL};
  run_range(trial, BP_OP_KV_WRITE, features, kSteps, kStepOrder, [&](std::int64_t size) {
    auto paged = std::make_unique<PagedStep>(trial, spec, sequences_of(size, spec.page_size, false), 0);
    const Shape shape = {paged->tokens(), spec.kv_heads, spec.dim};
    const Array k = trial.draw(shape), v = trial.draw(shape);
    auto cache = std::make_unique<SideCache>(trial.subject, *paged, true);
    cache->writable();
    bp_kv_write_args args{};
    args.step = trial.subject.step(paged->step);
    args.k = trial.subject.input(k);
    args.v = trial.subject.input(v);
    cache->bind(args);
    kept.push_back({std::move(paged), std::move(cache)});
    return Shot<bp_kv_write_args>{
        args, [&trial, at = kept.size() - 1, &kept, k, v](const std::string& what) {
          const PagedStep& step = *kept[at].paged;
          Array keys = step.k, values = step.v;
          for (std::int64_t t = 0; t < step.tokens(); ++t) {
            const std::int64_t to = step.slots()[static_cast<std::size_t>(t)] * step.spec.kv_heads;
            for (std::int64_t i = 0; i < step.spec.kv_heads * step.spec.dim; ++i) {
              keys.row(to)[i] = round_to(step.spec.type, k.row(t * step.spec.kv_heads)[i]);
              values.row(to)[i] = round_to(step.spec.type, v.row(t * step.spec.kv_heads)[i]);
            }
          }
          const auto [found_k, found_v] = kept[at].cache->contents();
          trial.same_bytes("K pages of " + what, step.spec.type, found_k, encode(step.spec.type, keys));
          trial.same_bytes("V pages of " + what, step.spec.type, found_v, encode(step.spec.type, values));
        }};
  });
}

void add_cache_cases(Suite& suite) {
  for (const Cache where : {Cache::kCanonical, Cache::kOwn}) {
    if ((where == Cache::kOwn && !has_kv(suite.device())) || suite.kv_types().empty()) continue;
    const DType type = suite.device().takes_kv_type(DType::kF32) ? DType::kF32 : suite.kv_types().front();
    const CacheSpec spec{
        .where = where, .type = type, .page_size = suite.page_sizes().front(), .dim = 32, .value_dim = 32};
    suite.add_for_each_type(fmt::format("KV_WRITE/{}/range", cache_name(where)),
                            [spec](Trial& trial) { try_kv_write(trial, spec); });
    for (const std::uint32_t code : {BP_OP_ATTN_PREFILL, BP_OP_ATTN_DECODE}) {
      suite.add_for_each_type(fmt::format("{}/{}/range", device::op_name(code), cache_name(where)),
                              [code, spec](Trial& trial) { try_attention(trial, code, spec); });
    }
  }
}

}  // namespace

void add_ranged_cases(Suite& suite) {
  suite.add_for_each_type("NORM/range", try_norm);
  suite.add_for_each_type("GLU/range", try_glu);
  suite.add_for_each_type("ADD/range", try_add);
  suite.add_for_each_type("ROPE/range", try_rope);
  suite.add_for_each_type("EMBED/range", try_embed);
  for (const DType type : weight_types()) {
    if (!suite.device().takes_weight_type(type) && !has_weights(suite.device())) continue;
    suite.add_for_each_type(fmt::format("LINEAR/{}/range", dtype_name(type)),
                            [type](Trial& trial) { try_linear(trial, type); });
  }
  add_cache_cases(suite);
}

}  // namespace backplane::conformance

// What a device declares about its bits: the same call gives the same ones, and a token's do not depend on the others.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/paged.h"
#include "tests/conformance/suite.h"
#include "tests/conformance/weights.h"

namespace backplane::conformance {
namespace {

void need(Trial& trial, std::uint64_t support_flag, std::uint64_t cap, const char* what) {
  Side& side = trial.subject;
  if ((side.support().flags & support_flag) != 0 || (side.device().caps().flags & cap) != 0) return;
  throw Skipped{fmt::format("the device doesn't declare that its results are {}", what)};
}
void need_invariant(Trial& trial) {
  need(trial, BP_SUPPORT_BATCH_INVARIANT, BP_CAP_BATCH_INVARIANT, "batch invariant");
}
void need_deterministic(Trial& trial) { need(trial, BP_SUPPORT_DETERMINISTIC, BP_CAP_DETERMINISTIC, "deterministic"); }

// Rows [begin, begin + count) of an array.
Array rows_of(const Array& x, std::int64_t begin, std::int64_t count) {
  Shape shape = x.shape;
  shape[0] = count;
  const std::int64_t width = x.shape[0] == 0 ? 0 : static_cast<std::int64_t>(x.data.size()) / x.shape[0];
  Array out(shape);
  std::copy_n(x.data.begin() + begin * width, count * width, out.data.begin());
  return out;
}

// Tokens alone, in small groups, and all together: `op` maps [T,...] to [T,...] on the subject.
template <class Op>
void try_rows(Trial& trial, const Array& x, Op&& op) {
  const std::vector<std::byte> whole = op(x);
  need_invariant(trial);
  const std::int64_t tokens = x.shape[0];
  const std::size_t row = whole.size() / static_cast<std::size_t>(tokens);
  for (const std::int64_t size : {1, 2, 3, 8, 16}) {
    for (std::int64_t begin = 0; begin + size <= tokens; begin += size * 2 + 1) {
      const std::vector<std::byte> part = op(rows_of(x, begin, size));
      const auto* from = whole.data() + static_cast<std::size_t>(begin) * row;
      trial.same_bytes(fmt::format("tokens {} to {} of {} alone", begin, begin + size, tokens), trial.activation(),
                       part, {from, part.size()});
    }
  }
}

void try_linear_rows(Trial& trial, DType type) {
  const std::int64_t columns = is_quantized(type) ? dtype_info(type).block_elements : 131;
  const Weight weight = random_weight(trial, type, 37, columns);
  const Form form = trial.subject.device().takes_weight_type(type) ? Form::kCanonical : Form::kImported;
  const bp_matrix matrix = matrix_on(trial.subject, weight, form, BP_USE_LINEAR);
  try_rows(trial, trial.draw({33, columns}), [&](const Array& x) {
    bp_linear_args args{};
    args.x = trial.subject.input(x);
    args.weight = matrix;
    args.out = trial.subject.output({x.shape[0], 37});
    trial.subject.run(BP_OP_LINEAR, args);
    return trial.subject.bytes(args.out);
  });
}

void try_norm_rows(Trial& trial) {
  try_rows(trial, trial.draw({33, 129}), [&](const Array& x) {
    bp_norm_args args{};
    args.x = trial.subject.input(x);
    args.out = trial.subject.output(x.shape);
    args.eps = 1e-5;
    args.kind = BP_NORM_RMS;
    trial.subject.run(BP_OP_NORM, args, BP_FEATURE_NORM_NO_WEIGHT);
    return trial.subject.bytes(args.out);
  });
}

struct AttentionRun {
  Cache where;
  DType type;
  std::int64_t page_size;
};

// One sequence of a step: its queries, against the same pages. `first` is its number in the step.
std::vector<std::byte> attend(Trial& trial, const PagedStep& paged, const bp_step& step, const Array& q,
                              std::uint32_t code, std::uint32_t first, std::uint32_t last) {
  SideCache cache(trial.subject, paged, true);
  bp_attention_args args{};
  args.step = trial.subject.step(step);
  args.q = trial.subject.input(q);
  args.out = trial.subject.output({q.shape[0], q.shape[1], paged.spec.value_dim});
  cache.bind(args);
  args.first_sequence = first;
  args.last_sequence = last;
  args.kv_heads = static_cast<std::uint32_t>(paged.spec.kv_heads);
  args.scale = 0.125;
  trial.subject.run(code, args, cache.features());
  return trial.subject.bytes(args.out);
}

// Each sequence alone in its step gives the bits that it has among others.
void try_attention_alone(Trial& trial, std::uint32_t code, const AttentionRun& run) {
  const CacheSpec spec{.where = run.where, .type = run.type, .page_size = run.page_size};
  const bool decode = code == BP_OP_ATTN_DECODE;
  const std::vector<Sequence> sequences =
      decode ? std::vector<Sequence>{{40, 41}, {3, 4}, {run.page_size, run.page_size + 1}}
             : std::vector<Sequence>{{0, 19}, {7, 8}, {30, 37}};
  const auto count = static_cast<std::uint32_t>(sequences.size());
  const PagedStep paged(trial, spec, sequences, decode ? count : 0);
  const Array q = trial.draw({paged.tokens(), 4, spec.dim});
  const std::vector<std::byte> whole = attend(trial, paged, paged.step, q, code, 0, count);
  need_invariant(trial);
  const std::size_t row = whole.size() / static_cast<std::size_t>(paged.tokens());
  for (std::uint32_t b = 0; b < count; ++b) {
    const std::int32_t begin = paged.step.q_start[b], tokens = paged.step.q_start[b + 1] - begin;
    const std::int32_t starts[] = {0, tokens};
    std::vector<std::int32_t> table(2 * paged.step.max_pages);
    std::copy_n(paged.step.page_table + (count + b) * paged.step.max_pages, paged.step.max_pages,
                table.begin() + paged.step.max_pages);
    std::vector<std::int64_t> slots(2 * static_cast<std::size_t>(tokens), -1);
    bp_step alone = paged.step;
    alone.tokens = static_cast<std::uint32_t>(tokens);
    alone.sequences = 1;
    alone.n_decode = decode ? 1 : 0;
    alone.token += begin;
    alone.pos += begin;
    alone.rope_row += begin;
    alone.q_start = starts;
    alone.kv_len += b;
    alone.page_table = table.data();
    alone.slot = slots.data();
    const std::vector<std::byte> part = attend(trial, paged, alone, rows_of(q, begin, tokens), code, 0, 1);
    trial.same_bytes(fmt::format("sequence {} of {} alone", b, count), trial.activation(), part,
                     {whole.data() + static_cast<std::size_t>(begin) * row, part.size()});
  }
}

void try_attention_again(Trial& trial, std::uint32_t code, const AttentionRun& run) {
  const CacheSpec spec{.where = run.where, .type = run.type, .page_size = run.page_size};
  const PagedStep paged(trial, spec, {{100, 101}, {17, 18}, {33, 34}}, code == BP_OP_ATTN_DECODE ? 3 : 0);
  const Array q = trial.draw({paged.tokens(), 4, spec.dim});
  const std::vector<std::byte> first = attend(trial, paged, paged.step, q, code, 0, 3);
  need_deterministic(trial);
  for (int i = 0; i < 5; ++i) {
    trial.same_bytes("the same call again", trial.activation(), attend(trial, paged, paged.step, q, code, 0, 3), first);
  }
}

void try_linear_again(Trial& trial, DType type) {
  const std::int64_t columns = is_quantized(type) ? 2 * dtype_info(type).block_elements : 515;
  const Weight weight = random_weight(trial, type, 67, columns);
  const Form form = trial.subject.device().takes_weight_type(type) ? Form::kCanonical : Form::kImported;
  const Array x = trial.draw({17, columns});
  const auto once = [&] {
    bp_linear_args args{};
    args.x = trial.subject.input(x);
    args.weight = matrix_on(trial.subject, weight, form, BP_USE_LINEAR);
    args.out = trial.subject.output({17, 67});
    trial.subject.run(BP_OP_LINEAR, args);
    return trial.subject.bytes(args.out);
  };
  const std::vector<std::byte> first = once();
  need_deterministic(trial);
  for (int i = 0; i < 4; ++i) trial.same_bytes("the same call again", trial.activation(), once(), first);
}

}  // namespace

void add_invariance_cases(Suite& suite) {
  for (const DType type : weight_types()) {
    if (!suite.device().takes_weight_type(type) && !has_weights(suite.device())) continue;
    const std::string name = fmt::format("LINEAR/{}", dtype_name(type));
    suite.add_for_each_type(name + "/batch_invariant", [type](Trial& trial) { try_linear_rows(trial, type); });
    suite.add_for_each_type(name + "/deterministic", [type](Trial& trial) { try_linear_again(trial, type); });
  }
  suite.add_for_each_type("NORM/batch_invariant", try_norm_rows);
  const std::uint32_t largest = suite.device().caps().max_head_dim;
  if (largest != 0 && largest < 64) return;
  for (const Cache where : {Cache::kCanonical, Cache::kOwn}) {
    if (where == Cache::kOwn && !has_kv(suite.device())) continue;
    for (const DType type : suite.kv_types()) {
      for (const std::uint32_t code : {BP_OP_ATTN_PREFILL, BP_OP_ATTN_DECODE}) {
        const AttentionRun run{where, type, suite.page_sizes().front()};
        const std::string name = fmt::format("{}/{}/{}", device::op_name(code), cache_name(where), dtype_name(type));
        suite.add_for_each_type(name + "/batch_invariant",
                                [=](Trial& trial) { try_attention_alone(trial, code, run); });
        suite.add_for_each_type(name + "/deterministic", [=](Trial& trial) { try_attention_again(trial, code, run); });
      }
    }
  }
}

}  // namespace backplane::conformance

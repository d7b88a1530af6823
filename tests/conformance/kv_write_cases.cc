// KV_WRITE: every slot gets its token, bit for bit, and nothing else changes.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/paged.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

struct WriteSpec {
  CacheSpec cache;
  std::vector<Sequence> sequences;
  std::uint32_t decodes = 0;
  bool gaps = false, skips = false;  // skips: some tokens go nowhere
};

void try_write(Trial& trial, const WriteSpec& spec) {
  trial.subject.set_gaps(spec.gaps);
  const PagedStep paged(trial, spec.cache, spec.sequences, spec.decodes);
  const std::int64_t tokens = paged.tokens();
  // What doesn't fit the cache's type exactly shows the rounding.
  const Array k = trial.draw({tokens, spec.cache.kv_heads, spec.cache.dim}, Style::kOutliers);
  const Array v = trial.draw({tokens, spec.cache.kv_heads, spec.cache.value_dim}, Style::kEdges);
  std::vector<std::int64_t> slots(paged.step.slot, paged.step.slot + 2 * tokens);
  if (spec.skips) {
    for (std::size_t t = 0; t < slots.size(); t += 3) slots[t] = -1;
  }
  bp_step step = paged.step;
  step.slot = slots.data();
  const auto [actual, expected] = trial.both([&](Side& side) {
    SideCache cache(side, paged, true);
    cache.writable();
    bp_kv_write_args args{};
    args.step = side.step(step);
    args.k = side.input(k);
    args.v = side.input(v);
    cache.bind(args);
    side.run(BP_OP_KV_WRITE, args, cache.features());
    return cache.contents();
  });
  trial.same_bytes("K pages", spec.cache.type, actual.first, expected.first);
  trial.same_bytes("V pages", spec.cache.type, actual.second, expected.second);
}

void add_write(Suite& suite, const std::string& name, const WriteSpec& spec) {
  suite.add_for_each_type(fmt::format("KV_WRITE/{}/{}/S{}/{}", cache_name(spec.cache.where),
                                      dtype_name(spec.cache.type), spec.cache.page_size, name),
                          [spec](Trial& trial) { try_write(trial, spec); });
}

void add_all(Suite& suite, const CacheSpec& cache) {
  const std::int64_t s = cache.page_size;
  const std::vector<Sequence> mixed = {{s, s + 1}, {2 * s - 1, 2 * s}, {0, 2 * s + 1}, {s - 1, s + 2}};
  add_write(suite, "mixed", {cache, mixed, 2});
  add_write(suite, "one_token", {cache, {{0, 1}}, 1});
  add_write(suite, "strided", {cache, mixed, 2, true});
  add_write(suite, "skipped_tokens", {cache, mixed, 2, false, true});
  CacheSpec other = cache;
  other.kv_heads = 3;
  other.dim = is_quantized(cache.type) ? 96 : 80;  // whole blocks
  other.value_dim = 32;
  add_write(suite, "value_dim", {other, mixed, 2});
}

}  // namespace

void add_kv_write_cases(Suite& suite) {
  const std::uint32_t largest = suite.device().caps().max_head_dim;
  for (const Cache where : {Cache::kCanonical, Cache::kOwn}) {
    if (where == Cache::kOwn && !has_kv(suite.device())) continue;
    for (const DType type : suite.kv_types()) {
      for (const std::uint32_t page : suite.page_sizes()) {
        CacheSpec cache{.where = where, .type = type, .page_size = page};
        if (largest != 0 && largest < 80) cache.dim = cache.value_dim = largest;
        add_all(suite, cache);
      }
    }
  }
}

}  // namespace backplane::conformance

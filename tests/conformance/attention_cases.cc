// ATTN_PREFILL and ATTN_DECODE over shuffled pages, with poison wherever no token is.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/conformance/paged.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

struct AttentionSpec {
  CacheSpec cache;
  std::int64_t heads = 4;
  std::vector<Sequence> sequences;
  std::uint32_t decodes = 0;
  double scale = 0, softcap = 0;  // scale 0: 1 / sqrt(D)
  bool sinks = false, gaps = false;
  bool spoiled = false;  // the last tokens have keys and values that aren't finite
};

// Whoever sees such a token gets what follows from it, and nobody else anything.
void spoil(PagedStep& paged) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t b = 0; b < paged.sequences.size(); ++b) {
    const auto [begin, end] = paged.sequences[b];
    if (end - begin < 2) continue;
    const auto at = [&](Array& x, std::int64_t position, std::int64_t d) -> double& {
      const std::int64_t head = paged.slot(b, position) * paged.spec.kv_heads;
      return x.data[static_cast<std::size_t>(head * x.shape[3] + d)];
    };
    at(paged.v, end - 2, 1) = kInfinity;
    at(paged.v, end - 2, 8) = kNan;
    at(paged.v, end - 1, 2) = -kInfinity;
    at(paged.v, end - 1, 1) = -kInfinity;
    if (end - begin > 3) at(paged.k, end - 1, 0) = kNan;
  }
}

void bound_row(const Arithmetic& a, const AttentionSpec& spec, const PagedStep& paged, std::int64_t token,
               std::int64_t head, const Array& q, const Array& sinks, const Array& out, Array& bound) {
  const CacheSpec& cache = spec.cache;
  const std::size_t b = paged.sequence_of(token);
  const std::int64_t last = paged.positions()[static_cast<std::size_t>(token)];
  const std::int64_t first = cache.window == 0 ? 0 : std::max<std::int64_t>(0, last - cache.window + 1);
  const std::int64_t kv_head = head / (spec.heads / cache.kv_heads), row = token * spec.heads + head;
  AttentionTerms terms{{}, {}, cache.dim, cache.value_dim, spec.scale, spec.softcap, {}};
  if (spec.sinks) terms.sink = sinks.data[static_cast<std::size_t>(head)];
  for (std::int64_t j = first; j <= last; ++j) {
    terms.keys.push_back(paged.key(b, j, kv_head));
    terms.values.push_back(paged.value(b, j, kv_head));
  }
  attention_bound(a, q.row(row), nullptr, terms, out.row(row), bound.row(row));
}

std::uint64_t attention_features(const AttentionSpec& spec) {
  return (spec.cache.window > 0 ? std::uint64_t{BP_FEATURE_ATTN_WINDOW} : 0) |
         (spec.softcap > 0 ? std::uint64_t{BP_FEATURE_ATTN_SOFTCAP} : 0) |
         (spec.sinks ? std::uint64_t{BP_FEATURE_ATTN_SINKS} : 0);
}

// One of the two ops, on the sequences that are its own; the rows of the others must stay as they were.
void try_attention(Trial& trial, std::uint32_t code, AttentionSpec spec) {
  trial.subject.set_gaps(spec.gaps);
  if (spec.scale == 0) spec.scale = 1 / std::sqrt(static_cast<double>(spec.cache.dim));
  PagedStep paged(trial, spec.cache, spec.sequences, spec.decodes);
  if (spec.spoiled) spoil(paged);
  const Array q = trial.draw({paged.tokens(), spec.heads, spec.cache.dim});
  const Array sinks = trial.draw_parameters({spec.heads}, 1);
  const bool decode = code == BP_OP_ATTN_DECODE;
  const auto [actual, expected] = trial.both([&](Side& side) {
    const SideCache cache(side, paged, true);
    bp_attention_args args{};
    args.step = side.step(paged.step);
    args.q = side.input(q);
    args.out = side.output({paged.tokens(), spec.heads, spec.cache.value_dim});
    if (spec.sinks) args.sinks = side.parameters(sinks);
    cache.bind(args);
    args.first_sequence = decode ? 0 : spec.decodes;
    args.last_sequence = decode ? spec.decodes : static_cast<std::uint32_t>(spec.sequences.size());
    args.kv_heads = static_cast<std::uint32_t>(spec.cache.kv_heads);
    args.window = static_cast<std::uint32_t>(spec.cache.window);
    args.scale = spec.scale;
    args.softcap = spec.softcap;
    side.run(code, args, cache.features() | attention_features(spec));
    return side.read(args.out);
  });
  Array bound(expected.shape);
  const Arithmetic arithmetic = trial.arithmetic();
  const std::int64_t begin = decode ? 0 : paged.step.q_start[spec.decodes];
  const std::int64_t end = decode ? paged.step.q_start[spec.decodes] : paged.tokens();
  for (std::int64_t t = begin; t < end; ++t) {
    for (std::int64_t h = 0; h < spec.heads; ++h) {
      bound_row(arithmetic, spec, paged, t, h, q, sinks, expected, bound);
    }
  }
  trial.compare("out", actual, expected, bound);
}

class Adder {
 public:
  Adder(Suite& suite, Cache where, DType type, std::int64_t page)
      : suite_(suite), cache_{.where = where, .type = type, .page_size = page} {}

  AttentionSpec base() const {
    const std::int64_t s = cache_.page_size;
    return {.cache = cache_,
            .heads = 4,
            .sequences = {{0, 1}, {s - 1, s}, {s, s + 1}, {3 * s, 3 * s + 1}, {0, 2 * s + 1}, {s + 1, s + 4}, {0, 3}},
            .decodes = 4};
  }

  void add(const std::string& name, const AttentionSpec& spec) {
    const std::uint32_t largest = suite_.device().caps().max_head_dim;
    if (largest != 0 && std::max(spec.cache.dim, spec.cache.value_dim) > largest) return;
    const std::uint32_t block = dtype_info(spec.cache.type).block_elements;
    if (spec.cache.dim % block != 0 || spec.cache.value_dim % block != 0) return;
    const std::string rest = fmt::format("{}/{}/S{}/{}", cache_name(spec.cache.where), dtype_name(spec.cache.type),
                                         spec.cache.page_size, name);
    for (const std::uint32_t code : {BP_OP_ATTN_PREFILL, BP_OP_ATTN_DECODE}) {
      suite_.add_for_each_type(std::string(device::op_name(code)) + "/" + rest,
                               [code, spec](Trial& trial) { try_attention(trial, code, spec); });
    }
  }

  void add_heads() {
    for (const auto& [heads, kv_heads, name] : {std::tuple{4, 4, "mha"}, {6, 2, "gqa"}, {5, 1, "mqa"}}) {
      AttentionSpec spec = base();
      spec.heads = heads;
      spec.cache.kv_heads = kv_heads;
      add(name, spec);
    }
    for (const std::int64_t dim : {32, 64, 80, 96, 128, 192, 256}) {
      AttentionSpec spec = base();
      spec.cache.dim = spec.cache.value_dim = dim;
      add(fmt::format("D{}", dim), spec);
    }
    AttentionSpec spec = base();
    spec.cache.dim = 96;
    spec.cache.value_dim = 64;
    add("value_dim", spec);
  }

  void add_options() {
    AttentionSpec spec = base();
    for (const auto& [window, name] : {std::pair{std::int64_t{1}, "1"},
                                       {std::int64_t{3}, "3"},
                                       {cache_.page_size, "page"},
                                       {cache_.page_size + 3, "page_and_3"},
                                       {std::int64_t{4096}, "4096"}}) {
      spec.cache.window = window;
      add(fmt::format("window_{}", name), spec);
    }
    spec = base();
    spec.scale = 0.5;  // sharp: one key has nearly all the weight
    add("scale_0.5", spec);
    spec.softcap = 5;
    add("softcap", spec);
    spec.sinks = true;
    spec.cache.window = 7;
    add("window_softcap_sinks", spec);
    spec = base();
    spec.sinks = true;
    add("sinks", spec);
    spec = base();
    spec.gaps = true;
    add("strided", spec);
    spec.gaps = false;
    spec.spoiled = true;
    if (is_float(cache_.type)) add("not_finite", spec);
  }

  void add_contexts() {
    AttentionSpec spec = base();
    spec.sequences = {{130, 131}, {255, 256}, {256, 257}, {0, 130}, {100, 133}};
    spec.decodes = 3;
    add("long", spec);
    // Few rows over many keys, which a device may deal out among its cores and put together again.
    spec.sequences = {{255, 256}, {256, 257}, {640, 641}, {520, 523}};
    add("few_long", spec);
    spec.sequences = {{40, 43}, {0, 2}, {17, 18}, {30, 34}};  // a few tokens each, as speculation has them
    spec.decodes = 3;
    add("several_tokens", spec);
    spec.sequences = {{0, 1}, {0, 1}};
    spec.decodes = 1;
    add("first_token", spec);
    spec.sequences = {};
    for (std::int64_t b = 0; b < 12; ++b) spec.sequences.push_back({5 * b, 5 * b + (b < 6 ? 1 : 2)});
    spec.decodes = 6;
    add("twelve_sequences", spec);
  }

 private:
  Suite& suite_;
  CacheSpec cache_;
};

}  // namespace

void add_attention_cases(Suite& suite) {
  for (const Cache where : {Cache::kCanonical, Cache::kOwn}) {
    if (where == Cache::kOwn && !has_kv(suite.device())) continue;
    for (const DType type : suite.kv_types()) {
      bool first = true;
      for (const std::uint32_t page : suite.page_sizes()) {
        Adder adder(suite, where, type, page);
        adder.add_contexts();
        if (first || type == suite.kv_types().front()) adder.add_options();
        if (first) adder.add_heads();
        first = false;
      }
    }
  }
}

}  // namespace backplane::conformance

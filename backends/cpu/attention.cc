// ATTN_PREFILL and ATTN_DECODE, which are the same computation: for each token and head, scores of all keys first, then
// the weighted sum of the values. Keys go from the oldest to the newest, so a token's result depends neither on the
// other tokens of the step nor on how its prompt was cut into steps, nor on where its pages lie.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/dequantize.h"
#include "backends/cpu/ops.h"
#include "backends/cpu/pages.h"
#include "backends/cpu/reduce.h"

namespace backplane::cpu {

namespace {

std::uint64_t score_count(const bp_step& step, std::uint32_t window) {
  return window == 0 ? step.max_kv : std::min(step.max_kv, window);
}

template <class Real>
class Attention {
 public:
  Attention(const Call& call, const bp_attention_args& args)
      : args_(args),
        step_(plugin::step_of(args.step)),
        q_(args.q, "q"),
        out_(args.out, "out"),
        sinks_(args.sinks, "sinks"),
        k_pages_(args.k_pages, "k_pages", false),
        v_pages_(args.v_pages, "v_pages", false) {
    for (std::uint32_t b = args.first_sequence; b < args.last_sequence; ++b) {
      plugin::check_sequence(args, step_, b, k_pages_.count());
    }
    Workspace workspace = call.workspace;
    scratch_size_ = score_count(step_, args.window) + std::max(k_pages_.dim(), v_pages_.dim());
    scratch_ = workspace.take<Real>(plugin::threads() * scratch_size_);
  }

  void run() const {
    const std::int64_t begin = step_.q_start[args_.first_sequence], end = step_.q_start[args_.last_sequence];
    const std::int64_t heads = q_.shape(1);
    plugin::parallel_for((end - begin) * heads, 1, [&](std::int64_t from, std::int64_t to, unsigned worker) {
      for (std::int64_t i = from; i < to; ++i) attend(begin + i / heads, i % heads, worker);
    });
  }

 private:
  // Softmax over the keys of one token and head, in two passes.
  void attend(std::int64_t token, std::int64_t head, unsigned worker) const {
    const std::int32_t* table = page_table(token);
    const std::int64_t kv_head = head / (q_.shape(1) / args_.kv_heads);
    const std::int64_t last = step_.pos[token], first = plugin::first_key(args_, last);
    Real* scores = scratch_ + worker * scratch_size_;
    Real* element = scores + score_count(step_, args_.window);  // one key or value

    Real maximum = -std::numeric_limits<Real>::infinity();
    if (sinks_.present()) maximum = sinks_.template get<Real>(head);
    for (std::int64_t j = first; j <= last; ++j) {
      read(k_pages_, table, j, kv_head, element);
      Real score = static_cast<Real>(args_.scale) * dot(q_.at(token, head), element, k_pages_.dim());
      if (args_.softcap > 0) {
        const Real cap = static_cast<Real>(args_.softcap);
        score = cap * std::tanh(score / cap);
      }
      scores[j - first] = score;
      maximum = std::max(maximum, score);
    }

    Real* out = out_.at(token, head);
    const std::int64_t dim = v_pages_.dim();
    std::fill(out, out + dim, Real{0});
    Real sum = 0;
    if (sinks_.present()) sum = std::exp(sinks_.template get<Real>(head) - maximum);
    for (std::int64_t j = first; j <= last; ++j) {
      const Real weight = std::exp(scores[j - first] - maximum);
      sum += weight;
      read(v_pages_, table, j, kv_head, element);
      for (std::int64_t d = 0; d < dim; ++d) out[d] += weight * element[d];
    }
    for (std::int64_t d = 0; d < dim; ++d) out[d] /= sum;
  }

  const std::int32_t* page_table(std::int64_t token) const {
    const std::int32_t* starts = step_.q_start;
    const auto b = std::upper_bound(starts + args_.first_sequence, starts + args_.last_sequence, token) - starts - 1;
    return step_.page_table + (std::uint64_t{args_.group} * step_.sequences + b) * step_.max_pages;
  }

  static void read(const Pages& pages, const std::int32_t* table, std::int64_t key, std::int64_t head, Real* out) {
    const std::byte* from = pages.at(table[key / pages.page_size()], key % pages.page_size(), head);
    read_elements(pages.type(), from, pages.dim(), out);
  }

  const bp_attention_args& args_;
  const bp_step step_;
  const View<const Real> q_;
  const View<Real> out_;
  const Parameters sinks_;
  const Pages k_pages_, v_pages_;
  Real* scratch_;
  std::uint64_t scratch_size_;
};

}  // namespace

// For each worker: a score for each key, and one key or value.
std::uint64_t workspace_bytes(const Check& check, const bp_attention_args& args) {
  const std::uint64_t element = plugin::type_info(check.real).block_bytes;
  const std::uint64_t dim = std::max(args.q.shape[2], args.out.shape[2]);
  const std::uint64_t scores = score_count(plugin::step_of(args.step), args.window);
  const std::uint64_t worker = Workspace::checked(element, dim) + Workspace::checked(element, scores);
  return Workspace::bytes_for({Workspace::checked(plugin::threads(), worker)});
}

template <class Real>
void run(const Call& call, const bp_attention_args& args) {
  if (args.first_sequence == args.last_sequence || plugin::is_empty(args.q) || plugin::is_empty(args.out)) return;
  const bp_step& step = *args.step;
  plugin::require(step.q_start && step.kv_len && step.pos && step.page_table, "the step lacks arrays");
  Attention<Real>(call, args).run();
}

template void run<float>(const Call&, const bp_attention_args&);
template void run<double>(const Call&, const bp_attention_args&);

}  // namespace backplane::cpu

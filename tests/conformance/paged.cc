#include "tests/conformance/paged.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace backplane::conformance {
namespace {

constexpr std::int64_t kSparePages = 2;  // that belong to nobody

}  // namespace

PagedStep::PagedStep(Trial& trial, const CacheSpec& cache, const std::vector<Sequence>& seqs, std::uint32_t decodes)
    : spec(cache), sequences(seqs) {
  const std::uint32_t block = dtype_info(spec.type).block_elements;
  if (spec.dim % block != 0 || spec.value_dim % block != 0) throw Skipped{"heads that aren't whole blocks"};
  assign_pages(trial);
  fill_arrays(trial, decodes);
  fill_contents(trial);
}

// Whether the window of some query of this step still reaches that token.
bool PagedStep::held(std::size_t sequence, std::int64_t position) const {
  return spec.window == 0 || position > sequences[sequence].begin - spec.window;
}

void PagedStep::assign_pages(Trial& trial) {
  std::int64_t most = 1;
  for (const Sequence& s : sequences) {
    const std::int64_t count = (s.end + spec.page_size - 1) / spec.page_size;
    most = std::max(most, count);
    pages += count;
  }
  pages += kSparePages;
  std::vector<std::int32_t> order(static_cast<std::size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  trial.random.shuffle(order);
  const std::size_t count = sequences.size(), width = static_cast<std::size_t>(most);
  table_.assign(2 * count * width, -1);
  step.max_pages = static_cast<std::uint32_t>(most);
  std::size_t next = 0;
  for (std::size_t b = 0; b < count; ++b) {
    for (std::int64_t p = 0; p < sequences[b].end; ++p) {
      const auto m = static_cast<std::size_t>(p / spec.page_size);
      std::int32_t& page = table_[(count + b) * width + m];
      if (page < 0 && held(b, p)) page = order[next++];
      table_[b * width + m] = static_cast<std::int32_t>((b + m) % 2);  // group 0: others' pages, valid and wrong
    }
  }
}

void PagedStep::fill_arrays(Trial& trial, std::uint32_t decodes) {
  q_start_ = {0};
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    const Sequence& s = sequences[b];
    for (std::int64_t p = s.begin; p < s.end; ++p) {
      pos_.push_back(static_cast<std::int32_t>(p));
      slot_.push_back(slot(b, p));
      token_.push_back(static_cast<std::int32_t>(trial.random.below(100)));
    }
    q_start_.push_back(static_cast<std::int32_t>(pos_.size()));
    kv_len_.push_back(static_cast<std::int32_t>(s.end));
    step.max_kv = std::max(step.max_kv, static_cast<std::uint32_t>(s.end));
    step.max_q = std::max(step.max_q, static_cast<std::uint32_t>(s.end - s.begin));
  }
  both_slots_.assign(slot_.size(), -1);
  both_slots_.insert(both_slots_.end(), slot_.begin(), slot_.end());
  rope_row_.assign(pos_.size(), 0);
  step.size = sizeof(step);
  step.tokens = static_cast<std::uint32_t>(pos_.size());
  step.sequences = static_cast<std::uint32_t>(sequences.size());
  step.n_decode = decodes;
  step.groups = 2;
  step.page_size = static_cast<std::uint32_t>(spec.page_size);
  step.token = token_.data();
  step.pos = pos_.data();
  step.q_start = q_start_.data();
  step.kv_len = kv_len_.data();
  step.page_table = table_.data();
  step.slot = both_slots_.data();
  step.rope_row = rope_row_.data();
}

void PagedStep::fill_contents(Trial& trial) {
  const double poison = std::numeric_limits<double>::quiet_NaN();
  k = Array({pages, spec.page_size, spec.kv_heads, spec.dim}, poison);
  v = Array({pages, spec.page_size, spec.kv_heads, spec.value_dim}, poison);
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    for (std::int64_t p = 0; p < sequences[b].end; ++p) {
      if (!held(b, p)) continue;
      // Numbers that the activation type and the cache's type both hold, so that writing them loses nothing.
      const std::int64_t at = slot(b, p) * spec.kv_heads;
      const DType type = is_quantized(spec.type) ? trial.activation() : spec.type;
      const auto number = [&] { return round_to(type, round_to(trial.activation(), trial.random.normal())); };
      std::generate_n(k.row(at), spec.kv_heads * spec.dim, number);
      std::generate_n(v.row(at), spec.kv_heads * spec.value_dim, number);
    }
  }
  if (!is_quantized(spec.type)) return;
  k = decode(spec.type, k.shape, encode(spec.type, k));
  v = decode(spec.type, v.shape, encode(spec.type, v));
}

std::int64_t PagedStep::slot(std::size_t sequence, std::int64_t position) const {
  const std::size_t m = static_cast<std::size_t>(position / spec.page_size);
  return table_[(sequences.size() + sequence) * step.max_pages + m] * spec.page_size + position % spec.page_size;
}

const double* PagedStep::key(std::size_t sequence, std::int64_t position, std::int64_t head) const {
  return k.row(slot(sequence, position) * spec.kv_heads + head);
}

const double* PagedStep::value(std::size_t sequence, std::int64_t position, std::int64_t head) const {
  return v.row(slot(sequence, position) * spec.kv_heads + head);
}

std::size_t PagedStep::sequence_of(std::int64_t token) const {
  const auto after = std::upper_bound(q_start_.begin(), q_start_.end(), static_cast<std::int32_t>(token));
  return static_cast<std::size_t>(after - q_start_.begin()) - 1;
}

}  // namespace backplane::conformance

#include "tests/unit/engine/fake_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "core/base/error.h"
#include "core/sample/sampler.h"

namespace backplane::engine {
namespace {

void require(bool good, const char* what) {
  if (!good) throw std::logic_error(what);
}

// splitmix64's mixing function.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::uint64_t add_token(std::uint64_t hash, TokenId token, std::int64_t pos, std::uint64_t factors) {
  return mix(hash ^ mix(static_cast<std::uint64_t>(token) << 40 ^ static_cast<std::uint64_t>(pos) << 8 ^ factors));
}

std::int64_t first_key(std::int64_t pos, std::uint32_t window) {
  return window == 0 ? 0 : std::max<std::int64_t>(0, pos - window + 1);
}

void check_shape(const sched::Step& s, const FakeOptions& o) {
  const std::size_t tokens = s.token.size(), sequences = s.kv_len.size();
  require(tokens > 0 && tokens <= o.max_step_tokens, "step size");
  require(s.groups == o.windows.size() && s.page_size == o.page_size, "groups or page size");
  require(s.pos.size() == tokens && s.rope_row.size() == tokens && s.slot.size() == s.groups * tokens, "token arrays");
  require(s.q_start.size() == sequences + 1 && s.page_table.size() == s.groups * sequences * s.max_pages,
          "sequence arrays");
  require(s.q_start.front() == 0 && s.q_start.back() == static_cast<std::int32_t>(tokens), "q_start");
  std::uint32_t max_q = 0, max_kv = 0;
  for (std::size_t b = 0; b < sequences; ++b) {
    const std::int32_t q = s.q_start[b + 1] - s.q_start[b];
    require(q > 0 && s.kv_len[b] >= q, "a sequence's tokens");
    require(b >= s.n_decode || q == 1, "a decode has one token");
    for (std::int32_t i = 0; i < q; ++i) require(s.pos[s.q_start[b] + i] == s.kv_len[b] - q + i, "pos");
    max_q = std::max(max_q, static_cast<std::uint32_t>(q));
    max_kv = std::max(max_kv, static_cast<std::uint32_t>(s.kv_len[b]));
  }
  require(max_q == s.max_q && max_kv == s.max_kv && s.n_decode <= sequences, "maxima");
  require(max_kv <= o.max_context && max_kv <= s.max_pages * s.page_size, "length");
  for (const TokenId t : s.token) require(t >= 0 && static_cast<std::uint32_t>(t) < o.vocab_size, "token");
  for (const std::int32_t r : s.out_row) require(r >= 0 && static_cast<std::size_t>(r) < tokens, "out_row");
}

}  // namespace

FakeModel::FakeModel(FakeOptions options)
    : options_(std::move(options)), store_(options_.windows.size()), rope_(options_.rope_rows) {
  shape_ = {.architecture = "fake",
            .vocab_size = options_.vocab_size,
            .max_context = options_.max_context,
            .layers = static_cast<std::uint32_t>(options_.windows.size()),
            .groups = {}};
  for (const std::uint32_t window : options_.windows) shape_.groups.push_back({window, 1});
}

FakeModel::~FakeModel() = default;

std::int32_t FakeModel::acquire_rope_row(std::uint64_t planned_length) {
  const std::uint64_t factors = rope_identity(planned_length);
  auto it =
      std::find_if(rope_.begin(), rope_.end(), [&](const RopeRow& r) { return r.users > 0 && r.factors == factors; });
  if (it == rope_.end()) it = std::find_if(rope_.begin(), rope_.end(), [](const RopeRow& r) { return r.users == 0; });
  if (it == rope_.end()) throw Error(ErrorCode::kCapacity, "no rope row is free");
  it->factors = factors;
  ++it->users;
  return static_cast<std::int32_t>(it - rope_.begin());
}

void FakeModel::release_rope_row(std::int32_t row) noexcept {
  EXPECT_TRUE(row >= 0 && rope_[static_cast<std::size_t>(row)].users-- > 0) << "a rope row that no one has is released";
}

void FakeModel::lose_pages() {
  for (auto& group : store_) group.clear();
}

int FakeModel::rope_rows_held() const {
  int held = 0;
  for (const RopeRow& row : rope_) held += row.users;
  return held;
}

void FakeModel::copy_pages(std::uint32_t group, std::span<const std::int32_t> from, std::span<const std::int32_t> to) {
  if (before_copy) before_copy();
  require(from.size() == to.size() && !from.empty(), "pages to copy");
  for (std::size_t i = 0; i < from.size(); ++i) {
    require(std::find(from.begin(), from.end(), to[i]) == from.end(), "a page is copied from and to");
    for (std::uint32_t offset = 0; offset < options_.page_size; ++offset) {
      const auto original = store_.at(group).find(std::int64_t{from[i]} * options_.page_size + offset);
      const std::int64_t slot = std::int64_t{to[i]} * options_.page_size + offset;
      if (original == store_[group].end()) {
        store_[group].erase(slot);
      } else {
        store_[group][slot] = original->second;
      }
    }
  }
}

Logits FakeModel::forward(const sched::Step& step) {
  steps_.push_back(step);
  check_shape(step, options_);
  if (before_step) before_step(step);
  write(step);
  Logits logits{.vocab_size = options_.vocab_size, .type = DType::kF64, .values = {}};
  logits.values.resize(step.out_row.size() * options_.vocab_size);
  for (std::size_t r = 0; r < step.out_row.size(); ++r) {
    const std::int32_t t = step.out_row[r];
    const auto after = std::upper_bound(step.q_start.begin(), step.q_start.end(), t);
    const auto sequence = static_cast<std::uint32_t>(after - step.q_start.begin() - 1);
    logits_of(read_history(step, sequence, step.pos[static_cast<std::size_t>(t)]),
              &logits.values[r * options_.vocab_size]);
  }
  if (after_step) after_step(step, logits);
  return logits;
}

void FakeModel::write(const sched::Step& step) {
  for (std::uint32_t g = 0; g < step.groups; ++g) {
    std::set<std::int64_t> written;
    for (std::size_t t = 0; t < step.token.size(); ++t) {
      const std::int64_t slot = step.slot[g * step.token.size() + t];
      require(slot >= 0 && slot < std::int64_t{options_.pages[g]} * options_.page_size, "slot");
      require(written.insert(slot).second, "a slot is written twice");
      const RopeRow& rope = rope_.at(static_cast<std::size_t>(step.rope_row[t]));
      require(rope.users > 0, "a rope row that no one has");
      store_[g][slot] = {step.token[t], step.pos[t], rope.factors};
    }
  }
}

// Walks the page table as attention would: it sees what lies there, whoever wrote it.
std::uint64_t FakeModel::read_history(const sched::Step& step, std::uint32_t sequence, std::int32_t pos) const {
  std::uint64_t hash = 0;
  for (std::uint32_t g = 0; g < step.groups; ++g) {
    const std::size_t row = (std::size_t{g} * step.sequences() + sequence) * step.max_pages;
    for (std::int64_t j = first_key(pos, options_.windows[g]); j <= pos; ++j) {
      const std::int64_t page = step.page_table[row + static_cast<std::size_t>(j / step.page_size)];
      require(page >= 0, "a key that is seen has no page");
      const Entry& entry = store_[g].at(page * step.page_size + j % step.page_size);
      hash = add_token(hash, entry.token, entry.pos, entry.factors);
    }
  }
  return hash;
}

void FakeModel::logits_of(std::uint64_t history, double* out) const {
  for (std::uint32_t v = 0; v < options_.vocab_size; ++v) {
    out[v] = static_cast<double>(mix(history + v) >> 44) / 131072.0 - 4;  // in [-4, 4), so that sampling has a choice
  }
}

std::vector<double> FakeModel::expected(const std::vector<TokenId>& tokens, std::uint64_t factors) const {
  std::uint64_t hash = 0;
  const auto pos = static_cast<std::int64_t>(tokens.size()) - 1;
  for (const std::uint32_t window : options_.windows) {
    for (std::int64_t j = first_key(pos, window); j <= pos; ++j) {
      hash = add_token(hash, tokens[static_cast<std::size_t>(j)], j, factors);
    }
  }
  std::vector<double> logits(options_.vocab_size);
  logits_of(hash, logits.data());
  return logits;
}

std::vector<TokenId> FakeModel::greedy(std::vector<TokenId> prompt, std::size_t n, std::uint64_t factors) const {
  std::vector<TokenId> out;
  for (std::size_t i = 0; i < n; ++i) {
    out.push_back(sample::argmax(expected(prompt, factors)));
    prompt.push_back(out.back());
  }
  return out;
}

}  // namespace backplane::engine

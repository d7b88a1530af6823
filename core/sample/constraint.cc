#include "core/sample/constraint.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace backplane::sample {
namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

class Only : public Constraint {
 public:
  explicit Only(std::vector<TokenId> ids) : ids_(std::move(ids)) {
    std::sort(ids_.begin(), ids_.end());
    ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  }
  void mask(std::span<double> logits) const override {
    std::size_t begin = 0;  // of a run of tokens between two that are allowed
    for (const TokenId id : ids_) {
      const auto end = static_cast<std::size_t>(id);
      std::fill(logits.begin() + static_cast<std::ptrdiff_t>(begin), logits.begin() + static_cast<std::ptrdiff_t>(end),
                kImpossible);
      begin = end + 1;
    }
    std::fill(logits.begin() + static_cast<std::ptrdiff_t>(begin), logits.end(), kImpossible);
  }
  void accept(TokenId) override {}

 private:
  std::vector<TokenId> ids_;
};

class NoneBefore : public Constraint {
 public:
  NoneBefore(std::vector<TokenId> ids, std::uint32_t count) : ids_(std::move(ids)), left_(count) {}
  void mask(std::span<double> logits) const override {
    if (left_ == 0) return;
    for (const TokenId id : ids_) {
      if (id >= 0 && static_cast<std::size_t>(id) < logits.size()) logits[static_cast<std::size_t>(id)] = kImpossible;
    }
  }
  void accept(TokenId) override {
    if (left_ > 0) --left_;
  }

 private:
  std::vector<TokenId> ids_;
  std::uint32_t left_;
};

class NoWords : public Constraint {
 public:
  NoWords(std::vector<std::vector<TokenId>> words, std::span<const TokenId> prompt) : words_(std::move(words)) {
    for (const auto& word : words_) longest_ = std::max(longest_, word.size());
    const std::size_t kept = std::min(prompt.size(), longest_ - 1);
    latest_.assign(prompt.end() - static_cast<std::ptrdiff_t>(kept), prompt.end());
  }
  void mask(std::span<double> logits) const override {
    for (const auto& word : words_) {
      const std::size_t before = word.size() - 1;
      if (before > latest_.size()) continue;
      if (std::equal(word.begin(), word.end() - 1, latest_.end() - static_cast<std::ptrdiff_t>(before))) {
        logits[static_cast<std::size_t>(word.back())] = kImpossible;
      }
    }
  }
  void accept(TokenId id) override {
    latest_.push_back(id);
    if (latest_.size() >= longest_) latest_.erase(latest_.begin());
  }

 private:
  std::vector<std::vector<TokenId>> words_;
  std::size_t longest_ = 1;
  std::vector<TokenId> latest_;  // as many of the last tokens as a word needs
};

}  // namespace

std::unique_ptr<Constraint> only(std::vector<TokenId> ids) { return std::make_unique<Only>(std::move(ids)); }

std::unique_ptr<Constraint> none_before(std::vector<TokenId> ids, std::uint32_t count) {
  return std::make_unique<NoneBefore>(std::move(ids), count);
}

std::unique_ptr<Constraint> no_words(std::vector<std::vector<TokenId>> words, std::span<const TokenId> prompt) {
  return std::make_unique<NoWords>(std::move(words), prompt);
}

}  // namespace backplane::sample

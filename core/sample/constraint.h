// What tokens may come next, as a callback of the sampler.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.h"

namespace backplane::sample {

// Belongs to one request. One thread at a time.
class Constraint {
 public:
  virtual ~Constraint() = default;
  // Sets the logits of the tokens that may not come next to minus infinity; changes no other.
  virtual void mask(std::span<double> logits) const = 0;
  // `id` has been chosen.
  virtual void accept(TokenId id) = 0;
};

// Only these tokens, ever. Requires: they are inside the vocabulary.
std::unique_ptr<Constraint> only(std::vector<TokenId> ids);
// None of these tokens among the first `count` that are chosen. They may be outside of the vocabulary: end tokens come
// from files that need not fit the model.
std::unique_ptr<Constraint> none_before(std::vector<TokenId> ids, std::uint32_t count);
// No word may be completed: its last token may not come where prompt and output end with the others. Requires: no word
// is empty, all their tokens are inside the vocabulary.
std::unique_ptr<Constraint> no_words(std::vector<std::vector<TokenId>> words, std::span<const TokenId> prompt);

}  // namespace backplane::sample

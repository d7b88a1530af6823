#include "core/text/detokenizer.h"

#include <utility>

#include "core/text/utf8.h"

namespace backplane::text {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, Options options)
    : tokenizer_(std::move(tokenizer)), skip_special_(options.skip_special), at_start_(options.at_start) {}

std::string Detokenizer::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  held_.append(tokenizer_->shown_bytes(id, at_start_));
  std::string ready = std::move(held_);
  held_ = ready.substr(ready.size() - incomplete_tail(ready));
  ready.resize(ready.size() - held_.size());
  return to_valid_utf8(ready);
}

std::string Detokenizer::flush() {
  at_start_ = false;
  return to_valid_utf8(std::exchange(held_, {}));
}

}  // namespace backplane::text

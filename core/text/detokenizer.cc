#include "core/text/detokenizer.h"

#include <utility>

#include "core/text/utf8.h"

namespace backplane::text {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, Options options)
    : tokenizer_(std::move(tokenizer)),
      skip_special_(options.skip_special),
      strip_space_(options.at_start && tokenizer_->strips_leading_space()) {}

std::string Detokenizer::push(TokenId id) {
  std::string_view bytes = tokenizer_->token_bytes(id);
  const bool special = tokenizer_->is_special(id);
  if (special && skip_special_) return {};
  if (strip_space_ && !bytes.empty()) {
    strip_space_ = false;
    if (bytes.front() == ' ' && !special) bytes.remove_prefix(1);
  }
  held_.append(bytes);
  std::string ready = std::move(held_);
  held_ = ready.substr(ready.size() - incomplete_tail(ready));
  ready.resize(ready.size() - held_.size());
  return to_valid_utf8(ready);
}

std::string Detokenizer::flush() {
  strip_space_ = false;
  return to_valid_utf8(std::exchange(held_, {}));
}

}  // namespace backplane::text

#include "core/engine/text_stream.h"

#include <utility>

namespace backplane::engine {

TextStream::TextStream(const std::shared_ptr<const text::Tokenizer>& tokenizer, std::vector<std::string> stops,
                       bool include_stop)
    : tokenizer_(tokenizer), matcher_(std::move(stops)), include_stop_(include_stop) {
  // What is generated continues the prompt's text, so that a first space belongs to it.
  if (tokenizer) detokenizer_.emplace(tokenizer, text::Detokenizer::Options{.skip_special = true, .at_start = false});
}

std::string TextStream::push(TokenId id, bool may_stop) {
  if (!detokenizer_ || id < 0 || static_cast<std::size_t>(id) >= tokenizer_->vocab_size()) return {};
  return match(detokenizer_->push(id), may_stop);
}

std::string TextStream::flush() {
  if (!detokenizer_) return {};
  std::string text = match(detokenizer_->flush(), true);
  return text += matcher_.flush();
}

std::string TextStream::match(std::string_view piece, bool may_stop) {
  if (stopped()) return {};
  std::string text = matcher_.push(piece, may_stop);
  if (stopped() && include_stop_) text += matcher_.stop_string();
  return text;
}

}  // namespace backplane::engine

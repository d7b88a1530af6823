#include "core/engine/text_stream.h"

#include <utility>

namespace backplane::engine {

TextStream::TextStream(const std::shared_ptr<const text::Tokenizer>& tokenizer, std::vector<std::string> stops)
    : tokenizer_(tokenizer), matcher_(std::move(stops)) {
  // What is generated continues the prompt's text, so that a first space belongs to it.
  if (tokenizer) detokenizer_.emplace(tokenizer, text::Detokenizer::Options{.skip_special = true, .at_start = false});
}

std::string TextStream::push(TokenId id) {
  if (!detokenizer_ || id < 0 || static_cast<std::size_t>(id) >= tokenizer_->vocab_size()) return {};
  return matcher_.push(detokenizer_->push(id));
}

std::string TextStream::flush() {
  if (!detokenizer_) return {};
  std::string text = matcher_.push(detokenizer_->flush());
  return text += matcher_.flush();
}

}  // namespace backplane::engine

// The text of one request as it grows: detokenized, cut before a stop string.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/text/detokenizer.h"
#include "core/text/stop_matcher.h"

namespace backplane::engine {

class TextStream {
 public:
  // Without a tokenizer all text is empty and nothing stops it.
  TextStream(const std::shared_ptr<const text::Tokenizer>& tokenizer, std::vector<std::string> stops);

  // The text that is now certain: never half a character, never what may become a stop string. A model may have more
  // logits than its tokenizer has tokens; an id beyond those has no text.
  std::string push(TokenId id);
  // What was held back, at the end of the text.
  std::string flush();

  bool stopped() const { return matcher_.stopped(); }

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::optional<text::Detokenizer> detokenizer_;
  text::StopMatcher matcher_;
};

}  // namespace backplane::engine

// The text of one request as it grows: detokenized, cut before a stop string.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/text/detokenizer.h"
#include "core/text/stop_matcher.h"

namespace backplane::engine {

class TextStream {
 public:
  // Without a tokenizer all text is empty and nothing stops it. `include_stop`: the text ends after the stop string.
  TextStream(const std::shared_ptr<const text::Tokenizer>& tokenizer, std::vector<std::string> stops,
             bool include_stop = false);

  // The text that is now certain: never half a character, never what may become a stop string. A model may have more
  // logits than its tokenizer has tokens; an id beyond those has no text. A stop string that is complete with this
  // token ends the text if `may_stop`.
  std::string push(TokenId id, bool may_stop = true);
  // What was held back, at the end of the text.
  std::string flush();

  bool stopped() const { return matcher_.stopped(); }

 private:
  std::string match(std::string_view piece, bool may_stop);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::optional<text::Detokenizer> detokenizer_;
  text::StopMatcher matcher_;
  bool include_stop_;
};

}  // namespace backplane::engine

// Streaming text output: from token ids to text that can be printed right away.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"

namespace backplane::text {

// Turns ids into valid UTF-8, never half a character: bytes that more tokens could complete are held back, those that
// can't become a character are U+FFFD. All that push and flush return, joined, is to_valid_utf8 of the decoded ids.
// One object per sequence; no threads.
class Detokenizer {
 public:
  struct Options {
    bool skip_special = true;
    bool at_start = true;  // false when the ids continue a text: a first space then belongs to it
  };

  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer) : Detokenizer(std::move(tokenizer), Options()) {}
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, Options options);

  // The text that `id` completes; may be empty. Throws Error{kUsage} for an id outside of the vocabulary.
  std::string push(TokenId id);
  // What is held back, with an incomplete character as U+FFFD. The object then continues as after construction with
  // at_start false.
  std::string flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  bool at_start_;
  std::string held_;
};

}  // namespace backplane::text

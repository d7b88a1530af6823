// What ends a text, and what others got wrong about it.
#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"
#include "tests/unit/engine/speaker.h"

namespace backplane::engine {
namespace {

using Strings = std::vector<std::string>;

// https://github.com/vllm-project/vllm/issues/3574
TEST(Stop, AStopStringAcrossTokensNeverLeaks) {
  Speaker speaker(letters("abcdefghijklmnop"));
  const Generation g = speaker.speak({.stop = {"defghij"}});
  EXPECT_EQ(g.text, "abc");
  EXPECT_EQ(g.finish, FinishReason::kStop);
  EXPECT_EQ(g.ids, letters("abcdefghij"));
  EXPECT_EQ(speaker.pieces, (Strings{"a", "b", "c", "", "", "", "", "", "", ""}));
}

// https://github.com/vllm-project/vllm/pull/534: one that ends inside of a token was not seen.
TEST(Stop, AStopStringInsideATokenCutsIt) {
  Speaker speaker({0, kDef, kHij, 5});
  EXPECT_EQ(speaker.speak({.stop = {"fh"}}).text, "ade");
  EXPECT_EQ(speaker.speak({.stop = {"hij", "ef"}}).text, "ad");
  EXPECT_EQ(speaker.speak({.stop = {"e"}}).text, "ad");
}

TEST(Stop, WhatOnlyBeganLikeAStopStringIsText) {
  Speaker speaker(letters("abcdezzzz"));
  EXPECT_EQ(speaker.speak({.stop = {"defghij"}}).text, "abcdezzzz");
  const Generation cut = speaker.speak({.max_tokens = 5, .stop = {"defghij"}});  // ends in the middle of it
  EXPECT_EQ(cut.text, "abcde");
  EXPECT_EQ(cut.finish, FinishReason::kLength);
  const Generation ended = speaker.speak({.stop_ids = {25}, .stop = {"defghij", "ez!"}});
  EXPECT_EQ(ended.text, "abcde");
  EXPECT_EQ(ended.finish, FinishReason::kStop);
}

// https://github.com/openvinotoolkit/openvino.genai/pull/817: a match that broke off began again from nothing, and so
// missed what overlaps with itself.
TEST(Stop, AStopStringThatBeginsInsideAFailedOneIsFound) {
  EXPECT_EQ(Speaker(letters("xaaab")).speak({.stop = {"aab"}}).text, "xa");
  EXPECT_EQ(Speaker(letters("abababac")).speak({.stop = {"ababac"}}).text, "ab");
}

// The stop string that is complete first counts, not the first of the list; of two at once, the longer.
TEST(Stop, OfOverlappingStopStringsTheFirstToEndCounts) {
  Speaker speaker(letters("xabcdef"));
  EXPECT_EQ(speaker.speak({.stop = {"cdef", "bcd"}}).text, "xa");
  EXPECT_EQ(speaker.speak({.stop = {"abcdef", "b"}}).text, "xa");
  EXPECT_EQ(speaker.speak({.stop = {"c", "abc"}}).text, "x");
  EXPECT_EQ(speaker.speak({.stop = {"ef", "ab"}}).text, "x");
}

// https://github.com/huggingface/transformers/issues/46519: one whose characters several tokens spell was missed.
TEST(Stop, ACharacterInPiecesIsFound) {
  Speaker speaker({0, 26, 27, 28, 29, 1, 2});  // a, four bytes, b c
  const Generation g = speaker.speak({.stop = {"\U0001F60A"}});
  EXPECT_EQ(g.text, "a");
  EXPECT_EQ(g.ids.size(), 5u);
  EXPECT_EQ(speaker.speak({.stop = {"\U0001F60Ab"}}).text, "a");
  EXPECT_EQ(speaker.speak({.stop = {"a\U0001F60A"}}).text, "");
  for (const std::string& piece : speaker.pieces) EXPECT_EQ(piece, "");
  // Another character that begins with the same bytes is none.
  EXPECT_EQ(speaker.speak({.stop = {"\U0001F60B"}}).text, "a\U0001F60Abc");
}

TEST(Stop, HalfACharacterIsRefused) {
  Speaker speaker(letters("abc"));
  EXPECT_THROW(speaker.speak({.stop = {"\x9F"}}), Error);
  EXPECT_EQ(speaker.speak({}).text, "abc");
}

TEST(Stop, TheFirstTokenMayStop) {
  Speaker speaker(letters("abc"));
  const Generation g = speaker.speak({.stop = {"a"}});
  EXPECT_EQ(g.text, "");
  EXPECT_EQ(g.ids.size(), 1u);
  EXPECT_EQ(g.finish, FinishReason::kStop);
  EXPECT_EQ(speaker.speak({.stop_ids = {0}}).ids.size(), 1u);
}

// The text of the prompt is no text of the answer: it neither stops it nor begins a stop string.
TEST(Stop, ThePromptDoesNotStop) {
  Speaker speaker(letters("abc"));
  EXPECT_EQ(speaker.speak({.prompt = letters("x"), .stop = {"x"}}).text, "abc");
  EXPECT_EQ(speaker.speak({.prompt = letters("x"), .stop = {"xa"}}).text, "abc");
}

TEST(Stop, TheLastTokenMayStop) {
  Speaker speaker(letters("abc"));
  const Generation g = speaker.speak({.max_tokens = 3, .stop = {"bc"}});
  EXPECT_EQ(g.text, "a");
  EXPECT_EQ(g.finish, FinishReason::kStop);
}

TEST(Stop, ATokenThatIsNotShownIsNoText) {
  Speaker speaker({0, kEnd, 1});
  EXPECT_EQ(speaker.speak({.stop = {"</s>"}}).text, "ab");
  EXPECT_EQ(speaker.speak({.stop = {"ab"}}).text, "");
}

// https://github.com/vllm-project/vllm/issues/1973
TEST(Stop, TheTextMayIncludeTheStopString) {
  Speaker speaker({0, kDef, kHij, 5});
  const Generation g = speaker.speak({.stop = {"fh"}, .include_stop = true});
  EXPECT_EQ(g.text, "adefh");
  EXPECT_EQ(g.finish, FinishReason::kStop);
  EXPECT_EQ(speaker.pieces, (Strings{"a", "de", "fh"}));
  EXPECT_EQ(speaker.speak({.stop = {"zz"}, .include_stop = true}).text, "adefhijf");
  EXPECT_EQ(speaker.speak({.max_tokens = 2, .stop = {"fh"}, .include_stop = true}).text, "adef");
}

// https://github.com/vllm-project/vllm/pull/22014: a stop string ended it before min_tokens, or was missed where it
// began before and ended after.
TEST(Stop, MinTokensHoldsForStopStrings) {
  Speaker speaker(letters("abcabcabc"));
  const auto said = [&](std::uint32_t min_tokens, const char* stop) {
    return speaker.speak({.stop = {stop}, .min_tokens = min_tokens}).text;
  };
  EXPECT_EQ(said(0, "bc"), "a");
  EXPECT_EQ(said(2, "bc"), "a");     // "bc" is complete with token 3
  EXPECT_EQ(said(3, "bc"), "abca");  // it must be complete later
  EXPECT_EQ(said(4, "bc"), "abca");
  EXPECT_EQ(said(6, "bc"), "abcabca");
  EXPECT_EQ(said(9, "bc"), "abcabcabc");
  EXPECT_EQ(said(3, "cab"), "ab");
}

// https://github.com/vllm-project/vllm/pull/32163: only the user's stop ids were held back, not the model's own.
TEST(Stop, MinTokensHoldsForEndTokens) {
  Speaker speaker({kEnd, kEnd, kEnd, kEnd});
  for (const std::uint32_t min_tokens : {0u, 1u, 3u}) {
    for (const bool by_eos : {false, true}) {
      Request request{.min_tokens = min_tokens};
      (by_eos ? request.eos_ids : request.stop_ids) = {kEnd};
      const Generation g = speaker.speak(request);
      EXPECT_EQ(g.ids.size(), min_tokens + 1);
      EXPECT_EQ(g.ids.back(), kEnd);
      EXPECT_EQ(g.finish, FinishReason::kStop);
    }
  }
  // With ignore_eos it ends nothing, and so isn't held back.
  const Generation g = speaker.speak({.eos_ids = {kEnd}, .ignore_eos = true, .min_tokens = 2});
  EXPECT_EQ(g.ids, (std::vector<TokenId>{kEnd, kEnd, kEnd, kEnd}));
  EXPECT_EQ(g.finish, FinishReason::kLength);
}

// https://github.com/vllm-project/vllm/issues/4180: a model with two end tokens ended at one of them only.
TEST(Stop, EveryEndTokenEnds) {
  Speaker speaker(letters("abc"));
  for (const TokenId id : {1, 2}) {
    const Generation g = speaker.speak({.eos_ids = {2, 1, 100'000}});
    EXPECT_EQ(g.text, "a") << id;
  }
  EXPECT_EQ(speaker.speak({.eos_ids = {2, 100'000}, .min_tokens = 1}).text, "ab");
}

TEST(Stop, MinTokensIsNoMoreThanMaxTokens) {
  Speaker speaker(letters("abc"));
  EXPECT_THROW(speaker.speak({.max_tokens = 2, .min_tokens = 3}), Error);
  EXPECT_EQ(speaker.speak({.max_tokens = 2, .min_tokens = 2}).text, "ab");
}

}  // namespace
}  // namespace backplane::engine

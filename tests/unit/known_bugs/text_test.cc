// Bugs in what text comes out: where it is cut, where it ends, and how it is counted.
#include <algorithm>

#include "core/text/utf8.h"
#include "tests/support/wrapped_model.h"
#include "tests/unit/known_bugs/known_bugs.h"

namespace backplane {
namespace {

// Goes on with a given text from wherever in it a prompt ends: after each of its tokens wants the next one.
class Reciting final : public test::WrappedModel {
 public:
  Reciting(engine::Model& model, Ids text) : WrappedModel(model), text_(std::move(text)) {}
  engine::Logits forward(const sched::Step& step) override {
    engine::Logits logits = WrappedModel::forward(step);
    for (std::size_t r = 0; r < step.out_row.size(); ++r) {
      const auto at = std::find(text_.begin(), text_.end(), step.token[static_cast<std::size_t>(step.out_row[r])]);
      if (at == text_.end() || at + 1 == text_.end()) continue;
      logits.values[r * logits.vocab_size + static_cast<std::size_t>(at[1])] = 100;
    }
    return logits;
  }

 private:
  Ids text_;  // each token once
};

// https://github.com/ggml-org/llama.cpp/pull/4446: characters that several tokens spell came out in halves.
TEST_F(KnownBugs, NoCharacterIsSplit) {
  const std::string says = "a\U0001F60Ab\u00E9\u4E2Dz";  // no byte twice
  const auto real = load();
  Reciting model(*real, encode(">" + says));
  engine::Service service(model, {.engine = options()});
  std::vector<engine::EventStream> streams;
  for (std::uint32_t n = 1; n <= says.size(); ++n) streams.push_back(service.stream(request(">", n)));
  for (std::size_t n = 1; n <= says.size(); ++n) {
    SCOPED_TRACE(n);
    const Told told = read(std::move(streams[n - 1]));
    EXPECT_EQ(told.ids, encode(says.substr(0, n)));
    const std::string whole = says.substr(0, n - text::incomplete_tail(says.substr(0, n)));
    EXPECT_EQ(told.text, whole + (whole.size() < n ? "\uFFFD" : ""));
    for (const std::string& piece : told.pieces) EXPECT_EQ(piece, text::to_valid_utf8(piece));
  }
  service.drain();
  const auto other = load();
  Reciting again(*other, encode(">" + says));
  for (std::uint32_t n = 1; n <= says.size(); ++n) {  // not streamed
    EXPECT_EQ(alone(again, request(">", n)).text, text::to_valid_utf8(says.substr(0, n)));
  }
}

// https://github.com/vllm-project/vllm/issues/3574: the beginning of a stop string was streamed before it was seen.
TEST_F(KnownBugs, NoPartOfAStopStringLeaks) {
  const std::string alphabet = "@ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const auto real = load();
  Reciting model(*real, encode(alphabet));
  engine::Service service(model, {.engine = options()});
  const std::pair<std::string, std::string> cases[] = {
      {"DEFGHIJ", "ABC"}, {"A", ""}, {"Z", "ABCDEFGHIJKLMNOPQRSTUVWXY"}, {"DEFGHIX", alphabet.substr(1)}};
  std::vector<engine::EventStream> streams;
  for (const auto& [stop, text] : cases) {
    engine::Request asked = request("@", 26);
    asked.stop = {stop};
    streams.push_back(service.stream(asked));
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    SCOPED_TRACE(cases[i].first);
    const Told told = read(std::move(streams[i]));
    EXPECT_EQ(told.text, cases[i].second);
    std::string so_far;
    for (const std::string& piece : told.pieces) {
      so_far += piece;
      EXPECT_EQ(so_far, cases[i].second.substr(0, so_far.size())) << "was streamed and is no part of the text";
    }
    EXPECT_EQ(told.finish, i == 3 ? engine::FinishReason::kLength : engine::FinishReason::kStop);
  }
  // Where it ends before the stop string is complete, what was held back is text.
  engine::Request cut = request("@", 7);
  cut.stop = {"DEFGHIJ"};
  EXPECT_EQ(read(service.stream(cut)).text, "ABCDEFG");
}

// https://github.com/vllm-project/vllm/issues/4180: Llama 3 went on after <|eot_id|>, which is not its eos.
TEST_F(KnownBugs, TheTemplatesEndOfTurnEndsTheText) {
  const auto path = folder_.write("two_ends.gguf", test::small_chat_model({.eos = test::kHi}));
  const Ids ends = formats::load_tokenizer(path).tokenizer->special().end_of_generation;
  for (const TokenId end : {test::kHi, test::kImEnd}) {
    const auto real = load();
    Reciting model(*real, {'>', 'a', 'b', end, 'c'});
    engine::Service service(model, {.engine = options()});
    engine::Request asked = request(">", 9);
    asked.ignore_eos = false;
    asked.eos_ids = ends;
    const Told told = read(service.stream(asked));
    EXPECT_EQ(told.ids, (Ids{'a', 'b', end}));
    EXPECT_EQ(told.text, "ab");
    EXPECT_EQ(told.finish, engine::FinishReason::kStop);
  }
}

// https://github.com/vllm-project/vllm/issues/8625: streamed usage was not what was streamed. Each token counts once,
// also one without text, one that ends the text, and one of the prompt that was found in the cache.
TEST_F(KnownBugs, UsageIsWhatWasStreamed) {
  const std::string alphabet = "@ABCDEFGHIJKLMNOPQRSTUVWXYZ", prompt = "the quick brown fox @";
  const auto real = load();
  Reciting model(*real, encode(alphabet));
  engine::Service service(model, {.engine = options()});
  std::vector<engine::Request> all(5, request(prompt, 12));
  all[1].stop = {"DEF"};
  all[2].ignore_eos = false;
  all[2].eos_ids = {'H'};
  all[3].n = 3;
  all[4].max_tokens = 1;
  const std::size_t want[] = {12, 6, 8, 36, 1};
  std::uint64_t prompts = 0, generated = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t streamed = read(service.stream(all[i])).ids.size();
    EXPECT_EQ(streamed, want[i]);
    if (all[i].n == 1) {
      const auto other = load(1);
      Reciting again(*other, encode(alphabet));
      EXPECT_EQ(alone(again, all[i]).ids.size(), streamed) << "not streamed";
    }
    prompts += prompt.size();  // a token for each byte
    generated += streamed;
  }
  service.drain();
  const engine::ServiceStats stats = service.between_steps([&](engine::Engine&) { return service.stats(); });
  EXPECT_EQ(stats.prompt_tokens, prompts);
  EXPECT_EQ(stats.generated_tokens, generated);
  EXPECT_GT(stats.engine.prefix.found, 0u);
}

}  // namespace
}  // namespace backplane

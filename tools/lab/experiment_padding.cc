// A batch that is padded on the left against a ragged one.
#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "tools/lab/experiments.h"
#include "tools/lab/statistics.h"

namespace backplane::lab {
namespace {

using Rows = std::vector<std::vector<TokenId>>;

// Prompts whose lengths are to each other as those of the trace's first requests; the longest has sizes.longest.
Rows choose_rows(const Setup& setup, const PaddingSizes& sizes) {
  std::vector<std::uint32_t> lengths;
  for (std::uint32_t i = 0; i < sizes.rows; ++i) {
    lengths.push_back(setup.trace.requests[i % setup.trace.requests.size()].prompt);
  }
  const double scale = static_cast<double>(sizes.longest) / *std::max_element(lengths.begin(), lengths.end());
  Rows rows;
  for (std::uint32_t i = 0; i < sizes.rows; ++i) {
    const auto length = static_cast<std::uint32_t>(lengths[i] * scale + 0.5);
    rows.push_back(setup.prompts.ids(std::clamp(length, 1u, sizes.longest), i));
  }
  return rows;
}

// What the pads of each row compute: tokens that no other token sees. Rows without pads have none.
Rows pads_of(const Rows& rows, std::uint32_t longest) {
  Rows pads;
  for (const auto& row : rows) {
    if (row.size() < longest) pads.emplace_back(longest - row.size(), row.front());
  }
  return pads;
}

// All prompts, and the pads, in one step; logits for the last token of each prompt only.
engine::StepRecord prefill_together(engine::Scorer& scorer, const Rows& rows, const Rows& pads) {
  std::vector<engine::ScoreLine> lines;
  for (const auto& row : rows) lines.push_back({.ids = row});
  for (const auto& pad : pads) lines.push_back({.ids = pad, .positions = {.which = engine::Positions::kList}});
  return scorer.score(lines, {.together = true}, [](const engine::ScoredRows&) {}).front().front();
}

// `reply` greedy tokens for each row. The pads are requests of their own, whose one token is thrown away.
Rows replies(const Setup& setup, const PaddingSizes& sizes, const Rows& rows, const Rows& pads, std::uint32_t seats) {
  engine::Engine engine(setup.model, measuring(seats, setup.room));
  std::map<engine::RequestId, std::size_t> row_of;
  for (std::size_t i = 0; i < rows.size(); ++i) row_of[engine.submit(greedy_request(rows[i], sizes.reply))] = i;
  for (const auto& pad : pads) engine.submit(greedy_request(pad, 1));
  Rows out(rows.size());
  while (!engine.idle()) {
    setup.progress(1, 1);
    for (const engine::Event& event : engine.step()) {
      if (event.error) throw *event.error;
      const auto row = row_of.find(event.request);
      if (row != row_of.end() && event.token >= 0) out[row->second].push_back(event.token);
    }
  }
  return out;
}

Json batch_json(const engine::StepRecord& step, const std::vector<double>& seconds, double flops) {
  return {{"computed_tokens", step.tokens},
          {"sequences", step.sequences},
          {"seconds", figure(fastest(seconds))},
          {"median_s", figure(median(seconds))},
          {"flops", figure(flops)}};
}

}  // namespace

Json run_padding(const Setup& setup, const PaddingSizes& sizes) {
  const Rows rows = choose_rows(setup, sizes), pads = pads_of(rows, sizes.longest);
  std::vector<double> padded_s, ragged_s;
  engine::StepRecord padded, ragged;
  {
    engine::Scorer scorer(setup.model);
    for (std::uint32_t i = 0; i < sizes.repeats; ++i) {  // by turns, so that a busy machine is a nuisance to both
      setup.progress(2 * i, 2 * sizes.repeats + 3);
      padded = prefill_together(scorer, rows, pads);
      padded_s.push_back(padded.seconds);
      setup.progress(2 * i + 1, 2 * sizes.repeats + 3);
      ragged = prefill_together(scorer, rows, {});
      ragged_s.push_back(ragged.seconds);
    }
  }
  const Rows in_padded = replies(setup, sizes, rows, pads, setup.room.sequences);
  const Rows in_ragged = replies(setup, sizes, rows, {}, setup.room.sequences);
  const Rows alone = replies(setup, sizes, rows, {}, 1);
  double ragged_flops = 0, padded_flops = 0, dense_flops = 0;
  std::uint32_t equal = 0;
  Json list = Json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint64_t tokens = rows[i].size(), lacking = sizes.longest - tokens;
    const bool same = in_padded[i] == in_ragged[i] && alone[i] == in_ragged[i];
    equal += same ? 1 : 0;
    ragged_flops += setup.work.tokens_flops({.past = 0, .tokens = tokens, .rows = 1});
    padded_flops += setup.work.tokens_flops({.past = 0, .tokens = tokens, .rows = 1}) +
                    setup.work.tokens_flops({.past = 0, .tokens = lacking, .rows = 0});
    dense_flops += setup.work.tokens_flops({.past = 0, .tokens = sizes.longest, .rows = 1});
    list.push_back({{"tokens", tokens}, {"pads", lacking}, {"equal", same}, {"reply_ids", in_ragged[i]}});
  }
  return {{"rows", sizes.rows},
          {"longest", sizes.longest},
          {"reply_tokens", sizes.reply},
          {"repeats", sizes.repeats},
          {"equal_rows", equal},
          {"equal_tokens", equal == sizes.rows},
          {"wasted", figure(1 - static_cast<double>(ragged.tokens) / padded.tokens)},
          {"padded", batch_json(padded, padded_s, padded_flops)},
          {"ragged", batch_json(ragged, ragged_s, ragged_flops)},
          {"padded_flops_with_masked_attention", figure(dense_flops)},
          {"prompts", std::move(list)}};
}

}  // namespace backplane::lab

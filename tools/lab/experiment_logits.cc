// Logits for all positions of a prompt against the last one's only.
#include "tools/lab/experiments.h"
#include "tools/lab/statistics.h"

namespace backplane::lab {
namespace {

// What one way of scoring a line gave.
struct Way {
  std::vector<double> seconds;
  std::size_t rows = 0, steps = 0;
  std::vector<double> last;  // the last position's logits
};

void score(engine::Scorer& scorer, const std::vector<TokenId>& ids, engine::Positions::Which which, Way& way) {
  const engine::ScoreLine line{.ids = ids, .positions = {.which = which}};
  way.rows = 0;
  const auto steps = scorer.score({&line, 1}, {}, [&](const engine::ScoredRows& rows) {
    way.rows += rows.positions.size();
    const std::span<const double> row = rows.row(rows.positions.size() - 1);
    way.last.assign(row.begin(), row.end());
  });
  way.steps = steps.at(0).size();
  way.seconds.push_back(seconds_of(steps.at(0)));
}

}  // namespace

Json run_logits(const Setup& setup, const LogitsSizes& sizes) {
  engine::Scorer scorer(setup.model);
  Json lengths = Json::array();
  bool same = true;
  std::uint64_t run = 0;
  for (const std::uint32_t length : sizes.lengths) {
    const std::vector<TokenId> ids = setup.prompts.ids(length);
    Way all, last;
    for (std::uint32_t i = 0; i < sizes.repeats; ++i) {
      setup.progress(run++, sizes.lengths.size() * sizes.repeats);
      score(scorer, ids, engine::Positions::kAll, all);
      score(scorer, ids, engine::Positions::kLast, last);
    }
    same = same && all.last == last.last;
    const double row = setup.work.logits_row_bytes();
    const Share share{.past = 0, .tokens = length, .rows = length};
    lengths.push_back({{"tokens", length},
                       {"all_s", figure(median(all.seconds))},
                       {"last_s", figure(median(last.seconds))},
                       {"all_rows", all.rows},
                       {"last_rows", last.rows},
                       {"all_steps", all.steps},
                       {"last_steps", last.steps},
                       {"all_bytes", figure(row * static_cast<double>(all.rows))},
                       {"last_bytes", figure(row * static_cast<double>(last.rows))},
                       {"all_flops", figure(setup.work.tokens_flops(share))},
                       {"last_flops", figure(setup.work.tokens_flops({.past = 0, .tokens = length, .rows = 1}))}});
  }
  return {{"repeats", sizes.repeats},
          {"same_last_row", same},
          {"vocabulary", setup.model.shape().vocab_size},
          {"row_bytes", figure(setup.work.logits_row_bytes())},
          {"full_context_tokens", setup.room.context},
          {"full_context_bytes", figure(setup.work.logits_row_bytes() * setup.room.context)},
          {"lengths", std::move(lengths)}};
}

}  // namespace backplane::lab

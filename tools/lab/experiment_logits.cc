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
  std::vector<Way> with_all(sizes.lengths.size()), with_last(sizes.lengths.size());
  std::uint64_t run = 0;
  for (std::uint32_t i = 0; i < sizes.repeats; ++i) {  // of all lengths in turn, so that a nuisance spoils one of each
    for (std::size_t j = 0; j < sizes.lengths.size(); ++j) {
      setup.progress(run++, sizes.lengths.size() * sizes.repeats);
      const std::vector<TokenId> ids = setup.prompts.ids(sizes.lengths[j]);
      score(scorer, ids, engine::Positions::kAll, with_all[j]);
      score(scorer, ids, engine::Positions::kLast, with_last[j]);
    }
  }
  Json lengths = Json::array();
  bool same = true;
  for (std::size_t j = 0; j < sizes.lengths.size(); ++j) {
    const std::uint32_t length = sizes.lengths[j];
    const Way &all = with_all[j], &last = with_last[j];
    same = same && all.last == last.last;
    const double row = setup.work.logits_row_bytes();
    const Share share{.past = 0, .tokens = length, .rows = length};
    lengths.push_back({{"tokens", length},
                       {"all_s", figure(fastest(all.seconds))},
                       {"last_s", figure(fastest(last.seconds))},
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

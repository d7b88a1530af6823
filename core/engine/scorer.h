// Logits of given tokens: what `score` reports and perplexities are made of.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/model.h"
#include "core/engine/step_builder.h"
#include "core/engine/step_runner.h"
#include "core/kv/kv_book.h"

namespace backplane::engine {

struct Positions {
  enum Which : std::uint8_t { kLast, kAll, kList } which = kLast;
  std::vector<std::uint32_t> list = {};  // for kList, in any order; each must be a position of the line
};

struct ScoreLine {
  std::vector<TokenId> ids;
  Positions positions = {};
};

struct ScoreOptions {
  std::optional<std::uint32_t> chunk =
      {};                 // prefill each line in steps of so many tokens; unset: as few steps as possible
  bool together = false;  // all lines in one ragged step; not with chunk
};

// Rows that a step has given for one line. Valid during the callback.
struct ScoredRows {
  std::size_t line = 0;                      // index of the line
  std::span<const std::uint32_t> positions;  // ascending, continuing those of earlier callbacks for the line
  const Logits& logits;
  std::uint32_t first_row = 0;

  // The logits after the token at positions[i].
  std::span<const double> row(std::size_t i) const { return logits.row(first_row + static_cast<std::uint32_t>(i)); }
};
using RowsCallback = std::function<void(const ScoredRows&)>;

struct Perplexity {
  std::uint64_t tokens = 0;  // that were counted
  double nll = 0;            // the sum of their -ln p
  double mean_nll() const { return nll / static_cast<double>(tokens); }
  double value() const;  // exp(mean_nll())
};
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;  // in tokens of the text

// One thread at a time; no Engine may live on the same model meanwhile, both take its KV pages for their own.
class Scorer {
 public:
  // `model` must outlive this.
  explicit Scorer(Model& model);

  // Gives the logits at the wanted positions of each line, the lines one after another, and returns for each line the
  // steps that the model executed with it in them. All tokens of a line are computed, logits only where wanted. Without
  // a chunk size, steps are also kept to a bounded amount of logits, so that "all" of a long line needs little memory.
  // When the model is replaced, a line under way is computed again, which its steps show. Rope factors are chosen by
  // the number of ids given. Throws kUsage for wrong ids or positions, kCapacity naming the limit for what does not
  // fit; lines before a bad one may have been given out.
  std::vector<std::vector<StepRecord>> score(std::span<const ScoreLine> lines, const ScoreOptions& options,
                                             const RowsCallback& on_rows);

  // Cuts the ids into windows of `context` tokens, of which `bos`, if set, is the first of each; counts the tokens in
  // the second half of each window (of the last, shorter one too), each under the model given all before it in the
  // window. Throws as score does, and kDevice for logits that give no probabilities.
  Perplexity perplexity(std::span<const TokenId> ids, std::uint64_t context, std::optional<TokenId> bos,
                        const Progress& progress = {});

 private:
  class Line;  // a line under way

  void check_line(std::span<const TokenId> ids) const;
  std::vector<StepRecord> score_line(std::size_t index, const ScoreLine& line, std::optional<std::uint32_t> chunk,
                                     const RowsCallback& on_rows);
  StepRecord score_together(std::span<const ScoreLine> lines, const RowsCallback& on_rows);
  // Nothing when the model was replaced and the KV contents are gone.
  std::optional<Logits> run(std::span<const StepPart> parts, std::uint32_t n_decode);
  std::uint32_t next_tokens(const Line& line, std::optional<std::uint32_t> chunk) const;

  StepRunner runner_;
  kv::KvBook book_;
};

}  // namespace backplane::engine

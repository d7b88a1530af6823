#include "core/engine/scorer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "core/base/error.h"
#include "core/engine/admission.h"
#include "core/sample/logprobs.h"

namespace backplane::engine {
namespace {

// Logits of a step, in numbers: 64 MiB of doubles.
constexpr std::uint64_t kMaxStepLogits = std::uint64_t{1} << 23;

// Ascending, each once.
std::vector<std::uint32_t> resolve(const Positions& positions, std::size_t ids) {
  if (positions.which == Positions::kLast) return {static_cast<std::uint32_t>(ids - 1)};
  std::vector<std::uint32_t> out = positions.list;
  if (positions.which == Positions::kAll) {
    out.resize(ids);
    std::iota(out.begin(), out.end(), 0u);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  if (!out.empty() && out.back() >= ids) {
    throw Error(ErrorCode::kUsage, fmt::format("position {} is behind the end of {} ids", out.back(), ids), {},
                "positions count from 0");
  }
  return out;
}

std::vector<kv::GroupConfig> group_configs(const Model& model) {
  std::vector<kv::GroupConfig> groups;
  for (std::uint32_t g = 0; g < model.shape().groups.size(); ++g) {
    groups.push_back({model.shape().groups[g].window, model.pages(g)});
  }
  return groups;
}

// The line whose wanted rows predict the second half of the window.
ScoreLine perplexity_window(std::span<const TokenId> piece, std::optional<TokenId> bos) {
  ScoreLine window;
  if (bos) window.ids.push_back(*bos);
  for (const TokenId id : piece) window.ids.push_back(id);
  window.positions.which = Positions::kList;
  const auto length = static_cast<std::uint32_t>(window.ids.size());
  for (std::uint32_t i = std::max(1u, length / 2); i < length; ++i) window.positions.list.push_back(i - 1);
  return window;
}

}  // namespace

double Perplexity::value() const { return std::exp(mean_nll()); }

// Holds the line's pages and rope row.
class Scorer::Line {
 public:
  Line(Model& model, kv::KvBook& book, const ScoreLine& line)
      : wanted_(resolve(line.positions, line.ids.size())), model_(model), book_(book) {
    sequence_.tokens = line.ids;
    sequence_.planned_length = line.ids.size();
    sequence_.rope_row = model.acquire_rope_row(line.ids.size());
    sequence_.kv = book.open();
  }
  ~Line() {
    book_.free(sequence_.kv);
    model_.release_rope_row(sequence_.rope_row);
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  const sched::Sequence& sequence() const { return sequence_; }
  // Positions whose logits are still wanted.
  std::span<const std::uint32_t> wanted() const { return std::span(wanted_).subspan(given_); }

  // The share of a step with the next `tokens` tokens. Throws kCapacity when the pages don't suffice.
  StepPart part(std::uint32_t tokens) {
    if (book_.reserve(sequence_.kv, tokens) != kv::Reservation::kReserved) {
      throw Error(ErrorCode::kCapacity, "the KV cache is full",
                  fmt::format("a line of {} ids", sequence_.tokens.size()),
                  "score fewer or shorter lines at once, or give the KV cache more memory");
    }
    StepPart part{.sequence = &sequence_, .tokens = tokens, .rows = {}};
    const std::uint64_t end = sequence_.computed + tokens;
    for (const std::uint32_t p : wanted()) {
      if (p < end) part.rows.push_back(p - static_cast<std::uint32_t>(sequence_.computed));
    }
    return part;
  }

  // The contents of the pages are gone: all is to be computed again. Rows that were given stay given.
  void start_over() { sequence_.computed = book_.truncate(sequence_.kv, 0); }

  // The step with the part has run; its rows for this line begin at first_row.
  void commit(std::size_t index, const StepPart& part, const Logits& logits, std::uint32_t first_row,
              const RowsCallback& on_rows) {
    book_.append(sequence_.kv, part.tokens);
    sequence_.computed += part.tokens;
    const auto positions = wanted().first(part.rows.size());
    given_ += part.rows.size();
    if (!positions.empty()) on_rows({index, positions, logits, first_row});
  }

 private:
  sched::Sequence sequence_;
  std::vector<std::uint32_t> wanted_;
  std::size_t given_ = 0;
  Model& model_;
  kv::KvBook& book_;
};

Scorer::Scorer(Model& model)
    : runner_(model, 1), book_(model.page_size(), group_configs(model), model.max_step_tokens()) {}

std::vector<std::vector<StepRecord>> Scorer::score(std::span<const ScoreLine> lines, const ScoreOptions& options,
                                                   const RowsCallback& on_rows) {
  const std::uint32_t most = runner_.model().max_step_tokens();
  if (options.chunk && options.together) {
    throw Error(ErrorCode::kUsage, "lines can't be scored together in one step and in chunks", {},
                "choose one of the two");
  }
  if (options.chunk == 0u) throw Error(ErrorCode::kUsage, "a chunk can't be of 0 tokens", {}, "give at least 1");
  if (options.chunk && *options.chunk > most) {
    throw Error(ErrorCode::kCapacity, fmt::format("a step of {} tokens is too large", *options.chunk), {},
                fmt::format("use chunks of at most {}", most));
  }
  for (const ScoreLine& line : lines) check_line(line.ids);
  std::vector<std::vector<StepRecord>> steps;
  if (options.together && !lines.empty()) {
    steps.assign(lines.size(), {score_together(lines, on_rows)});
    return steps;
  }
  for (std::size_t i = 0; i < lines.size(); ++i) steps.push_back(score_line(i, lines[i], options.chunk, on_rows));
  return steps;
}

void Scorer::check_line(std::span<const TokenId> ids) const {
  const ModelShape& shape = runner_.model().shape();
  check_ids(ids, shape.vocab_size, "a line to score");
  const std::uint64_t most = book_.longest(shape.max_context);
  if (ids.size() > most) {
    throw Error(ErrorCode::kCapacity,
                fmt::format("a line of {} ids is longer than {}", ids.size(),
                            ids.size() > shape.max_context ? "the context" : "what the KV cache holds"),
                {}, fmt::format("give at most {} ids", most));
  }
}

std::vector<StepRecord> Scorer::score_line(std::size_t index, const ScoreLine& given,
                                           std::optional<std::uint32_t> chunk, const RowsCallback& on_rows) {
  std::vector<StepRecord> steps;
  Line line(runner_.model(), book_, given);
  while (line.sequence().pending() > 0) {
    const StepPart part = line.part(next_tokens(line, chunk));
    // One token that follows others is what a decode is.
    const std::uint32_t n_decode = part.tokens == 1 && line.sequence().computed > 0 ? 1 : 0;
    const std::optional<Logits> logits = run({&part, 1}, n_decode);
    if (!logits) {
      line.start_over();
      continue;
    }
    steps.push_back(runner_.records().back());
    line.commit(index, part, *logits, 0, on_rows);
  }
  return steps;
}

std::optional<Logits> Scorer::run(std::span<const StepPart> parts, std::uint32_t n_decode) {
  try {
    return runner_.run(build_step(book_, parts, n_decode));
  } catch (const ModelReplaced&) {
    return std::nullopt;
  }
}

std::uint32_t Scorer::next_tokens(const Line& line, std::optional<std::uint32_t> chunk) const {
  const Model& model = runner_.model();
  std::uint64_t tokens = std::min<std::uint64_t>(line.sequence().pending(), chunk.value_or(model.max_step_tokens()));
  if (!chunk) {
    const std::uint64_t rows = std::max<std::uint64_t>(1, kMaxStepLogits / model.shape().vocab_size);
    const auto wanted = line.wanted();
    if (wanted.size() > rows) tokens = std::min(tokens, wanted[rows] - line.sequence().computed);
  }
  return static_cast<std::uint32_t>(tokens);
}

StepRecord Scorer::score_together(std::span<const ScoreLine> lines, const RowsCallback& on_rows) {
  std::uint64_t tokens = 0;
  for (const ScoreLine& line : lines) tokens += line.ids.size();
  const std::uint32_t most = runner_.model().max_step_tokens();
  if (tokens > most) {
    throw Error(ErrorCode::kCapacity, fmt::format("{} lines with {} ids do not fit one step", lines.size(), tokens), {},
                fmt::format("a step takes at most {} tokens", most));
  }
  std::vector<std::unique_ptr<Line>> open;
  std::vector<StepPart> parts;
  for (const ScoreLine& line : lines) {
    open.push_back(std::make_unique<Line>(runner_.model(), book_, line));
    parts.push_back(open.back()->part(static_cast<std::uint32_t>(line.ids.size())));
  }
  std::optional<Logits> logits;
  while (!logits) logits = run(parts, 0);  // nothing was in the cache before: the same step does it again
  std::uint32_t row = 0;
  for (std::size_t i = 0; i < open.size(); ++i) {
    open[i]->commit(i, parts[i], *logits, row, on_rows);
    row += static_cast<std::uint32_t>(parts[i].rows.size());
  }
  return runner_.records().back();
}

Perplexity Scorer::perplexity(std::span<const TokenId> ids, std::uint64_t context, std::optional<TokenId> bos,
                              const Progress& progress) {
  if (context < 2) throw Error(ErrorCode::kUsage, "a window needs at least 2 tokens", {}, "use a larger context");
  const std::size_t room = context - (bos ? 1 : 0);
  Perplexity out;
  for (std::size_t begin = 0; begin < ids.size(); begin += room) {
    const std::size_t end = std::min<std::size_t>(ids.size(), begin + room);
    const ScoreLine window = perplexity_window(ids.subspan(begin, end - begin), bos);
    check_line(window.ids);
    score_line(0, window, std::nullopt, [&](const ScoredRows& rows) {
      for (std::size_t i = 0; i < rows.positions.size(); ++i) {
        sample::check_logits(rows.row(i));
        out.nll -= sample::token_logprob(rows.row(i), window.ids[rows.positions[i] + 1]);
        ++out.tokens;
      }
    });
    if (progress) progress(end, ids.size());
  }
  if (out.tokens == 0) {
    throw Error(ErrorCode::kUsage, "the text is too short to have a perplexity", {}, "give at least 2 tokens");
  }
  return out;
}

}  // namespace backplane::engine

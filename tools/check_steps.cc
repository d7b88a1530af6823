#include "tools/check_steps.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "core/base/error.h"
#include "core/engine/admission.h"
#include "core/engine/step_builder.h"
#include "core/engine/step_runner.h"
#include "core/kv/kv_book.h"

namespace backplane::tools::check {
namespace {

// The same ids on every machine.
std::vector<TokenId> some_ids(std::uint32_t length, std::uint32_t vocabulary) {
  std::vector<TokenId> ids;
  std::uint64_t state = length;
  for (std::uint32_t i = 0; i < length; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<TokenId>((state >> 33) % vocabulary));
  }
  return ids;
}

std::vector<std::vector<std::uint32_t>> chunks(std::uint32_t tokens, std::uint32_t most) {
  std::vector<std::vector<std::uint32_t>> steps;
  for (std::uint32_t done = 0; done < tokens; done += most) steps.push_back({std::min(most, tokens - done)});
  return steps;
}

// The same tokens in the same order, in steps of at most `most`.
void cut_steps(Task& task, std::uint32_t most) {
  std::vector<std::vector<std::uint32_t>> steps;
  for (std::vector<std::uint32_t>& step : task.steps) {
    while (std::accumulate(step.begin(), step.end(), 0u) > most) {
      std::vector<std::uint32_t>& part = steps.emplace_back();
      std::uint32_t room = most;
      for (std::uint32_t& tokens : step) {
        part.push_back(std::min(tokens, room));
        tokens -= part.back();
        room -= part.back();
      }
    }
    steps.push_back(std::move(step));
  }
  task.steps = std::move(steps);
}

// A sequence with its pages and its row of rope tables.
class Line {
 public:
  Line(engine::Model& model, kv::KvBook& book, const std::vector<TokenId>& ids) : model_(model), book_(book) {
    sequence_.tokens = ids;
    sequence_.planned_length = ids.size();
    sequence_.rope_row = model.acquire_rope_row(ids.size());
    sequence_.kv = book.open();
  }
  ~Line() {
    book_.free(sequence_.kv);
    model_.release_rope_row(sequence_.rope_row);
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  bool decodes(std::uint32_t tokens) const { return tokens == 1 && sequence_.computed > 0; }
  engine::StepPart part(std::uint32_t tokens) {
    if (book_.reserve(sequence_.kv, tokens) != kv::Reservation::kReserved) {
      throw Error(ErrorCode::kCapacity, "the KV cache is too small for the check", {}, "check a shorter prompt");
    }
    engine::StepPart part{.sequence = &sequence_, .tokens = tokens, .rows = std::vector<std::uint32_t>(tokens)};
    std::iota(part.rows.begin(), part.rows.end(), 0u);
    return part;
  }
  void commit(std::uint32_t tokens) {
    book_.append(sequence_.kv, tokens);
    sequence_.computed += tokens;
  }

 private:
  sched::Sequence sequence_;
  engine::Model& model_;
  kv::KvBook& book_;
};

}  // namespace

std::vector<Task> builtin_tasks(std::uint32_t vocabulary, std::uint32_t page, std::uint32_t limit, std::uint32_t most) {
  // For a sequence of the lengths that the steps add up to.
  const auto task = [&](std::vector<std::vector<std::uint32_t>> steps) {
    Task made;
    for (std::size_t i = 0; i < steps.front().size(); ++i) {
      std::uint32_t length = 0;
      for (auto& step : steps) length += step[i] = std::min(step[i], limit - length);
      made.lines.push_back(some_ids(length, vocabulary));
    }
    made.steps = std::move(steps);
    cut_steps(made, most);
    return made;
  };
  return {task({{3}}),
          task({{page + 5}}),
          task({{page + 1, 7}}),
          task({{page}, {page}, {1}}),
          task({{1}, {1}, {1}, {1}}),
          task({{page, 0}, {1, 9}, {1, 1}})};
}

std::vector<Task> prompt_tasks(const std::vector<TokenId>& ids, std::uint32_t most) {
  const auto length = static_cast<std::uint32_t>(ids.size());
  std::vector<Task> tasks = {{{ids}, chunks(length, most)}};
  if (length > 1) {
    tasks.push_back({{ids}, chunks(length - 1, most)});
    tasks.back().steps.push_back({1});
  }
  return tasks;
}

Needs needs_of(const std::vector<Task>& tasks) {
  Needs needs;
  for (const Task& task : tasks) {
    for (const auto& line : task.lines)
      needs.context = std::max(needs.context, static_cast<std::uint32_t>(line.size()));
    needs.sequences = std::max(needs.sequences, static_cast<std::uint32_t>(task.lines.size()));
    for (const auto& step : task.steps) {
      needs.step_tokens = std::max(needs.step_tokens, std::accumulate(step.begin(), step.end(), 0u));
    }
  }
  return needs;
}

void run(engine::Model& model, const Task& task) {
  std::vector<kv::GroupConfig> groups;
  for (std::uint32_t g = 0; g < model.shape().groups.size(); ++g) {
    groups.push_back({model.shape().groups[g].window, model.pages(g)});
  }
  kv::KvBook book(model.page_size(), groups, model.max_step_tokens());
  engine::StepRunner runner(model, 1);
  std::deque<Line> lines;
  for (const auto& ids : task.lines) {
    engine::check_ids(ids, model.shape().vocab_size, "the prompt");
    lines.emplace_back(model, book, ids);
  }
  for (const auto& step : task.steps) {
    std::vector<engine::StepPart> parts;
    std::uint32_t n_decode = 0;
    for (const bool decodes : {true, false}) {  // in this order
      for (std::size_t i = 0; i < lines.size(); ++i) {
        if (step[i] != 0 && lines[i].decodes(step[i]) == decodes) parts.push_back(lines[i].part(step[i]));
      }
      if (decodes) n_decode = static_cast<std::uint32_t>(parts.size());
    }
    if (parts.empty()) continue;
    runner.run(engine::build_step(book, parts, n_decode));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (step[i] != 0) lines[i].commit(step[i]);
    }
  }
}

}  // namespace backplane::tools::check

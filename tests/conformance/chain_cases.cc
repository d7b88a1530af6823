// Whole lists of ops, recorded or compiled, run again and again while inputs and the step descriptor change: nothing of
// the first time may stay.
#include <fmt/format.h>

#include "core/base/abi_call.h"
#include "tests/conformance/chain.h"
#include "tests/conformance/compiled.h"
#include "tests/conformance/graph.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

enum class Way { kRecorded, kCompiled };

// What runs the list from now on, without waiting.
std::function<void()> way_to_run(Way way, const OpList& list) {
  if (way == Way::kCompiled) {
    const auto compiled = std::make_shared<Compiled>(list);
    return [compiled] { compiled->run(); };
  }
  list.need_capture_safe();
  const auto graph = std::make_shared<Graph>(list.side(), [&] { list.enqueue(); });
  return [graph] { graph->launch(); };
}

void try_feed_forward(Trial& trial, Way way, std::int64_t tokens) {
  FeedForward block(trial, tokens);
  const auto run = way_to_run(way, block.list());
  for (int i = 0; i < 3; ++i) {
    block.set(block.draw());
    run();
    trial.subject.sync();
    block.judge("out of the block");
  }
  block.set(block.draw());
  block.list().enqueue();  // singly, which goes on to work
  trial.subject.sync();
  block.judge("out of the same ops, run singly");
}

void try_decode(Trial& trial, Way way, Cache where) {
  DecodeChain chain(trial, where);
  const auto run = way_to_run(way, chain.list());
  chain.overwrite_host();
  const auto step = [&](const std::vector<DecodeArrays::Row>& rows, const char* what) {
    chain.set(rows);
    run();
    trial.subject.sync();
    chain.judge(what);
  };
  step(DecodeChain::longest(), "with the step that it was made with");
  step({{0, 4, 1}, {1, 20, 0}, {2, 17, 1}}, "with shorter sequences and other rows of the rope tables");
  step({{2, 13, 0}, {0, 2, 0, false}, {1, 33, 1}}, "with the sequences in another order, and so other pages");
  step(DecodeChain::longest(), "with the first step again");
}

}  // namespace

void add_chain_cases(Suite& suite) {
  for (const Way way : {Way::kRecorded, Way::kCompiled}) {
    if (way == Way::kRecorded ? !has_graphs(suite.device()) : !has_compile(suite.device())) continue;
    const std::string table = way == Way::kRecorded ? "graphs" : "compile";
    for (const std::int64_t tokens : {1, 5}) {
      suite.add_for_each_type(fmt::format("{}/feed_forward/T{}", table, tokens),
                              [=](Trial& trial) { try_feed_forward(trial, way, tokens); });
    }
    for (const Cache where : {Cache::kCanonical, Cache::kOwn}) {
      if (where == Cache::kOwn && !has_kv(suite.device())) continue;
      suite.add_for_each_type(fmt::format("{}/decode/{}", table, cache_name(where)),
                              [=](Trial& trial) { try_decode(trial, way, where); });
    }
  }
}

}  // namespace backplane::conformance

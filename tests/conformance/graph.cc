#include "tests/conformance/graph.h"

#include "core/base/abi_call.h"

namespace backplane::conformance {

Graph::Graph(Side& side, const std::function<void()>& work) : side_(side), table_(*side.device().tables().graph) {
  if (!has_graphs(side.device())) throw Skipped{"the plugin has no graph table"};
  const bp_device device = side.device().handle();
  AbiCall begin, end;
  begin.check(table_.capture_begin(device, side.stream(), begin.context()), "capture_begin");
  work();
  end.check(table_.capture_end(device, side.stream(), end.context(), &graph_), "capture_end");
  require(graph_ != nullptr, "capture_end: success without a graph");
  side.sync();
}

Graph::~Graph() {
  if (graph_) table_.destroy(side_.device().handle(), graph_);
}

void Graph::launch() {
  AbiCall call;
  call.check(table_.launch(side_.device().handle(), side_.stream(), call.context(), graph_), "launch");
}

}  // namespace backplane::conformance

// Recorded work.
#pragma once

#include <functional>

#include "tests/conformance/side.h"

namespace backplane::conformance {

class Graph {
 public:
  // Records what `work` enqueues on the side's stream. Throws Skipped when the plugin has no graphs.
  Graph(Side& side, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch();  // enqueues

 private:
  Side& side_;
  const bp_graph_table& table_;
  bp_graph graph_ = nullptr;
};

}  // namespace backplane::conformance

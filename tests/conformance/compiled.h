// A list of ops that the plugin has compiled.
#pragma once

#include "tests/conformance/chain.h"

namespace backplane::conformance {

class Compiled {
 public:
  // Throws Skipped with the plugin's reason where it compiles nothing, or not this list.
  explicit Compiled(const OpList& list);
  ~Compiled();
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  void run();  // enqueues

 private:
  Side& side_;
  bp_compiled compiled_ = nullptr;
};

}  // namespace backplane::conformance

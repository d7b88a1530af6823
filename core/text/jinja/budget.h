// Accounting of one rendering. A Budget is the current one of its thread while it lives, so that code deep inside a
// value's methods can charge it without a parameter; without a current Budget (parsing, tests) charges do nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/text/jinja/limits.h"

namespace backplane::text::jinja {

class Budget {
 public:
  explicit Budget(const Limits& limits);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  static Budget* current();

  // Both throw Fault once the limit is passed.
  void add_steps(std::uint64_t count);
  void add_bytes(std::uint64_t count);

 private:
  Limits limits_;
  std::uint64_t steps_ = 0;
  std::uint64_t bytes_ = 0;
  Budget* previous_;
};

// Requires nothing; call before doing the work, or making the bytes, that is charged.
inline void charge_steps(std::uint64_t count) {
  if (Budget* budget = Budget::current()) budget->add_steps(count);
}
inline void charge_bytes(std::uint64_t count) {
  if (Budget* budget = Budget::current()) budget->add_bytes(count);
}
// The cost of looking through text once.
inline void charge_scan(std::uint64_t bytes) { charge_steps(bytes / 64); }

inline void append_charged(std::string& text, std::string_view more) {
  charge_bytes(more.size());
  text.append(more);
}
void append_repeated(std::string& text, std::string_view unit, std::uint64_t count);

}  // namespace backplane::text::jinja

#include "core/text/jinja/budget.h"

#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

thread_local Budget* current_budget = nullptr;

// Adds without wrapping; a sum that would wrap is beyond any limit.
bool add_within(std::uint64_t& sum, std::uint64_t more, std::uint64_t limit) {
  if (more > limit || sum > limit - more) return false;
  sum += more;
  return true;
}

}  // namespace

Budget::Budget(const Limits& limits) : limits_(limits), previous_(current_budget) { current_budget = this; }

Budget::~Budget() { current_budget = previous_; }

Budget* Budget::current() { return current_budget; }

void Budget::add_steps(std::uint64_t count) {
  if (!add_within(steps_, count, limits_.steps)) fail("the template takes too many steps");
}

void Budget::add_bytes(std::uint64_t count) {
  if (!add_within(bytes_, count, limits_.bytes)) fail("the template uses too much memory");
}

void append_repeated(std::string& text, std::string_view unit, std::uint64_t count) {
  std::uint64_t total = 0;
  if (__builtin_mul_overflow(count, std::uint64_t{unit.size()}, &total)) fail("the template uses too much memory");
  charge_bytes(total);
  if (unit.empty()) return;
  text.reserve(text.size() + total);
  for (std::uint64_t i = 0; i < count; ++i) text.append(unit);
}

}  // namespace backplane::text::jinja

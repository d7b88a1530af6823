// KV_WRITE: K and V of the step's tokens go to their slots in the pages.
#include "backends/cpu/dequantize.h"
#include "backends/cpu/loops.h"
#include "backends/cpu/ops.h"
#include "backends/cpu/pages.h"
#include "backends/cpu/view.h"

namespace backplane::cpu {

bp_step step_of(const bp_step* step) {
  plugin::require(step != nullptr, "there is no step");
  return plugin::read_struct(step);
}

void check_cache(const Check& check, bp_kv kv, const bp_step* step, const bp_tensor& k_pages, const bp_tensor& v_pages,
                 std::uint32_t group) {
  if (kv != nullptr) check.invalid("this device has no KV cache of its own");
  if (k_pages.shape[0] != v_pages.shape[0] || k_pages.shape[1] != v_pages.shape[1]) {
    check.invalid("k_pages and v_pages differ in number or size of pages");
  }
  if (step == nullptr && !check.running) return;
  const bp_step own = step_of(step);
  if (own.page_size != 0 || check.running) {
    if (own.page_size == 0 || own.page_size != k_pages.shape[1]) {
      check.invalid("pages hold " + std::to_string(k_pages.shape[1]) + " tokens, in the step " +
                    std::to_string(own.page_size));
    }
  }
  if (check.running && group >= own.groups) {
    check.invalid("group " + std::to_string(group) + " of " + std::to_string(own.groups));
  }
}

void check(Check& check, const bp_kv_write_args& args) {
  check.activation(args.k, "k", {Check::kAny, Check::kAny, Check::kAny});
  check.activation(args.v, "v", {args.k.shape[0], args.k.shape[1], Check::kAny});
  check.pages(args.k_pages, "k_pages", args.k.shape[1], args.k.shape[2]);
  check.pages(args.v_pages, "v_pages", args.k.shape[1], args.v.shape[2]);
  check_cache(check, args.kv, args.step, args.k_pages, args.v_pages, args.group);
  if (check.running && args.step->tokens != args.k.shape[0]) {
    check.invalid("k has " + std::to_string(args.k.shape[0]) + " tokens, the step " +
                  std::to_string(args.step->tokens));
  }
}

namespace {

template <class Real>
void store(const View<const Real>& x, const Pages& pages, const std::int64_t* slots) {
  for_rows(x.shape(0), x.shape(1) * x.shape(2), [&](std::int64_t t) {
    if (slots[t] < 0) return;
    for (std::int64_t h = 0; h < x.shape(1); ++h) {
      write_elements(pages.type(), x.at(t, h), x.shape(2),
                     pages.at(slots[t] / pages.page_size(), slots[t] % pages.page_size(), h));
    }
  });
}

}  // namespace

template <class Real>
void run(const Call&, const bp_kv_write_args& args) {
  const bp_step step = step_of(args.step);
  const View<const Real> k(args.k, "k"), v(args.v, "v");
  const Pages k_pages(args.k_pages, "k_pages", true), v_pages(args.v_pages, "v_pages", true);
  if (step.tokens == 0) return;
  plugin::require(step.slot != nullptr, "the step has no slots");
  const std::int64_t* slots = step.slot + std::uint64_t{args.group} * step.tokens;
  const std::int64_t end = k_pages.count() * k_pages.page_size();
  for (std::uint32_t t = 0; t < step.tokens; ++t) {
    if (slots[t] < -1 || slots[t] >= end) {
      throw plugin::Failure(BP_INVALID, "slot " + std::to_string(slots[t]) + " of token " + std::to_string(t) +
                                            " is outside a cache of " + std::to_string(end) + " tokens");
    }
  }
  store(k, k_pages, slots);
  store(v, v_pages, slots);
}

template void run<float>(const Call&, const bp_kv_write_args&);
template void run<double>(const Call&, const bp_kv_write_args&);

}  // namespace backplane::cpu

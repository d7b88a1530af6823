// KV_WRITE: K and V of the step's tokens go to their slots in the pages.
#include "backends/cpu/dequantize.h"
#include "backends/cpu/loops.h"
#include "backends/cpu/ops.h"
#include "backends/cpu/pages.h"

namespace backplane::cpu {

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
  const bp_step step = plugin::step_of(args.step);
  const View<const Real> k(args.k, "k"), v(args.v, "v");
  const Pages k_pages(args.k_pages, "k_pages", true), v_pages(args.v_pages, "v_pages", true);
  const std::int64_t* slots = plugin::checked_slots(step, args.group, k_pages.count() * k_pages.page_size());
  if (step.tokens == 0) return;
  store(k, k_pages, slots);
  store(v, v_pages, slots);
}

template void run<float>(const Call&, const bp_kv_write_args&);
template void run<double>(const Call&, const bp_kv_write_args&);

}  // namespace backplane::cpu

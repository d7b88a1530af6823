// Captured work: nothing runs while it is recorded, and each launch sees what the memory holds then.
#include <fmt/format.h>

#include <cmath>

#include "core/base/abi_call.h"
#include "tests/conformance/paged.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

class Graph {
 public:
  // Records `work`. Throws Skipped when the plugin captures nothing, or not this op.
  template <class Work>
  Graph(Side& side, const Side::Ready& op, Work&& work) : side_(side), table_(*side.device().tables().graph) {
    if (!has_graphs(side.device())) throw Skipped{"the plugin has no graph table"};
    if ((side.support().flags & BP_SUPPORT_CAPTURE_SAFE) == 0) {
      throw Skipped{fmt::format("{} is not declared safe to capture", device::op_name(op.code))};
    }
    device::Device& device = side.device();
    AbiCall call;
    call.check(table_.capture_begin(device.handle(), side.stream(), call.context()), "capture_begin");
    work();
    call.check(table_.capture_end(device.handle(), side.stream(), call.context(), &graph_), "capture_end");
    require(graph_ != nullptr, "capture_end: success without a graph");
    side.sync();
  }
  ~Graph() {
    if (graph_) table_.destroy(side_.device().handle(), graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch() {
    AbiCall call;
    call.check(table_.launch(side_.device().handle(), side_.stream(), call.context(), graph_), "launch");
  }

 private:
  Side& side_;
  const bp_graph_table& table_;
  bp_graph graph_ = nullptr;
};

Array sum_of(DType type, const Array& a, const Array& b) {
  Array out(a.shape);
  for (std::size_t i = 0; i < a.data.size(); ++i) out.data[i] = round_to(type, a.data[i] + b.data[i]);
  return out;
}

Array rounding_of(Trial& trial, const Array& expected) {
  Array bound(expected.shape);
  for (std::size_t i = 0; i < bound.data.size(); ++i) {
    bound.data[i] = 2 * precision_of(trial.activation()).unit * std::fabs(expected.data[i]) + trial.arithmetic().eta();
  }
  return bound;
}

void try_add(Trial& trial) {
  Side& side = trial.subject;
  const Array a = trial.draw({7, 65}), b = trial.draw({7, 65}), later = trial.draw({7, 65});
  bp_binary_args add{};
  add.a = side.input(a);
  add.b = side.input(b);
  add.out = side.output({7, 65});
  add.alpha = 1;
  const Side::Ready op = side.ready(BP_OP_ADD, add);
  Graph graph(side, op, [&] { side.enqueue(op, add); });
  for (const double value : side.read(add.out).data)
    require(std::isnan(value), "captured work ran while it was recorded");
  for (const Array* now : {&a, &later, &a}) {
    side.write(add.a, encode(trial.activation(), *now));
    graph.launch();
    side.sync();
    const Array expected = sum_of(trial.activation(), *now, b);
    trial.compare("out of a launch", side.read(add.out), expected, rounding_of(trial, expected));
  }
}

// The step's arrays are rewritten in their buffer: a launch must follow the new slots, not those it was recorded with.
void try_descriptor(Trial& trial, Cache where) {
  const CacheSpec spec{
      .where = where,
      .type = DType::kF32,
      .page_size = trial.subject.device().caps().page_sizes[0] != 0 ? trial.subject.device().caps().page_sizes[0] : 16,
      .kv_heads = 2,
      .dim = 32,
      .value_dim = 32};
  if (!trial.subject.device().takes_kv_type(spec.type)) throw Skipped{"the device's KV cache takes no F32"};
  Side& side = trial.subject;
  const PagedStep paged(trial, spec, {{3, 4}, {spec.page_size, spec.page_size + 1}, {0, 1}}, 3);
  SideCache cache(side, paged, true);
  cache.writable();
  const Array k = trial.draw({3, 2, 32}), v = trial.draw({3, 2, 32});
  bp_kv_write_args args{};
  std::vector<std::int64_t> host(paged.step.slot, paged.step.slot + 6);
  bp_step recorded = paged.step;
  recorded.slot = host.data();
  args.step = side.step(recorded);
  args.k = side.input(k);
  args.v = side.input(v);
  cache.bind(args);
  const Side::Ready op = side.ready(BP_OP_KV_WRITE, args, cache.features());
  Graph graph(side, op, [&] { side.enqueue(op, args); });
  std::fill(host.begin(), host.end(), 0);  // valid until `run` returned, and not longer
  const std::int64_t moved[] = {-1, -1, -1, paged.slots()[1], paged.slots()[2], paged.slots()[0]};
  AbiCall call;
  call.check(side.device().tables().buffer->upload(side.device().handle(), side.stream(), call.context(),
                                                   args.step->buffer, args.step->slot_offset, moved, sizeof(moved)),
             "upload");
  side.changes([&] {
    bp_tensor slots{};
    slots.buffer = args.step->buffer;
    slots.offset = args.step->slot_offset;
    slots.type = BP_TYPE_I64;
    slots.rank = 1;
    slots.shape[0] = 6;
    slots.stride[0] = 8;
    return slots;
  }());
  graph.launch();
  side.sync();
  const auto [pages_k, pages_v] = cache.contents();
  Array expected = paged.k;
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t i = 0; i < 64; ++i) {
      expected.row(moved[3 + t] * 2)[i] = round_to(spec.type, k.row(t * 2)[i]);
    }
  }
  trial.same_bytes("K pages after a launch with other slots", spec.type, pages_k, encode(spec.type, expected));
}

}  // namespace

void add_graph_cases(Suite& suite) {
  if (!has_graphs(suite.device())) {
    suite.add("graphs", [](Trial&) { throw Skipped{"the plugin has no graph table"}; });
    return;
  }
  suite.add_for_each_type("graphs/add", try_add);
  for (const Cache where : {Cache::kCanonical, Cache::kOwn}) {
    if (where == Cache::kOwn && !has_kv(suite.device())) continue;
    suite.add_for_each_type(fmt::format("graphs/descriptor/{}", cache_name(where)),
                            [where](Trial& trial) { try_descriptor(trial, where); });
  }
}

}  // namespace backplane::conformance

// Captured work: nothing runs while it is recorded, and each launch sees what the memory holds then. Longer lists are
// in chain_cases.cc.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "core/base/abi_call.h"
#include "tests/conformance/chain.h"
#include "tests/conformance/graph.h"
#include "tests/conformance/stream.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

// out = a + b, or a += b where out is a.
class Sum {
 public:
  Sum(Trial& trial, Side& side, bool in_place)
      : trial_(trial), side_(side), a_(trial.draw(kShape)), b_(trial.draw(kShape)), list_(side) {
    bp_binary_args args{};
    args.a = a_on_ = side.input(a_);
    args.b = side.input(b_);
    if (in_place) side.changes(args.a);
    args.out = out_ = in_place ? args.a : side.output(kShape);
    args.alpha = 1;
    list_.add(BP_OP_ADD, args);
  }

  const OpList& list() const { return list_; }
  void set(const Array& a) {
    a_ = a;
    side_.write(a_on_, encode(trial_.activation(), a));
  }
  void redraw() { set(trial_.draw(kShape)); }
  void expect_untouched(const std::string& what) {
    for (const double value : side_.read(out_).data) require(std::isnan(value), what);
  }
  // After b was added that often to the a that was set last.
  void judge(const std::string& what, int times = 1) {
    const DType type = trial_.activation();
    Array expected = a_, bound(kShape);
    for (std::size_t i = 0; i < expected.data.size(); ++i) {
      double& sum = expected.data[i];
      for (int k = 0; k < times; ++k) {
        sum = round_to(type, sum + b_.data[i]);
        bound.data[i] += 2 * precision_of(type).unit * std::fabs(sum) + trial_.arithmetic().eta();
      }
    }
    trial_.compare(what, side_.read(out_), expected, bound);
  }

 private:
  static inline const Shape kShape = {7, 65};
  Trial& trial_;
  Side& side_;
  Array a_, b_;
  bp_tensor a_on_{}, out_{};
  OpList list_;
};

void try_add(Trial& trial) {
  Sum sum(trial, trial.subject, false);
  sum.list().need_capture_safe();
  Graph graph(trial.subject, [&] { sum.list().enqueue(); });
  sum.expect_untouched("captured work ran while it was recorded");
  for (int i = 0; i < 3; ++i) {
    sum.redraw();
    graph.launch();
    trial.subject.sync();
    sum.judge("out of a launch");
  }
}

// Two launches without waiting in between, each of which must do its part, and ordinary work between two others.
void try_in_a_row(Trial& trial) {
  Sum sum(trial, trial.subject, true);
  sum.list().need_capture_safe();
  Graph graph(trial.subject, [&] { sum.list().enqueue(); });
  sum.redraw();
  graph.launch();
  graph.launch();
  trial.subject.sync();
  sum.judge("a after two launches in a row", 2);
  sum.redraw();
  graph.launch();
  sum.list().enqueue();
  graph.launch();
  trial.subject.sync();
  sum.judge("a after a launch, a run and a launch", 3);
}

// Graphs come and go while others, and the stream, stay in use.
void try_destroy(Trial& trial) {
  Sum one(trial, trial.subject, false), two(trial, trial.subject, false);
  one.list().need_capture_safe();
  const auto record = [&](const Sum& sum) {
    return std::optional<Graph>(std::in_place, trial.subject, [&] { sum.list().enqueue(); });
  };
  auto first = record(one), second = record(two);
  first->launch();
  trial.subject.sync();
  one.judge("out of the first graph");
  first.reset();  // launched before
  second->launch();
  trial.subject.sync();
  two.judge("out of a graph after another was destroyed");
  second.reset();
  record(one).reset();  // never launched
  two.redraw();
  two.list().enqueue();
  trial.subject.sync();
  two.judge("out of an op after all graphs were destroyed");
}

// What is wrong inside a recording: a copy beyond the end of its buffer, or a second recording of the same stream.
enum class Wrong { kCopy, kNested, kEndOnly };

// A call that fails spoils at most its own recording, never the stream. The failure may show at the call, at the end of
// the recording, or, as work that was enqueued, when it is launched; then it stays with the stream, as such failures
// do, and there is nothing more to see.
void try_failure(Trial& trial, Wrong wrong) {
  device::Device& device = trial.subject.device();
  const bp_graph_table& table = *device.tables().graph;
  const device::Buffer buffer = device.alloc(64, "a case");
  const std::vector<std::byte> data(65);
  Side side(trial.subject.device().shared_from_this(), Side::Role::kSubject, trial.activation(), true);
  Sum sum(trial, side, false);
  sum.list().need_capture_safe();
  AbiCall begin, inside, end;
  if (wrong != Wrong::kEndOnly) {
    begin.check(table.capture_begin(device.handle(), side.stream(), begin.context()), "capture_begin");
    if (wrong == Wrong::kNested) sum.list().enqueue();
  }
  bp_status first = BP_OK;
  if (wrong == Wrong::kCopy) {
    first = device.tables().buffer->upload(device.handle(), side.stream(), inside.context(), buffer.handle(), 0,
                                           data.data(), data.size());
  } else if (wrong == Wrong::kNested) {
    first = table.capture_begin(device.handle(), side.stream(), inside.context());
    require(first != BP_OK, "capture_begin while the stream is recorded already: it was accepted");
  }
  bp_graph graph = nullptr;
  const bp_status last = table.capture_end(device.handle(), side.stream(), end.context(), &graph);
  require(wrong != Wrong::kEndOnly || last != BP_OK, "capture_end of a stream that isn't recorded: it was accepted");
  require(first == BP_OK || !inside.text().empty(), "a call inside a recording failed without a reason");
  require(last == BP_OK || !end.text().empty(), "capture_end failed without a reason");
  require((last == BP_OK) == (graph != nullptr), "capture_end: a graph without success, or success without one");
  if (graph) table.destroy(device.handle(), graph);
  sum.redraw();
  sum.list().enqueue();
  side.sync();
  sum.judge("out of an op after a recording that failed");
  Graph again(side, [&] { sum.list().enqueue(); });
  sum.redraw();
  again.launch();
  side.sync();
  sum.judge("out of a launch after a recording that failed");
  side.check_guards();
}

// The same id that an op took when it was recorded is outside the vocabulary when it is launched.
void try_late_error(Trial& trial) {
  device::Device& device = trial.subject.device();
  Side side(device.shared_from_this(), Side::Role::kSubject, trial.activation(), true);
  const DType type = side.parameter_type();
  const Weight table = random_weight(trial, type, 4, 32);
  Array ids({3});
  ids.data = {1, 0, 2};
  bp_embed_args args{};
  args.ids = side.exact(DType::kI32, ids);
  args.table = matrix_on(side, table, form_for(device, type), BP_USE_EMBED);
  args.out = side.output({3, 32});
  OpList list(side);
  list.add(BP_OP_EMBED, args);
  list.need_capture_safe();
  Graph graph(side, [&] { list.enqueue(); });
  ids.data[1] = 1000000;
  side.write(args.ids, encode(DType::kI32, ids));
  AbiCall call;
  const auto sync = [&] { return device.tables().stream->sync(device.handle(), side.stream(), call.context()); };
  bp_status status = BP_OK;
  try {
    graph.launch();
  } catch (const Error&) {
    return;  // as soon as that is fine
  }
  status = sync();
  require(status == BP_INVALID, fmt::format("a launch of EMBED with an id outside the vocabulary: {} instead of {}",
                                            status_text(status), status_text(BP_INVALID)));
  require(!call.text().empty(), "a launch failed without a reason");
  require(sync() == status, "a failure of a launch must stay with its stream");
}

}  // namespace

void add_graph_cases(Suite& suite) {
  if (!has_graphs(suite.device())) {
    suite.add("graphs", [](Trial&) { throw Skipped{"the plugin has no graph table"}; });
    return;
  }
  suite.add_for_each_type("graphs/add", try_add);
  suite.add_for_each_type("graphs/in_a_row", try_in_a_row);
  suite.add("graphs/destroy", try_destroy);
  suite.add("graphs/failed_copy", [](Trial& trial) { try_failure(trial, Wrong::kCopy); });
  suite.add("graphs/nested", [](Trial& trial) { try_failure(trial, Wrong::kNested); });
  suite.add("graphs/end_only", [](Trial& trial) { try_failure(trial, Wrong::kEndOnly); });
  suite.add("graphs/late_error", try_late_error);
}

}  // namespace backplane::conformance

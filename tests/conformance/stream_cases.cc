// Streams: order without waiting, events between two of them, and failures that surface late and then stay.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "tests/conformance/stream.h"
#include "tests/conformance/suite.h"
#include "tests/conformance/weights.h"

namespace backplane::conformance {
namespace {

void check(bp_status status, const AbiCall& call, const char* what) { call.check(status, what); }

void upload(device::Device& device, bp_stream stream, const device::Buffer& to, std::span<const std::byte> data) {
  AbiCall call;
  check(
      device.tables().buffer->upload(device.handle(), stream, call.context(), to.handle(), 0, data.data(), data.size()),
      call, "upload");
}
void download(device::Device& device, bp_stream stream, const device::Buffer& from, std::span<std::byte> data) {
  AbiCall call;
  check(device.tables().buffer->download(device.handle(), stream, call.context(), from.handle(), 0, data.data(),
                                         data.size()),
        call, "download");
}

void try_sync(Trial& trial) {
  Stream stream(trial.subject.device());
  require(stream.sync() == BP_OK && stream.sync() == BP_OK, "sync of a stream without work failed");
}

// Upload, a chain of ops, download: enqueued at once. Each step needs the one before it.
void try_order(Trial& trial, bool own) {
  device::Device& device = trial.subject.device();
  if (!has_streams(device)) throw Skipped{"the plugin has no stream table"};
  const std::int64_t width = 4099;
  const Array zero({9, width}), x = trial.draw({9, width});
  const std::vector<std::byte> data = encode(trial.activation(), x);
  std::vector<std::byte> result(data.size());
  // Last, so that its work is waited for before anything of that goes, whatever happens.
  Side side(device.shared_from_this(), Side::Role::kSubject, trial.activation(), own);
  bp_binary_args add{};
  add.a = side.input(zero);
  side.changes(add.a);
  add.b = side.input(zero);
  side.changes(add.b);
  add.out = add.a;
  add.alpha = 1;
  const Side::Ready op = side.ready(BP_OP_ADD, add);
  const auto move = [&](auto function, auto* bytes, const char* what) {
    AbiCall call;
    check(function(device.handle(), side.stream(), call.context(), what[0] == 'u' ? add.b.buffer : add.a.buffer,
                   what[0] == 'u' ? add.b.offset : add.a.offset, bytes, data.size()),
          call, what);
  };
  move(device.tables().buffer->upload, data.data(), "upload");
  for (int i = 0; i < 4; ++i) side.enqueue(op, add);
  move(device.tables().buffer->download, result.data(), "download");
  side.sync();
  Array expected(x.shape);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    double sum = 0;
    for (int k = 0; k < 4; ++k) sum = round_to(trial.activation(), sum + x.data[i]);
    expected.data[i] = sum;
  }
  Array bound(expected.shape);
  for (std::size_t i = 0; i < bound.data.size(); ++i) {
    bound.data[i] = 4 * precision_of(trial.activation()).unit * std::fabs(expected.data[i]) + trial.arithmetic().eta();
  }
  trial.compare("four sums and a download without waiting in between", decode(trial.activation(), x.shape, result),
                expected, bound);
  side.check_guards();
}

void try_events(Trial& trial) {
  device::Device& device = trial.subject.device();
  const bp_stream_table& table = *device.tables().stream;
  if (!has_streams(device)) throw Skipped{"the plugin has no stream table"};
  if (!table.event_create) throw Skipped{"the plugin has no events"};
  const device::Buffer buffer = device.alloc(1 << 20, "a case");
  std::vector<std::byte> data(1 << 20), result(data.size());
  for (std::byte& byte : data) byte = static_cast<std::byte>(trial.random.bits());
  AbiCall call;
  bp_event event = nullptr;
  call.check(table.event_create(device.handle(), call.context(), &event), "event_create");
  require(event != nullptr, "event_create: success without an event");
  const std::shared_ptr<void> guard(event, [&](void*) { table.event_destroy(device.handle(), event); });
  Stream one(device), two(device);  // last: their work is waited for before anything of that goes
  upload(device, one.get(), buffer, data);
  call.check(table.event_record(device.handle(), one.get(), call.context(), event), "event_record");
  call.check(table.event_wait(device.handle(), two.get(), call.context(), event), "event_wait");
  download(device, two.get(), buffer, result);
  require(two.sync() == BP_OK, "sync failed");
  require(result == data, "a stream that waited for an event did not see what came before the event");
  call.check(table.event_sync(device.handle(), call.context(), event), "event_sync");
  require(one.sync() == BP_OK, "sync failed");
}

// destroy waits for the stream's work.
void try_destroy(Trial& trial) {
  device::Device& device = trial.subject.device();
  const device::Buffer buffer = device.alloc(1 << 20, "a case");
  std::vector<std::byte> data(1 << 20), result(data.size());
  for (std::byte& byte : data) byte = static_cast<std::byte>(trial.random.bits());
  {
    const Stream stream(device);
    upload(device, stream.get(), buffer, data);
  }
  device.download(buffer, 0, result);
  require(result == data, "destroying a stream left its work undone");
}

struct Seen {
  bp_status at_run = BP_OK, at_sync = BP_OK, again = BP_OK;
  std::string reason;
};

// An id outside the vocabulary. A plugin that looks at ids on the device can only tell later.
Seen provoke(Trial& trial, Side& side) {
  const DType type = side.parameter_type();
  const Weight table = random_weight(trial, type, 4, 32);
  Array ids({3});
  ids.data = {1, 1000000, 2};
  bp_embed_args args{};
  args.ids = side.exact(DType::kI32, ids);
  const bool canonical = side.device().takes_weight_type(type);
  args.table = matrix_on(side, table, canonical ? Form::kCanonical : Form::kImported, BP_USE_EMBED);
  args.out = side.output({3, 32});
  const Side::Ready op = side.ready(BP_OP_EMBED, args);
  Seen seen;
  seen.at_run = side.try_enqueue(op, args, seen.reason);
  if (!side.stream()) return seen;
  const bp_stream_table& streams = *side.device().tables().stream;
  AbiCall first, second;
  seen.at_sync = streams.sync(side.device().handle(), side.stream(), first.context());
  seen.again = streams.sync(side.device().handle(), side.stream(), second.context());
  if (seen.reason.empty()) seen.reason = first.text();
  return seen;
}

void try_late_error(Trial& trial) {
  Side side(trial.subject.device().shared_from_this(), Side::Role::kSubject, trial.activation(), true);
  const Seen seen = provoke(trial, side);
  require(seen.at_run != BP_OK || seen.at_sync != BP_OK, "EMBED of an id outside the vocabulary: the error was lost");
  const bp_status status = seen.at_run != BP_OK ? seen.at_run : seen.at_sync;
  require(status == BP_INVALID, fmt::format("EMBED of an id outside the vocabulary: {} instead of {}",
                                            status_text(status), status_text(BP_INVALID)));
  require(!seen.reason.empty(), "EMBED of an id outside the vocabulary failed without a reason");
  // What the call itself refused was never enqueued, so there is nothing to stay.
  if (seen.at_run != BP_OK) return;
  require(seen.again == seen.at_sync, fmt::format("a failure must stay with its stream: sync said {}, then {}",
                                                  status_text(seen.at_sync), status_text(seen.again)));
  Stream other(trial.subject.device());
  require(other.sync() == BP_OK, "a failure of one stream shows on another");
}

}  // namespace

void add_stream_cases(Suite& suite) {
  suite.add("streams/sync", try_sync);
  suite.add_for_each_type("streams/order", [](Trial& trial) { try_order(trial, false); });
  suite.add_for_each_type("streams/order_on_another", [](Trial& trial) { try_order(trial, true); });
  suite.add("streams/events", try_events);
  suite.add("streams/destroy", try_destroy);
  suite.add("streams/late_error", try_late_error);
}

}  // namespace backplane::conformance

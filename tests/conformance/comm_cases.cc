// Collectives: a group of one device, and of two devices on two threads where the plugin has a second one.
#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <thread>

#include "core/base/abi_call.h"
#include "core/base/error.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

std::vector<std::byte> new_group(device::Device& device) {
  const bp_comm_table& table = *device.tables().comm;
  AbiCall sizing, making;
  std::uint64_t bytes = 0;
  sizing.check(table.id_bytes(device.handle(), sizing.context(), &bytes), "id_bytes");
  require(bytes > 0 && bytes <= (1u << 20), "id_bytes: no sensible size");
  std::vector<std::byte> id(bytes + 16, std::byte{0xa5});
  making.check(table.unique_id(device.handle(), making.context(), id.data(), bytes), "unique_id");
  for (std::uint64_t i = bytes; i < id.size(); ++i) {
    require(id[i] == std::byte{0xa5}, "unique_id wrote more bytes than the id has");
  }
  id.resize(bytes);
  return id;
}

// One device of a group.
class Rank {
 public:
  Rank(Side& side, const std::vector<std::byte>& id, std::uint32_t rank, std::uint32_t world)
      : side_(side), table_(*side.device().tables().comm) {
    AbiCall call;
    const bp_status status =
        table_.create(side.device().handle(), call.context(), id.data(), id.size(), rank, world, &comm_);
    if (status == BP_UNSUPPORTED && !call.text().empty()) throw Skipped{call.text()};
    call.check(status, "comm.create");
    require(comm_ != nullptr, "comm.create: success without a handle");
  }
  ~Rank() {
    try {
      side_.sync();
    } catch (const std::exception&) {  // told where it mattered
    }
    if (comm_) table_.destroy(side_.device().handle(), comm_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Side& side() { return side_; }
  void all_reduce(const bp_tensor& x) { enqueue("all_reduce", table_.all_reduce, &x); }
  void all_gather(const bp_tensor& x, const bp_tensor& out) { enqueue("all_gather", table_.all_gather, &x, &out); }
  void reduce_scatter(const bp_tensor& x, const bp_tensor& out) {
    enqueue("reduce_scatter", table_.reduce_scatter, &x, &out);
  }
  void send(const bp_tensor& x, std::uint32_t to) { enqueue("send", table_.send, &x, to); }
  void receive(const bp_tensor& out, std::uint32_t from) { enqueue("receive", table_.receive, &out, from); }

 private:
  template <class Function, class... Args>
  void enqueue(const char* what, Function function, Args... args) {
    AbiCall call;
    const bp_status status = function(side_.device().handle(), side_.stream(), call.context(), comm_, args...);
    if (status == BP_UNSUPPORTED && !call.text().empty()) throw Skipped{call.text()};
    call.check(status, what);
  }

  Side& side_;
  const bp_comm_table& table_;
  bp_comm comm_ = nullptr;
};

// The sum of both, and what may be lost in it: the order of two terms changes nothing.
struct Sum {
  Array exact, bound;
};
Sum sum_of(DType type, const Array& a, const Array& b) {
  Sum sum{a, Array(a.shape)};
  const Precision precision = precision_of(type);
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    sum.exact.data[i] += b.data[i];
    sum.bound.data[i] = 2 * precision.unit * std::fabs(sum.exact.data[i]) + precision.smallest;
  }
  return sum;
}

Array joined(const Array& first, const Array& second) {
  Array out({first.shape[0] + second.shape[0], first.shape[1]});
  std::copy(first.data.begin(), first.data.end(), out.data.begin());
  std::copy(second.data.begin(), second.data.end(), out.row(first.shape[0]));
  return out;
}

Array rows_of(const Array& from, std::int64_t begin, std::int64_t count) {
  Array out({count, from.columns()});
  std::copy_n(from.row(begin), count * from.columns(), out.data.begin());
  return out;
}

// Alone in its group, each call gives back what it was given.
void try_alone(Trial& trial) {
  Side& side = trial.subject;
  Rank rank(side, new_group(side.device()), 0, 1);
  const Array x = trial.draw({6, 65});
  const bp_tensor reduced = side.input(x), in = side.input(x), gathered = side.output(x.shape),
                  scattered = side.output(x.shape);
  side.changes(reduced);
  rank.all_reduce(reduced);
  rank.all_gather(in, gathered);
  rank.reduce_scatter(in, scattered);
  side.sync();
  trial.same("all_reduce of one", side.read(reduced), x);
  trial.same("all_gather of one", side.read(gathered), x);
  trial.same("reduce_scatter of one", side.read(scattered), x);
}

std::shared_ptr<device::Device> second_device(const Target& target, DType activation) {
  std::uint32_t count = 0;
  AbiCall call;
  call.check(target.plugin.tables->driver->count(call.context(), &count), "count");
  if (count < 2) throw Skipped{"the plugin has one device here"};
  Target other = target;
  other.index = (target.index + 1) % count;
  auto device = other.open();
  if (!device::contains(device->caps().activation_types, activation)) {
    throw Skipped{fmt::format("{} has no activations in {}", device->name(), dtype_name(activation))};
  }
  return device;
}

// Runs work(rank) for both ranks, each on its thread.
template <class Work>
void as_pair(Trial& trial, const Target& target, Work&& work) {
  const auto other = second_device(target, trial.activation());
  Side side(other, Side::Role::kSubject, trial.activation());
  Side* const sides[] = {&trial.subject, &side};
  const std::vector<std::byte> id = new_group(trial.subject.device());
  std::exception_ptr failures[2];
  const auto run = [&](std::uint32_t number) {
    try {
      Rank rank(*sides[number], id, number, 2);
      work(number, rank);
      rank.side().sync();
      rank.side().check_guards();
    } catch (...) {
      failures[number] = std::current_exception();
    }
  };
  std::thread thread(run, 1u);
  run(0);
  thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// What a rank's part of a case has left, to be judged when both are done.
struct Results {
  Array of[2];
};

void try_all_reduce(Trial& trial, const Target& target) {
  const Array x[] = {trial.draw({3, 65}), trial.draw({3, 65})};
  Results once, twice;
  as_pair(trial, target, [&](std::uint32_t rank, Rank& mine) {
    Side& side = mine.side();
    const bp_tensor one = side.input(x[rank]), two = side.input(x[rank]);
    side.changes(one);
    side.changes(two);
    mine.all_reduce(one);
    mine.all_reduce(two);
    mine.all_reduce(two);  // without waiting for the one before
    side.sync();
    once.of[rank] = side.read(one);
    twice.of[rank] = side.read(two);
  });
  const Sum sum = sum_of(trial.activation(), x[0], x[1]);
  Sum doubled = sum;
  for (std::size_t i = 0; i < sum.exact.data.size(); ++i) doubled.exact.data[i] *= 2, doubled.bound.data[i] *= 4;
  for (int rank = 0; rank < 2; ++rank) {
    trial.compare(fmt::format("rank {}", rank), once.of[rank], sum.exact, sum.bound);
    trial.compare(fmt::format("rank {} after two", rank), twice.of[rank], doubled.exact, doubled.bound);
  }
  trial.same("rank 1, which must have the same bits as rank 0", once.of[1], once.of[0]);
}

void try_all_gather(Trial& trial, const Target& target) {
  const Array x[] = {trial.draw({3, 33}), trial.draw({3, 33})};
  Results results;
  as_pair(trial, target, [&](std::uint32_t rank, Rank& mine) {
    const bp_tensor in = mine.side().input(x[rank]), out = mine.side().output({6, 33});
    mine.all_gather(in, out);
    mine.side().sync();
    results.of[rank] = mine.side().read(out);
  });
  for (int rank = 0; rank < 2; ++rank) {
    trial.same(fmt::format("rank {}", rank), results.of[rank], joined(x[0], x[1]));
  }
}

void try_reduce_scatter(Trial& trial, const Target& target) {
  const Array x[] = {trial.draw({6, 33}), trial.draw({6, 33})};
  Results results;
  as_pair(trial, target, [&](std::uint32_t rank, Rank& mine) {
    const bp_tensor in = mine.side().input(x[rank]), out = mine.side().output({3, 33});
    mine.reduce_scatter(in, out);
    mine.side().sync();
    results.of[rank] = mine.side().read(out);
  });
  const Sum sum = sum_of(trial.activation(), x[0], x[1]);
  for (int rank = 0; rank < 2; ++rank) {
    trial.compare(fmt::format("rank {}", rank), results.of[rank], rows_of(sum.exact, 3 * rank, 3),
                  rows_of(sum.bound, 3 * rank, 3));
  }
}

// There, and back twice: messages keep their order.
void try_send(Trial& trial, const Target& target) {
  const Array there = trial.draw({5, 33}), first = trial.draw({2, 7}), second = trial.draw({2, 7});
  Array got[3];
  as_pair(trial, target, [&](std::uint32_t rank, Rank& mine) {
    Side& side = mine.side();
    if (rank == 0) {
      const bp_tensor one = side.output({2, 7}), two = side.output({2, 7});
      mine.send(side.input(there), 1);
      mine.receive(one, 1);
      mine.receive(two, 1);
      side.sync();
      got[1] = side.read(one);
      got[2] = side.read(two);
    } else {
      const bp_tensor out = side.output({5, 33});
      mine.receive(out, 0);
      mine.send(side.input(first), 0);
      mine.send(side.input(second), 0);
      side.sync();
      got[0] = side.read(out);
    }
  });
  trial.same("what rank 0 sent", got[0], there);
  trial.same("what rank 1 sent first", got[1], first);
  trial.same("what rank 1 sent then", got[2], second);
}

}  // namespace

void add_comm_cases(Suite& suite) {
  if (!has_comm(suite.device())) {
    suite.add("comm", [](Trial&) { throw Skipped{"the plugin has no comm table"}; });
    return;
  }
  suite.add_for_each_type("comm/alone", try_alone);
  const std::pair<const char*, void (*)(Trial&, const Target&)> pairs[] = {{"all_reduce", try_all_reduce},
                                                                           {"all_gather", try_all_gather},
                                                                           {"reduce_scatter", try_reduce_scatter},
                                                                           {"send", try_send}};
  for (const auto& [name, body] : pairs) {
    suite.add_for_each_type(fmt::format("comm/pair/{}", name),
                            [body = body, target = suite.target()](Trial& trial) { body(trial, target); });
  }
}

}  // namespace backplane::conformance

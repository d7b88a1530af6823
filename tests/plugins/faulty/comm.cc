// Collectives among devices of this process: a group's ranks meet on the threads of their streams.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "stream.h"

namespace faulty {
namespace {

using backplane::plugin::float_to_half;
using backplane::plugin::half_to_float;
using Bytes = std::vector<std::byte>;

constexpr std::chrono::seconds kPatience{60};  // for a rank that doesn't come

struct Group {
  explicit Group(std::uint32_t size) : world(size), parts(size) {}

  const std::uint32_t world;
  std::mutex mutex;
  std::condition_variable changed;
  std::uint32_t arrived = 0;
  std::uint64_t round = 0;
  std::vector<Bytes> parts, last;  // by rank; of the round that is under way, and of the one before
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Bytes>> messages;  // by from and to

  // What all ranks brought, once they are all here.
  std::vector<Bytes> meet(std::uint32_t rank, Bytes mine) {
    std::unique_lock lock(mutex);
    parts[rank] = std::move(mine);
    const std::uint64_t now = round;
    if (++arrived == world) {
      last = std::exchange(parts, std::vector<Bytes>(world));
      arrived = 0;
      ++round;
      changed.notify_all();
    }
    wait(lock, [&] { return round != now; });
    return last;
  }
  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, Ready ready) {
    if (!changed.wait_for(lock, kPatience, ready)) throw sdk::Failure(BP_INTERNAL, "a rank of the group didn't come");
  }
};

// Groups that not all ranks have joined yet, by id.
struct Lobby {
  std::mutex mutex;
  std::uint64_t last_id = 0;
  std::map<std::uint64_t, std::pair<std::shared_ptr<Group>, std::uint32_t>> waiting;
};
Lobby& lobby() {
  static Lobby instance;
  return instance;
}

struct Rank {
  std::shared_ptr<Group> group;
  std::uint32_t rank;
};
Rank& rank_of(bp_comm comm) { return *reinterpret_cast<Rank*>(comm); }

// ---- numbers

double read(bp_type type, const std::byte* at) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (type) {
    case BP_TYPE_F64:
      return as(double{});
    case BP_TYPE_F32:
      return as(float{});
    case BP_TYPE_F16:
      return half_to_float(as(std::uint16_t{}));
    default: {
      const std::uint32_t bits = std::uint32_t{as(std::uint16_t{})} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
  }
}

void write(bp_type type, double value, std::byte* at) {
  const auto put = [at](auto number) { std::memcpy(at, &number, sizeof(number)); };
  const auto single = static_cast<float>(value);
  switch (type) {
    case BP_TYPE_F64:
      return put(value);
    case BP_TYPE_F32:
      return put(single);
    case BP_TYPE_F16:
      return put(float_to_half(single));
    default: {
      std::uint32_t bits;
      std::memcpy(&bits, &single, sizeof(bits));
      return put(static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
    }
  }
}

void check(const bp_tensor& tensor) {
  if (!sdk::is_float(tensor.type)) sdk::refuse("collectives are for floating-point numbers");
  if (!sdk::is_contiguous(tensor)) sdk::refuse("collectives are for contiguous tensors");
}

Bytes contents(const bp_tensor& tensor) {
  const std::byte* from = address_of(tensor);
  return {from, from + *sdk::extent_bytes(tensor)};
}

void store(const bp_tensor& tensor, std::size_t offset, const std::byte* data, std::size_t bytes) {
  sdk::require(offset + bytes <= *sdk::extent_bytes(tensor), "more than the tensor holds");
  std::memcpy(address_of(tensor) + offset, data, bytes);
}

Bytes sum_of(bp_type type, const std::vector<Bytes>& parts, std::size_t count) {
  Bytes sum(parts.front().size());
  const std::size_t size = sdk::type_info(type).block_bytes;
  for (std::size_t at = 0; at < sum.size(); at += size) {
    double total = 0;
    for (std::size_t rank = 0; rank < count; ++rank) total += read(type, parts.at(rank).data() + at);
    write(type, total, sum.data() + at);
  }
  return sum;
}

// ---- the table

bp_status id_bytes(bp_device, bp_context, std::uint64_t* bytes) {
  *bytes = sizeof(std::uint64_t);
  return BP_OK;
}

bp_status unique_id(bp_device, bp_context context, void* id, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    sdk::require(bytes == sizeof(std::uint64_t), "an id of another length");
    const std::lock_guard lock(lobby().mutex);
    const std::uint64_t next = ++lobby().last_id;
    std::memcpy(id, &next, sizeof(next));
  });
}

bp_status create(bp_device, bp_context context, const void* id, std::uint64_t bytes, std::uint32_t rank,
                 std::uint32_t world, bp_comm* comm) {
  return sdk::guard(context, [&] {
    sdk::require(bytes == sizeof(std::uint64_t) && rank < world, "no such rank of a group");
    std::uint64_t number;
    std::memcpy(&number, id, sizeof(number));
    auto made = std::make_unique<Rank>();
    made->rank = rank;
    const std::lock_guard lock(lobby().mutex);
    auto& [group, joined] = lobby().waiting[number];
    if (!group) group = std::make_shared<Group>(world);
    made->group = group;
    if (++joined == world) lobby().waiting.erase(number);
    *comm = reinterpret_cast<bp_comm>(made.release());
  });
}

void destroy(bp_device, bp_comm comm) { delete &rank_of(comm); }

bp_status all_reduce(bp_device device, bp_stream stream, bp_context context, bp_comm comm, const bp_tensor* x) {
  return sdk::guard(context, [&] {
    check(*x);
    enqueue(stream, [&d = self(device), group = rank_of(comm).group, rank = rank_of(comm).rank, x = *x] {
      const std::vector<Bytes> parts = group->meet(rank, contents(x));
      const Bytes sum = sum_of(x.type, parts, parts.size() - (d.has("forgotten_rank") ? 1 : 0));
      store(x, 0, sum.data(), sum.size());
    });
  });
}

bp_status all_gather(bp_device device, bp_stream stream, bp_context context, bp_comm comm, const bp_tensor* x,
                     const bp_tensor* out) {
  return sdk::guard(context, [&] {
    check(*x);
    check(*out);
    enqueue(stream, [&d = self(device), group = rank_of(comm).group, rank = rank_of(comm).rank, x = *x, out = *out] {
      const std::vector<Bytes> parts = group->meet(rank, contents(x));
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::size_t place = d.has("gather_order") ? parts.size() - 1 - i : i;
        store(out, place * parts[i].size(), parts[i].data(), parts[i].size());
      }
    });
  });
}

bp_status reduce_scatter(bp_device device, bp_stream stream, bp_context context, bp_comm comm, const bp_tensor* x,
                         const bp_tensor* out) {
  return sdk::guard(context, [&] {
    check(*x);
    check(*out);
    enqueue(stream, [&d = self(device), group = rank_of(comm).group, rank = rank_of(comm).rank, x = *x, out = *out] {
      const std::vector<Bytes> parts = group->meet(rank, contents(x));
      const Bytes sum = sum_of(x.type, parts, parts.size());
      const std::size_t part = sum.size() / parts.size();
      store(out, 0, sum.data() + (d.has("scatter_part") ? 0 : rank * part), part);
    });
  });
}

bp_status send(bp_device, bp_stream stream, bp_context context, bp_comm comm, const bp_tensor* x,
               std::uint32_t to_rank) {
  return sdk::guard(context, [&] {
    check(*x);
    enqueue(stream, [group = rank_of(comm).group, rank = rank_of(comm).rank, to_rank, x = *x] {
      const std::lock_guard lock(group->mutex);
      group->messages[{rank, to_rank}].push_back(contents(x));
      group->changed.notify_all();
    });
  });
}

bp_status receive(bp_device device, bp_stream stream, bp_context context, bp_comm comm, const bp_tensor* out,
                  std::uint32_t from_rank) {
  return sdk::guard(context, [&] {
    check(*out);
    enqueue(stream, [&d = self(device), group = rank_of(comm).group, rank = rank_of(comm).rank, from_rank, out = *out] {
      std::unique_lock lock(group->mutex);
      std::deque<Bytes>& queue = group->messages[{from_rank, rank}];
      group->wait(lock, [&] { return !queue.empty(); });
      const Bytes message = std::move(queue.front());
      queue.pop_front();
      const std::size_t left_out = d.has("short_message") ? sdk::type_info(out.type).block_bytes : 0;
      store(out, 0, message.data(), message.size() - left_out);
    });
  });
}

}  // namespace

void fill_comm(bp_comm_table& table) {
  table = {0, id_bytes, unique_id, create, destroy, all_reduce, all_gather, reduce_scatter, send, receive};
}

}  // namespace faulty

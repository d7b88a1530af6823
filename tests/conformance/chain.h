// Lists of ops that feed one another, as a decoder has them, and what must come out: the exact values, and how far the
// arithmetic that the plugin declares for each op may take the last one from them.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "tests/conformance/paged.h"
#include "tests/conformance/weights.h"

namespace backplane::conformance {

// Ops in their order, to be run singly, recorded or compiled. All of it must be used on the side's own stream.
class OpList {
 public:
  explicit OpList(Side& side) : side_(side) {}

  // Asks and prepares. Throws Skipped where the plugin refuses the op, or wants it in another activation type than the
  // ones before it.
  template <class Args>
  void add(std::uint32_t code, Args args, std::uint64_t features = 0) {
    args.size = sizeof(args);
    agree([&] { return side_.ready(code, args, features); });
    entries_.back().args.resize(sizeof(args));
    std::memcpy(entries_.back().args.data(), &args, sizeof(args));
  }
  Side& side() const { return side_; }
  std::size_t size() const { return entries_.size(); }
  const bp_support& support(std::size_t op) const { return entries_[op].support; }
  // Throws Skipped naming an op that isn't declared safe to capture.
  void need_capture_safe() const;

  // Runs, or records, one after another. Argument structs are overwritten as soon as the call that was given them is
  // back, which is when a plugin may no longer look at them.
  void enqueue() const;
  // Calls use(ops, count, stride) with all of them, with the same fate of the argument structs.
  template <class Use>
  void with_ops(Use&& use) const {
    Spaced spaced(*this);
    use(spaced.ops.data() ? &spaced.ops.front().op : nullptr, std::uint64_t{spaced.ops.size()},
        std::uint64_t{sizeof(SpacedOp)});
  }

 private:
  struct Entry {
    Side::Ready op;
    bp_support support{};
    std::vector<std::byte> args;
  };
  // Farther apart than a bp_op is long, as a core with a later header would have them.
  struct SpacedOp {
    bp_op op;
    std::uint64_t later[3];
  };
  struct Spaced {
    explicit Spaced(const OpList& list);
    ~Spaced();
    std::vector<SpacedOp> ops;
    std::vector<std::vector<std::byte>> args;
  };
  void agree(const std::function<Side::Ready()>& ask);

  Side& side_;
  std::vector<Entry> entries_;
};

// x + down(silu(gate(n)) * up(n)) where n = norm(x): six ops, the results of which are all needed.
class FeedForward {
 public:
  FeedForward(Trial& trial, std::int64_t tokens);

  const OpList& list() const { return list_; }
  void set(const Array& x);
  Array draw() { return trial_.draw({tokens_, kWidth}); }
  // Of the x that was set last.
  void judge(const std::string& what);

 private:
  static constexpr std::int64_t kWidth = 48, kInner = 80;
  Trial& trial_;
  std::int64_t tokens_;
  Weight gate_, up_, down_;
  Array norm_, bias_, x_;
  bp_tensor in_{}, out_{};
  OpList list_;
};

// The arrays of a step in which sequences that `paged` describes decode one token: row b is the last token of the first
// `length` of one of them.
class DecodeArrays {
 public:
  struct Row {
    std::size_t sequence;
    std::int64_t length;
    std::int32_t rope_row;
    bool writes = true;  // false: its K and V go nowhere, and those that are there stay
  };
  DecodeArrays(const PagedStep& paged, const std::vector<Row>& rows);
  DecodeArrays(const DecodeArrays&) = delete;  // the step points into it
  DecodeArrays& operator=(const DecodeArrays&) = delete;

  const bp_step& step() const { return step_; }
  const std::vector<Row>& rows() const { return rows_; }
  // The host's copy; what the device holds stays.
  void overwrite();

 private:
  std::vector<Row> rows_;
  std::vector<std::int32_t> token_, pos_, q_start_, kv_len_, table_, rope_row_;
  std::vector<std::int64_t> slot_;
  bp_step step_{};
};

// q = silu(gate(n)) * up(n) where n = norm(x), rotated; K and V to the cache; attention of three sequences that decode.
// Seven ops, of which three look at the step descriptor.
class DecodeChain {
 public:
  DecodeChain(Trial& trial, Cache where);

  const OpList& list() const { return list_; }
  // The host's copy of the arrays that the list was made with, once it is recorded or compiled.
  void overwrite_host() { first_.overwrite(); }
  // Other inputs, and other rows: as many, of the sequences that `longest` has, and at most as long.
  void set(const std::vector<DecodeArrays::Row>& rows);
  static std::vector<DecodeArrays::Row> longest() { return {{0, 5, 0}, {1, 33, 1}, {2, 18, 0}}; }
  // After a run, of what was set last, and what the runs before it left in the cache. Each run is judged.
  void judge(const std::string& what);

 private:
  static constexpr std::int64_t kWidth = 48, kHeads = 4, kKvHeads = 2, kDim = 32;
  struct Inputs {
    Array x, k, v;
  };
  static CacheSpec cache_spec(const Trial& trial, Cache where);
  void make_list();
  Array expected_attention(const DecodeArrays& arrays, const Array& q, const Array& q_bound, Array& bound);

  Trial& trial_;
  PagedStep paged_;
  DecodeArrays first_;
  SideCache cache_;
  Weight gate_, up_;
  Array norm_, frequencies_, scales_, keys_, values_;  // the last two: what the cache must hold
  Inputs inputs_;
  std::unique_ptr<DecodeArrays> arrays_;  // the latest
  bp_tensor x_{}, k_{}, v_{}, out_{};
  const bp_step* step_ = nullptr;
  OpList list_;
};

}  // namespace backplane::conformance

// Runs a model's ops: each on the device the user chose where that can, else on the reference; stages bytes between
// them; keeps the ledger.
//
// A model calls the same ops (ops.h) in the same order in every step. plan() lets it do so twice without computing,
// with the smallest and the largest shapes, and asks each device once per op; from then on a step only looks up what
// was decided.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device/capture.h"
#include "core/device/kv_pool.h"
#include "core/device/ledger.h"
#include "core/device/step_buffer.h"
#include "core/device/storage.h"
#include "core/device/weight.h"

namespace backplane::device {

struct ExecutorOptions {
  FallbackPolicy policy = FallbackPolicy::kWarn;
  // Ops for which this returns false are treated as unsupported by the chosen device: for tests and for finding faults.
  std::function<bool(std::uint32_t code)> allow;
  bool capture = true;  // decode steps are recorded and launched, where the device and all its ops can be
  // Called while weights are brought onto the devices.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

inline constexpr std::uint32_t kNoLayer = UINT32_MAX;

// An activation tensor of an op that is being watched.
struct Seen {
  Tensor tensor;
  bool read = false, written = false;
};

struct Site;

// Sees each op of a step with its activations, on whatever device it runs: for taps and cross-checks. Between the two
// calls the op runs. Contents are read with tensor.storage->get_host; before() may also replace those of read tensors
// with put_host. A fused op is one op: to see its parts, turn it off with ExecutorOptions::allow.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void before(const Site& site, const std::vector<Seen>& activations) = 0;
  virtual void after(const Site& site, const std::vector<Seen>& activations) = 0;
};

// Of all ops of one code.
struct OpTime {
  std::uint64_t count = 0;
  double seconds = 0;
};
using OpTimes = std::map<std::uint32_t, OpTime>;  // by code

// Where in the model an op stands, for messages: layers.3.attention.q.
struct OpName {
  const char* role;
  std::uint32_t layer = kNoLayer;
};

// What planning decided about one op of the model.
struct Site {
  struct MatrixUse {
    bp_matrix* smallest = nullptr;
    bp_matrix* largest = nullptr;
    std::shared_ptr<Weight> weight;
    std::uint64_t use = 0;
    std::size_t form = 0;  // that the weight has on the op's slot
  };
  // An activation tensor, in the order of the Binder's calls: its largest view.
  struct Activation {
    Tensor largest;
    bool read = false, written = false;
  };
  struct KvUse {
    bp_kv* kv = nullptr;
    bp_tensor* k_pages = nullptr;
    bp_tensor* v_pages = nullptr;
    std::uint32_t layer = 0;
  };

  std::uint32_t code = 0;
  std::uint32_t layer = kNoLayer;
  std::string name;
  std::uint64_t features = 0;
  std::shared_ptr<void> smallest, largest;  // own the argument structs of the query
  std::vector<MatrixUse> matrices;
  std::vector<Activation> activations;
  std::vector<std::shared_ptr<Storage>> constants;
  std::vector<std::shared_ptr<Storage>> exact;  // tensors that are neither activations nor constants
  std::vector<KvUse> kv;                        // of the two argument structs
  bool fused = false;                           // decomposed when the chosen device lacks it
  bool skipped = false;                         // part of a fused op that runs as one
  std::size_t after_parts = 0;                  // fused: the site that follows its parts

  Slot home = 0;        // the device that the model wants it on
  bool native = false;  // runs there
  Slot slot = 0;        // where it does run
  bp_support support{};
  DType activation = DType::kNone;  // what the op takes, where it differs from the model's
  bp_prepared prepared = nullptr;
  std::string reason;            // why it isn't at home
  std::size_t kernel_place = 0;  // of Ledger::took
};

class Binder;

class Executor {
 public:
  // `reference` is the cpu plugin's device that runs what a chosen one can't; it may be among `chosen`. Activations
  // have the first device's type.
  Executor(Devices chosen, std::shared_ptr<Device> reference, ExecutorOptions options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const Devices& devices() const { return devices_; }
  Device& chosen() { return *devices_.front(); }  // the first one
  Device& reference() { return *devices_.back(); }
  DType activation_type() const { return devices_.front()->activation_type(); }
  DType parameter_type() const { return activation_type() == DType::kF64 ? DType::kF64 : DType::kF32; }

  // What a model is made of. Shapes are the largest; all live as long as the executor.
  Tensor scratch(std::string purpose, std::initializer_list<std::int64_t> shape, DType type = DType::kNone);
  Tensor parameter(const std::string& name, const StoredMatrix& values);  // a vector, in parameter_type()
  Tensor host_table(std::string purpose, DType type, std::initializer_list<std::int64_t> shape);
  std::shared_ptr<Weight> weight(WeightSource source) { return std::make_shared<Weight>(devices_, std::move(source)); }
  // homes: the slot of each layer.
  KvPool& create_kv(KvSpec spec, std::vector<Slot> homes);
  KvPool& kv() { return *kv_; }

  // While planning: the ops issued from here on belong on this device.
  void set_home(Slot home) { home_ = home; }

  // `ops` issues all ops of a step for the counts that step() then shows. Called once. Throws Error: kDevice when some
  // op runs nowhere, or, with kDeny, not on the chosen device; kCapacity when memory runs out. All memory of the steps
  // is taken here. An executor whose plan failed is of no use.
  void plan(const StepLimits& limits, const std::function<void()>& ops);

  // One step: begin_step, the ops, end_step. The step must outlive it. After a failure inside a step call abandon_step,
  // which waits until nothing reads the step any more and keeps what went wrong to itself; then the executor is usable
  // again, unless a device was lost. Ops given to issue() may be recorded, and in later steps of the same shape a
  // launch stands for them, so `ops` may only issue ops: no reading of results in between, and the same ops with the
  // same tensors in all steps with equal counts.
  // `variant` tells apart steps of equal counts whose ops differ.
  void begin_step(const sched::Step& step, bool may_capture = false, std::uint32_t variant = 0);
  void issue(const std::function<void()>& ops);  // after begin_step with may_capture
  void end_step();
  void abandon_step() noexcept;
  // In place of end_step: the step goes on while the caller does, who waits for an event of the device and keeps the
  // step until then. The next one may begin; a failure of either is both's.
  void leave_step();
  // Whether steps can be left: one device runs all ops, has events, and nobody watches the ops.
  bool can_leave_steps() const;
  // An op of the step, run or launched, has written to its tokens on the first device.
  void tokens_changed() { step_->tokens_changed(0); }

  // nullptr: nobody. It costs a synchronization and a copy of each op's activations.
  void watch(Observer* observer) { observer_ = observer; }

  // nullptr: nobody. Each op that a step runs is added, with the time until the device's call came back: where
  // synchronous(), that of its work. Meanwhile nothing is recorded or launched.
  void time_ops(OpTimes* times) { op_times_ = times; }
  // Whether an op is done when the device's call comes back: no slot has a stream.
  bool synchronous() const;

  // Counts of the step in progress, or of the planning pass.
  const bp_step& counts() const { return *counts_; }
  bool planning() const { return mode_ != Mode::kRun; }

  Ledger& ledger() { return ledger_; }
  const std::vector<Site>& sites() const { return sites_; }
  std::uint64_t weight_bytes() const { return weight_bytes_; }  // taken on devices, in-place weights not counted
  std::uint64_t scratch_bytes() const { return scratch_bytes_; }
  CaptureCounts captures() const { return captures_ ? captures_->counts() : CaptureCounts{}; }

  // For ops.cc: one op. `bind(Binder&, Args&)` fills the zeroed argument struct; the ABI's struct is its first member.
  template <class Args, class Bind>
  void op(std::uint32_t code, OpName name, Bind&& bind);
  // One fused op and, where it isn't supported, its parts.
  template <class Args, class Bind, class Parts>
  void fused(std::uint32_t code, OpName name, Bind&& bind, Parts&& parts);
  // The site of an op that only runs on its device of choice, or not at all: then Site::native is false.
  template <class Args, class Bind>
  void optional(std::uint32_t code, OpName name, Bind&& bind) {
    fused<Args>(code, name, bind, [] {});
  }
  // To run a stretch of ops again in the same step (blocks of rows): remember the place, go back to it.
  std::size_t cursor() const { return cursor_; }
  void seek(std::size_t cursor) { cursor_ = cursor; }

 private:
  friend class Binder;
  friend class Planner;
  enum class Mode { kSmallest, kLargest, kRun };

  template <class Args, class Bind>
  Site& visit(std::uint32_t code, OpName name, Bind& bind);
  template <class Args, class Bind>
  void run(Site& site, Bind& bind);
  Site& next_site(std::uint32_t code, OpName name);
  void bring_inputs();
  bool record(const std::function<void()>& ops);
  void execute(Site& site, const void* args, Binder& binder);
  void enter(Slot slot);
  // On a slot, from and to tensors that are there.
  void cast(Slot slot, const bp_tensor& from, const bp_tensor& to);
  void charge(const Site& writer, std::uint64_t staged);

  Devices devices_;
  ExecutorOptions options_;
  Ledger ledger_;
  Mode mode_ = Mode::kSmallest;
  std::vector<Site> sites_;
  std::size_t cursor_ = 0;
  Slot home_ = 0, last_slot_ = 0;
  Observer* observer_ = nullptr;
  OpTimes* op_times_ = nullptr;
  bp_step smallest_{}, largest_{};
  const bp_step* counts_ = &smallest_;
  const char* step_kind_ = "mixed";
  std::unique_ptr<StepBuffer> step_;
  std::unique_ptr<KvPool> kv_;
  std::vector<Buffer> workspaces_;  // by slot
  // For activation casts, by the tensor's place in its op: one op after another uses them.
  std::vector<std::shared_ptr<Storage>> temporaries_;
  std::uint64_t weight_bytes_ = 0, scratch_bytes_ = 0;
  bool one_device_ = false;                          // the first runs all ops, and has events
  bool records_variants_ = false;                    // optional ops can be recorded, too
  std::unique_ptr<Captures> captures_;               // nullptr: nothing is recorded
  std::vector<std::shared_ptr<Storage>> constants_;  // of all ops, where there are captures
  std::optional<CaptureKey> key_;                    // of the step, if it may be recorded
};

// Fills argument structs: shapes while planning, buffers on the op's slot in a step.
class Binder {
 public:
  explicit Binder(Executor& executor, Site& site) : executor_(executor), site_(site) {}

  // Activations: staged to the slot, cast where the op wants another type. What lies behind the end of an output in its
  // storage becomes undefined; inout keeps it.
  bp_tensor in(const Tensor& t);
  bp_tensor out(const Tensor& t);
  bp_tensor inout(const Tensor& t);
  // Inputs and outputs that are no activations: never cast.
  bp_tensor exact_in(const Tensor& t);
  bp_tensor exact_out(const Tensor& t);
  // Parameters and tables: staged, never cast.
  bp_tensor constant(const Tensor& t);
  void matrix(bp_matrix& at, const std::shared_ptr<Weight>& weight, std::uint64_t use);
  // `index`: the layer's number in the bp_kv, where there is one.
  void kv(std::uint32_t layer, bool writes, bp_kv& handle, bp_tensor& k_pages, bp_tensor& v_pages,
          std::uint32_t& index);

  const bp_step* step();
  bp_tensor token();
  bp_tensor pos();
  bp_tensor rope_row();
  bp_tensor out_row(std::uint32_t begin, std::uint32_t count);
  void feature(std::uint64_t bits) {
    if (planning()) site_.features |= bits;
  }
  bool planning() const { return executor_.planning(); }
  std::uint64_t staged() const { return staged_; }

 private:
  friend class Executor;
  enum class Access { kRead, kWrite, kUpdate };
  bp_tensor ids(std::uint32_t count);
  bp_tensor activation(const Tensor& t, Access access);
  bp_tensor exact(const Tensor& t, Access access);
  void note_activation(const Tensor& t, Access access);
  const Buffer& open(const Tensor& t, Access access);
  const Buffer& read(Storage& storage);

  Executor& executor_;
  Site& site_;
  std::uint64_t staged_ = 0;  // for a fallback to account for
  std::size_t activations_ = 0, matrices_ = 0;
  struct CastBack {
    bp_tensor from;  // the temporary that stands for
    Tensor to;       // this output
    Access access;
  };
  std::vector<CastBack> cast_back_;
  std::vector<Seen> seen_;  // while somebody watches
};

// A tensor of the same shape without gaps, of another plain type.
Tensor like(const Tensor& t, DType type);

template <class Args, class Bind>
Site& Executor::visit(std::uint32_t code, OpName name, Bind& bind) {
  Site& site = next_site(code, name);
  auto holder = std::make_shared<Args>();
  (mode_ == Mode::kSmallest ? site.smallest : site.largest) = holder;
  Binder binder(*this, site);
  bind(binder, *holder);
  return site;
}

template <class Args, class Bind>
void Executor::run(Site& site, Bind& bind) {
  using Clock = std::chrono::steady_clock;
  const auto start = site.native ? Clock::time_point{} : Clock::now();  // only a fallback's time is told
  enter(site.slot);
  Binder binder(*this, site);
  Args args{};
  bind(binder, args);
  execute(site, &args, binder);
  if (site.native) return;
  const std::chrono::duration<double> took = Clock::now() - start;
  ledger_.record(op_name(site.code), devices_[site.slot]->name(), step_kind_, site.reason, binder.staged(),
                 took.count());
}

template <class Args, class Bind>
void Executor::op(std::uint32_t code, OpName name, Bind&& bind) {
  if (planning()) {
    visit<Args>(code, name, bind);
  } else {
    run<Args>(next_site(code, name), bind);
  }
}

template <class Args, class Bind, class Parts>
void Executor::fused(std::uint32_t code, OpName name, Bind&& bind, Parts&& parts) {
  if (planning()) {
    const std::size_t index = cursor_;
    visit<Args>(code, name, bind).fused = true;
    parts();
    sites_[index].after_parts = cursor_;
    return;
  }
  Site& site = next_site(code, name);
  if (!site.native) return parts();
  run<Args>(site, bind);
  cursor_ = site.after_parts;
}

}  // namespace backplane::device

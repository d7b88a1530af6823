#include "core/device/executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/device/planner.h"

namespace backplane::device {

Executor::Executor(Devices chosen, std::shared_ptr<Device> reference, ExecutorOptions options)
    : devices_(std::move(chosen)), options_(std::move(options)) {
  // The reference is the last slot. Where it was chosen too, but not as the last, it stands there twice: slots are
  // places.
  if (reference && reference != devices_.back()) devices_.push_back(std::move(reference));
  workspaces_.resize(devices_.size());
  if (!this->reference().host_visible()) {
    throw Error(ErrorCode::kDevice, "the reference device must have host-visible memory", this->reference().name());
  }
}

Executor::~Executor() {
  abandon_step();
  for (Site& site : sites_) devices_[site.slot]->unprepare(site.prepared);
}

bool Executor::synchronous() const {
  return std::none_of(devices_.begin(), devices_.end(), [](const auto& device) { return device->stream() != nullptr; });
}

Tensor Executor::scratch(std::string purpose, std::initializer_list<std::int64_t> shape, DType type) {
  Tensor tensor = make_tensor(nullptr, type == DType::kNone ? activation_type() : type, shape);
  tensor.storage = std::make_shared<Storage>(devices_, std::max<std::uint64_t>(1, tensor.end()), std::move(purpose));
  scratch_bytes_ += tensor.end();
  return tensor;
}

Tensor Executor::parameter(const std::string& name, const StoredMatrix& values) {
  std::vector<std::byte> converted = convert(reference(), values, parameter_type());
  const auto count = static_cast<std::int64_t>(values.rows * values.columns);
  Tensor tensor = make_tensor(nullptr, parameter_type(), {count});
  tensor.storage = std::make_shared<Storage>(devices_, converted.size(), name);
  tensor.storage->set_host(std::move(converted));
  return tensor;
}

Tensor Executor::host_table(std::string purpose, DType type, std::initializer_list<std::int64_t> shape) {
  Tensor tensor = make_tensor(nullptr, type, shape);
  tensor.storage = std::make_shared<Storage>(devices_, std::max<std::uint64_t>(1, tensor.end()), std::move(purpose));
  tensor.storage->set_host(std::vector<std::byte>(tensor.storage->bytes()));
  return tensor;
}

KvPool& Executor::create_kv(KvSpec spec, std::vector<Slot> homes) {
  kv_ = std::make_unique<KvPool>(devices_, std::move(spec), std::move(homes));
  return *kv_;
}

void Executor::plan(const StepLimits& limits, const std::function<void()>& ops) {
  if (!sites_.empty()) throw Error(ErrorCode::kInternal, "an executor is planned once");
  StepLimits least = limits;
  least.tokens = least.sequences = least.rows = least.max_pages = 1;
  smallest_ = StepBuffer::counts(least, 1);
  // Both kinds of attention are planned for everything: a step may hold only decodes, or only prefill.
  largest_ = StepBuffer::counts(limits, limits.sequences);
  for (const Mode mode : {Mode::kSmallest, Mode::kLargest}) {
    mode_ = mode;
    counts_ = mode == Mode::kSmallest ? &smallest_ : &largest_;
    cursor_ = 0;
    home_ = 0;
    ops();
  }
  try {
    Planner(*this).run();
    step_ = std::make_unique<StepBuffer>(devices_, limits);
  } catch (...) {
    abandon_step();  // nothing is still under way when what was made goes away
    throw;
  }
  mode_ = Mode::kRun;
  const auto elsewhere = [](const Site& site) {
    return !site.skipped && (!site.fused || site.native) && (!site.native || site.slot != 0);
  };
  one_device_ = Event::available(*devices_.front()) && std::none_of(sites_.begin(), sites_.end(), elsewhere);
}

void Executor::begin_step(const sched::Step& step, bool may_capture, std::uint32_t variant) {
  if (planning()) throw Error(ErrorCode::kInternal, "a step before the plan");
  const bool decodes = step.n_decode == step.sequences() && step.tokens() == step.sequences() && step.tokens() > 0;
  key_.reset();
  const bool may_record = captures_ && (variant == 0 || records_variants_);
  if (may_capture && may_record && decodes && !observer_ && !op_times_) {
    key_ = CaptureKey{step.tokens(), step.rows(), step_->bucket(step.max_pages), variant};
  }
  step_->set(step, key_ ? key_->max_pages : 0);
  counts_ = step_->counts();
  step_kind_ = step.n_decode == step.sequences() ? "decode" : step.n_decode == 0 ? "prefill" : "mixed";
  cursor_ = 0;
  last_slot_ = 0;
}

// What recorded work finds in place although no op of it brings it there.
void Executor::bring_inputs() {
  std::uint64_t staged = 0;
  for (const auto& constant : constants_) constant->read(0, staged);
  step_->on(0);
}

// False where the plugin doesn't record it after all. Nothing has run then.
bool Executor::record(const std::function<void()>& ops) {
  if (!captures_->begin()) return false;
  try {
    ops();
  } catch (const DeviceLost&) {
    throw;
  } catch (const Error& error) {
    log(LogLevel::kWarning, "device", "steps are no longer recorded, each op is run on its own: {}", error.what());
    captures_->abandon();
    return false;
  }
  return captures_->end(*key_);
}

void Executor::issue(const std::function<void()>& ops) {
  const Captures::Way way = key_ ? captures_->next(*key_) : Captures::Way::kRun;
  if (way == Captures::Way::kRun) return ops();
  bring_inputs();
  if (way == Captures::Way::kRecord && !record(ops)) {
    cursor_ = 0;
    return ops();
  }
  captures_->launch(*key_);
  cursor_ = sites_.size();
}

void Executor::end_step() {
  for (const auto& device : devices_) device->sync();
  leave_step();
}

void Executor::leave_step() {
  if (cursor_ != sites_.size()) {
    throw Error(ErrorCode::kInternal, fmt::format("a step issued {} ops of {} planned", cursor_, sites_.size()));
  }
}

bool Executor::can_leave_steps() const { return one_device_ && !observer_ && !op_times_; }

void Executor::abandon_step() noexcept {
  if (captures_) captures_->abandon();
  for (const auto& device : devices_) device->recover();
  if (step_) step_->forget();
  if (captures_) captures_->clear();  // they belong to a stream that may be another now
}

Site& Executor::next_site(std::uint32_t code, OpName name) {
  if (mode_ == Mode::kSmallest) {
    Site site;
    site.code = code;
    site.layer = name.layer;
    site.home = home_;
    site.name = name.layer == kNoLayer ? name.role : fmt::format("layers.{}.{}", name.layer, name.role);
    sites_.push_back(std::move(site));
    cursor_ = sites_.size();
    return sites_.back();
  }
  if (cursor_ >= sites_.size() || sites_[cursor_].code != code) {
    throw Error(ErrorCode::kInternal, fmt::format("op {} was not planned here", op_name(code)), name.role);
  }
  return sites_[cursor_++];
}

void Executor::enter(Slot slot) {
  // The devices may share memory: what the last one enqueued must be done before another reads or overwrites it.
  if (slot != last_slot_) devices_[last_slot_]->sync();
  last_slot_ = slot;
}

void Executor::execute(Site& site, const void* args, Binder& binder) {
  bp_op op{};
  op.size = sizeof(op);
  op.code = site.code;
  op.layer = site.layer;
  op.args = args;
  op.prepared = site.prepared;
  if (site.support.workspace_bytes) {
    op.workspace = workspaces_[site.slot].handle();
    op.workspace_bytes = site.support.workspace_bytes;
  }
  op.name = site.name.c_str();
  if (observer_) {
    devices_[site.slot]->sync();
    observer_->before(site, binder.seen_);
  }
  const auto start = op_times_ ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
  if (const char* kernel = devices_[site.slot]->run(op)) {
    ledger_.took(site.code, devices_[site.slot]->name(), step_kind_, kernel, counts_->tokens, site.kernel_place);
  }
  for (const auto& back : binder.cast_back_) {
    const Buffer& buffer = binder.open(back.to, back.access);
    cast(site.slot, back.from, back.to.abi(buffer.handle()));
  }
  if (op_times_) {
    OpTime& time = (*op_times_)[site.code];
    ++time.count;
    time.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (observer_) {
    devices_[site.slot]->sync();
    observer_->after(site, binder.seen_);
  }
}

// Planning has made sure that the slot can cast, and that the workspace is large enough.
void Executor::cast(Slot slot, const bp_tensor& from, const bp_tensor& to) {
  bp_unary_args args{};
  args.size = sizeof(args);
  args.x = from;
  args.out = to;
  bp_op op{};
  op.size = sizeof(op);
  op.code = BP_OP_CAST;
  op.layer = kNoLayer;
  op.args = &args;
  op.workspace = workspaces_[slot].handle();
  op.workspace_bytes = workspaces_[slot] ? workspaces_[slot].bytes() : 0;
  op.name = "activation cast";
  devices_[slot]->run(op);
}

void Executor::charge(const Site& writer, std::uint64_t staged) {
  ledger_.add_bytes(op_name(writer.code), devices_[writer.slot]->name(), step_kind_, writer.reason, staged);
}

}  // namespace backplane::device

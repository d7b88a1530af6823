#include "core/device/executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/device/planner.h"

namespace backplane::device {

Executor::Executor(std::shared_ptr<Device> chosen, std::shared_ptr<Device> reference, ExecutorOptions options)
    : devices_{std::move(chosen)}, options_(std::move(options)) {
  if (reference && reference != devices_[0]) devices_.push_back(std::move(reference));
  workspaces_.resize(devices_.size());
  if (!this->reference().host_visible()) {
    throw Error(ErrorCode::kDevice, "the reference device must have host-visible memory", this->reference().name());
  }
}

Executor::~Executor() {
  abandon_step();
  for (Site& site : sites_) devices_[site.slot]->unprepare(site.prepared);
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

KvPool& Executor::create_kv(KvSpec spec) {
  kv_ = std::make_unique<KvPool>(devices_, std::move(spec));
  return *kv_;
}

void Executor::plan(const StepLimits& limits, const std::function<void()>& ops) {
  StepLimits least = limits;
  least.tokens = least.sequences = least.rows = least.max_pages = 1;
  smallest_ = StepBuffer::counts(least, 1);
  // Both kinds of attention are planned for everything: a step may hold only decodes, or only prefill.
  largest_ = StepBuffer::counts(limits, limits.sequences);
  for (const Mode mode : {Mode::kSmallest, Mode::kLargest}) {
    mode_ = mode;
    counts_ = mode == Mode::kSmallest ? &smallest_ : &largest_;
    cursor_ = 0;
    ops();
  }
  Planner(*this).run();
  step_ = std::make_unique<StepBuffer>(devices_, limits);
  mode_ = Mode::kRun;
}

void Executor::begin_step(const sched::Step& step) {
  step_->set(step);
  counts_ = step_->on(devices_.size() - 1);
  step_kind_ = step.n_decode == step.sequences() ? "decode" : step.n_decode == 0 ? "prefill" : "mixed";
  cursor_ = 0;
  last_slot_ = 0;
}

void Executor::end_step() {
  devices_[0]->sync();
  if (cursor_ != sites_.size()) {
    throw Error(ErrorCode::kInternal, fmt::format("a step issued {} ops of {} planned", cursor_, sites_.size()));
  }
}

void Executor::abandon_step() noexcept {
  for (const auto& device : devices_) {
    try {
      device->sync();
    } catch (const std::exception&) {  // the failure that led here is the one to report
    }
  }
}

Site& Executor::next_site(std::uint32_t code, OpName name) {
  if (mode_ == Mode::kSmallest) {
    Site site;
    site.code = code;
    site.layer = name.layer;
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
  devices_[site.slot]->run(op);
  for (const auto& back : binder.cast_back_) cast(site.slot, back.from, back.to, back.keep_rest, binder.staged_);
}

void Executor::cast(Slot slot, const Tensor& from, const Tensor& to, bool keep_rest, std::uint64_t& staged) {
  bp_unary_args query_args{};
  query_args.size = sizeof(query_args);
  query_args.x = from.abi(nullptr);
  query_args.out = to.abi(nullptr);
  bp_op_query query{};
  query.size = sizeof(query);
  query.code = BP_OP_CAST;
  query.layer = kNoLayer;
  query.smallest = query.largest = &query_args;
  query.features = from.row_contiguous() && to.row_contiguous() ? 0 : BP_FEATURE_STRIDED;
  const std::vector<Slot> order =
      slot + 1 == devices_.size() ? std::vector<Slot>{slot} : std::vector<Slot>{slot, devices_.size() - 1};
  for (const Slot where : order) {
    const Support support = devices_[where]->supports(query);
    if (!support.yes) continue;
    enter(where);
    bp_unary_args args = query_args;
    args.x.buffer = from.storage->read(where, staged).handle();
    args.out.buffer = (keep_rest ? to.storage->update(where, staged) : to.storage->write(where, to.end())).handle();
    bp_op op{};
    op.size = sizeof(op);
    op.code = BP_OP_CAST;
    op.layer = kNoLayer;
    op.args = &args;
    op.name = "activation cast";
    Buffer workspace;
    if (support.answer.workspace_bytes) {
      workspace = devices_[where]->alloc(support.answer.workspace_bytes, "a cast");
      op.workspace = workspace.handle();
      op.workspace_bytes = support.answer.workspace_bytes;
    }
    devices_[where]->run(op);
    if (workspace) devices_[where]->sync();
    enter(slot);
    return;
  }
  throw Error(ErrorCode::kDevice, "no device can cast activations", devices_[slot]->name());
}

void Binder::note_strides(const Tensor& t) {
  if (!t.row_contiguous()) feature(BP_FEATURE_STRIDED);
}

bool Binder::needs_cast(const Tensor& t) const {
  return site_.activation != DType::kNone && site_.activation != t.type && is_float(t.type);
}

Tensor Binder::temporary(const Tensor& like) {
  Tensor t = like;
  const std::int64_t size = dtype_info(site_.activation).block_bytes;
  t.type = site_.activation;
  t.offset = 0;
  std::int64_t stride = size;
  for (std::uint32_t d = t.rank; d-- > 0;) {
    t.stride[d] = stride;
    stride *= t.shape[d];
  }
  const std::size_t index = temporaries_++;
  if (site_.temporaries.size() <= index) site_.temporaries.resize(index + 1);
  auto& storage = site_.temporaries[index];
  if (!storage || storage->bytes() < t.end()) {
    storage = std::make_shared<Storage>(executor_.devices_, std::max<std::uint64_t>(1, t.end()), "an activation cast");
  }
  t.storage = storage;
  return t;
}

bp_tensor Binder::in(const Tensor& t) {
  if (!t.present()) return bp_tensor{};
  note_strides(t);
  if (planning()) return t.abi(nullptr);
  if (needs_cast(t)) {
    const Tensor temp = temporary(t);
    executor_.cast(site_.slot, t, temp, false, staged_);
    return temp.abi(temp.storage->read(site_.slot, staged_).handle());
  }
  return t.abi(t.storage->read(site_.slot, staged_).handle());
}

bp_tensor Binder::out(const Tensor& t) {
  if (!t.present()) return bp_tensor{};
  note_strides(t);
  if (planning()) return t.abi(nullptr);
  if (needs_cast(t)) {
    const Tensor temp = temporary(t);
    cast_back_.push_back({temp, t, false});
    return temp.abi(temp.storage->write(site_.slot, temp.end()).handle());
  }
  return t.abi(t.storage->write(site_.slot, t.end()).handle());
}

bp_tensor Binder::inout(const Tensor& t) {
  if (!t.present()) return bp_tensor{};
  note_strides(t);
  if (planning()) return t.abi(nullptr);
  if (needs_cast(t)) {
    const Tensor temp = temporary(t);
    executor_.cast(site_.slot, t, temp, false, staged_);
    cast_back_.push_back({temp, t, true});
    return temp.abi(temp.storage->update(site_.slot, staged_).handle());
  }
  return t.abi(t.storage->update(site_.slot, staged_).handle());
}

bp_tensor Binder::constant(const Tensor& t) {
  if (!t.present()) return bp_tensor{};
  return t.abi(planning() ? nullptr : t.storage->read(site_.slot, staged_).handle());
}

void Binder::matrix(bp_matrix& at, const std::shared_ptr<Weight>& weight, std::uint64_t use) {
  if (!planning()) {
    at = weight->matrix(site_.slot);
    return;
  }
  if (executor_.mode_ == Executor::Mode::kSmallest) {
    weight->add_use(use);
    site_.matrices.push_back({&at, nullptr, weight});
    return;
  }
  for (Site::MatrixUse& known : site_.matrices) {
    if (!known.largest) {
      known.largest = &at;
      return;
    }
  }
}

void Binder::kv(std::uint32_t layer, bool writes, bp_kv& handle, bp_tensor& k_pages, bp_tensor& v_pages) {
  KvPool& pool = *executor_.kv_;
  if (planning()) {
    site_.kv.push_back({&handle, &k_pages, &v_pages, layer});
    return;
  }
  if (pool.owned()) {
    handle = pool.handle();
    return;
  }
  const Tensor k = pool.k_pages(layer), v = pool.v_pages(layer);
  const Buffer& buffer = writes ? k.storage->update(site_.slot, staged_) : k.storage->read(site_.slot, staged_);
  k_pages = k.abi(buffer.handle());
  v_pages = v.abi(buffer.handle());
}

const bp_step* Binder::step() { return planning() ? executor_.counts_ : executor_.step_->on(site_.slot); }

bp_tensor Binder::ids(std::uint32_t count) {
  return make_tensor(nullptr, DType::kI32, {static_cast<std::int64_t>(count)}).abi(nullptr);
}
bp_tensor Binder::token() { return planning() ? ids(executor_.counts_->tokens) : executor_.step_->token(site_.slot); }
bp_tensor Binder::pos() { return planning() ? ids(executor_.counts_->tokens) : executor_.step_->pos(site_.slot); }
bp_tensor Binder::rope_row() {
  return planning() ? ids(executor_.counts_->tokens) : executor_.step_->rope_row(site_.slot);
}
bp_tensor Binder::out_row(std::uint32_t begin, std::uint32_t count) {
  return planning() ? ids(count) : executor_.step_->out_row(site_.slot, begin, count);
}

}  // namespace backplane::device

// How the tensors of a model become the arguments of one op.
#include <algorithm>

#include "core/device/executor.h"

namespace backplane::device {

Tensor like(const Tensor& t, DType type) {
  Tensor plain = t;
  plain.type = type;
  plain.offset = 0;
  std::int64_t stride = dtype_info(type).block_bytes;
  for (std::uint32_t d = t.rank; d-- > 0;) {
    plain.stride[d] = stride;
    stride *= t.shape[d];
  }
  return plain;
}

void Binder::note_activation(const Tensor& t, Access access) {
  if (!t.row_contiguous()) feature(BP_FEATURE_STRIDED);
  if (executor_.mode_ != Executor::Mode::kLargest) return;
  site_.activations.push_back({t, access != Access::kWrite, access != Access::kRead});
}

// What had to be copied is on the account of the fallback that runs, or, back on the chosen device, of the fallback
// whose result it is.
const Buffer& Binder::read(Storage& storage) {
  std::uint64_t copied = 0;
  const Buffer& buffer = storage.read(site_.slot, copied);
  if (copied != 0 && site_.native && storage.writer() != Storage::kNobody) {
    executor_.charge(executor_.sites_[storage.writer()], copied);
  }
  staged_ += copied;
  return buffer;
}

const Buffer& Binder::open(const Tensor& t, Access access) {
  Storage& storage = *t.storage;
  if (access == Access::kRead) return read(storage);
  const bool from_start = t.offset == 0 && t.row_contiguous();  // else it must not lose what lies before or between
  if (access == Access::kUpdate || !from_start) read(storage);
  storage.set_writer(static_cast<std::size_t>(&site_ - executor_.sites_.data()));
  if (access == Access::kWrite && from_start) return storage.write(site_.slot, t.end());
  return storage.update(site_.slot, t.end(), staged_);
}

bp_tensor Binder::activation(const Tensor& t, Access access) {
  if (!t.present()) return bp_tensor{};
  if (planning()) {
    note_activation(t, access);
    return t.abi(nullptr);
  }
  const std::size_t place = activations_++;
  if (executor_.observer_) seen_.push_back({t, access != Access::kWrite, access != Access::kRead});
  if (site_.activation == DType::kNone || site_.activation == t.type) return t.abi(open(t, access).handle());
  Tensor stand_in = like(t, site_.activation);
  stand_in.storage = executor_.temporaries_[place];
  if (access != Access::kWrite) {
    const bp_tensor source = t.abi(open(t, Access::kRead).handle());
    const bp_tensor target = stand_in.abi(stand_in.storage->write(site_.slot, stand_in.end()).handle());
    executor_.cast(site_.slot, source, target);
  }
  const bp_tensor bound = stand_in.abi(stand_in.storage->write(site_.slot, stand_in.end()).handle());
  if (access != Access::kRead) cast_back_.push_back({bound, t, access});
  return bound;
}

bp_tensor Binder::in(const Tensor& t) { return activation(t, Access::kRead); }
bp_tensor Binder::out(const Tensor& t) { return activation(t, Access::kWrite); }
bp_tensor Binder::inout(const Tensor& t) { return activation(t, Access::kUpdate); }

bp_tensor Binder::exact(const Tensor& t, Access access) {
  if (planning()) {
    if (executor_.mode_ == Executor::Mode::kLargest) site_.exact.push_back(t.storage);
    return t.abi(nullptr);
  }
  return t.abi(open(t, access).handle());
}

bp_tensor Binder::exact_in(const Tensor& t) { return exact(t, Access::kRead); }
bp_tensor Binder::exact_out(const Tensor& t) { return exact(t, Access::kWrite); }

bp_tensor Binder::constant(const Tensor& t) {
  if (!t.present()) return bp_tensor{};
  if (!planning()) return t.abi(read(*t.storage).handle());
  if (executor_.mode_ == Executor::Mode::kLargest) site_.constants.push_back(t.storage);
  return t.abi(nullptr);
}

void Binder::matrix(bp_matrix& at, const std::shared_ptr<Weight>& weight, std::uint64_t use) {
  if (!planning()) {
    at = weight->matrix(site_.slot, site_.matrices[matrices_++].form);
    return;
  }
  if (executor_.mode_ == Executor::Mode::kSmallest) {
    weight->add_use(use);
    site_.matrices.push_back({&at, nullptr, weight, use, 0});
    return;
  }
  for (Site::MatrixUse& known : site_.matrices) {
    if (!known.largest) {
      known.largest = &at;
      return;
    }
  }
}

void Binder::kv(std::uint32_t layer, bool writes, bp_kv& handle, bp_tensor& k_pages, bp_tensor& v_pages,
                std::uint32_t& index) {
  KvPool& pool = *executor_.kv_;
  index = pool.index(layer);
  if (planning()) {
    site_.kv.push_back({&handle, &k_pages, &v_pages, layer});
    return;
  }
  if (pool.owned(layer)) {
    handle = pool.handle(layer);
    return;
  }
  const Tensor k = pool.k_pages(layer), v = pool.v_pages(layer);
  const Buffer& buffer = writes ? k.storage->update(site_.slot, 0, staged_) : k.storage->read(site_.slot, staged_);
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

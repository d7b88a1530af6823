#include "core/device/storage.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace backplane::device {

Storage::Storage(const Devices& devices, std::uint64_t bytes, std::string purpose, Home home)
    : devices_(&devices), bytes_(bytes), purpose_(std::move(purpose)), home_(home), copies_(devices.size()) {}

namespace {

// The slot whose memory `slot` works on: the first whose memory the host sees, if both do.
Slot first_visible(const Devices& devices, Slot slot) {
  if (!devices[slot]->host_visible()) return slot;
  Slot first = 0;
  while (!devices[first]->host_visible()) ++first;
  return first;
}

}  // namespace

void Storage::allocate(Slot slot) {
  if (!copies_[slot].buffer) make_copy(slot);
}

void Storage::make_copy(Slot slot) {
  Copy& copy = copies_[slot];
  const Slot reference = devices_->size() - 1;
  const Slot owner = home_ == Home::kHost ? reference : first_visible(*devices_, slot);
  if (slot != owner) {
    allocate(owner);
    const Copy& whole = copies_[owner];
    if (auto alias = (*devices_)[slot]->import_host({whole.buffer.host(), bytes_}, true)) {
      copy.buffer = std::move(*alias);
      copy.memory = whole.memory;
      return;
    }
    if (home_ == Home::kHost) {
      throw Error(ErrorCode::kInternal, "an op was planned on host memory that its device can't reach",
                  (*devices_)[slot]->name());
    }
  }
  copy.buffer = (*devices_)[slot]->alloc(bytes_, purpose_);
  copy.memory = valid_.size();
  valid_.push_back(0);
}

bool Storage::reachable(Slot slot) {
  if (home_ == Home::kDevice || slot == devices_->size() - 1) return true;
  if (copies_[slot].buffer) return true;
  allocate(devices_->size() - 1);
  const Copy& whole = copies_.back();
  if (!whole.buffer.host()) return false;
  auto alias = (*devices_)[slot]->import_host({whole.buffer.host(), bytes_}, true);
  if (!alias) return false;
  copies_[slot].buffer = std::move(*alias);
  copies_[slot].memory = whole.memory;
  return true;
}

void Storage::stage(Slot slot, std::uint64_t& staged) {
  if (copies_[slot].buffer && valid_[copies_[slot].memory]) return;  // as for nearly every op of every step
  allocate(slot);
  Copy& copy = copies_[slot];
  if (valid_[copy.memory]) return;
  if (host_valid_) {
    (*devices_)[slot]->upload(copy.buffer, 0, host_);
    valid_[copy.memory] = 1;
    return;
  }
  for (Slot from = 0; from < copies_.size(); ++from) {
    if (!copies_[from].buffer || !valid_[copies_[from].memory] || used_ == 0) continue;
    Device& source = *(*devices_)[from];
    Device& target = *(*devices_)[slot];
    if (std::byte* host = copies_[from].buffer.host()) {
      source.sync();
      target.upload(copy.buffer, 0, {host, used_});
    } else if (std::byte* destination = copy.buffer.host()) {
      target.sync();
      source.download(copies_[from].buffer, 0, {destination, used_});
    } else {
      std::vector<std::byte> bounce(used_);
      source.download(copies_[from].buffer, 0, bounce);
      target.upload(copy.buffer, 0, bounce);
    }
    staged += used_;
    break;
  }
  valid_[copy.memory] = 1;  // nowhere valid: never written, so any contents will do
}

const Buffer& Storage::read(Slot slot, std::uint64_t& staged) {
  stage(slot, staged);
  return copies_[slot].buffer;
}

void Storage::only_valid(Slot slot) {
  std::fill(valid_.begin(), valid_.end(), 0);
  valid_[copies_[slot].memory] = 1;
  host_valid_ = false;
}

const Buffer& Storage::write(Slot slot, std::uint64_t end) {
  allocate(slot);
  only_valid(slot);
  used_ = end;
  return copies_[slot].buffer;
}

const Buffer& Storage::update(Slot slot, std::uint64_t end, std::uint64_t& staged) {
  stage(slot, staged);
  only_valid(slot);
  used_ = std::max(used_, end);
  return copies_[slot].buffer;
}

void Storage::put_host(std::uint64_t offset, std::span<const std::byte> data) {
  if (offset > bytes_ || data.size() > bytes_ - offset)
    throw Error(ErrorCode::kInternal, "write past the end", purpose_);
  if (host_valid_) std::memcpy(host_.data() + offset, data.data(), data.size());
  std::vector<char> done(valid_.size());
  for (Slot slot = 0; slot < copies_.size(); ++slot) {
    const Copy& copy = copies_[slot];
    if (!copy.buffer || done[copy.memory] || (home_ == Home::kDevice && !valid_[copy.memory])) continue;
    (*devices_)[slot]->upload(copy.buffer, offset, data);
    done[copy.memory] = valid_[copy.memory] = 1;
  }
  used_ = std::max(used_, offset + data.size());
}

void Storage::set_host(std::vector<std::byte> contents) {
  if (contents.size() != bytes_) throw Error(ErrorCode::kInternal, "contents of the wrong size", purpose_);
  host_ = std::move(contents);
  host_valid_ = true;
  used_ = bytes_;
  writer_ = kNobody;
  std::fill(valid_.begin(), valid_.end(), 0);
}

void Storage::get_host(std::uint64_t offset, std::span<std::byte> out) {
  if (offset > bytes_ || out.size() > bytes_ - offset) throw Error(ErrorCode::kInternal, "read past the end", purpose_);
  if (host_valid_) {
    std::memcpy(out.data(), host_.data() + offset, out.size());
    return;
  }
  for (Slot slot = 0; slot < copies_.size(); ++slot) {
    if (!copies_[slot].buffer || !valid_[copies_[slot].memory]) continue;
    for (const auto& device : *devices_) device->sync();  // another one may have written the memory they share
    (*devices_)[slot]->download(copies_[slot].buffer, offset, out);
    return;
  }
  throw Error(ErrorCode::kInternal, "read before it was written", purpose_);
}

std::uint64_t Tensor::end() const {
  const DTypeInfo& info = dtype_info(type);
  std::uint64_t last_byte = offset;
  for (std::uint32_t d = 0; d < rank; ++d) {
    if (shape[d] == 0) return offset;
    const bool innermost = d + 1 == rank;
    const std::int64_t steps = innermost ? (shape[d] - 1) / info.block_elements : shape[d] - 1;
    last_byte += static_cast<std::uint64_t>(steps * stride[d]);
  }
  return last_byte + info.block_bytes;
}

bool Tensor::row_contiguous() const {
  const DTypeInfo& info = dtype_info(type);
  if (stride[rank - 1] != info.block_bytes) return false;
  std::int64_t expected = static_cast<std::int64_t>(last() / info.block_elements * info.block_bytes);
  for (std::uint32_t d = rank - 1; d-- > 0;) {
    if (shape[d] > 1 && stride[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t count) const {
  Tensor part = *this;
  part.offset += static_cast<std::uint64_t>(begin * stride[0]);
  part.shape[0] = count;
  return part;
}

Tensor Tensor::columns(std::int64_t begin, std::int64_t count) const {
  Tensor part = *this;
  part.offset += static_cast<std::uint64_t>(begin * stride[rank - 1]);
  part.shape[rank - 1] = count;
  return part;
}

Tensor Tensor::heads(std::int64_t count) const {
  Tensor split = *this;
  split.rank = 3;
  split.shape = {shape[0], count, shape[1] / count, 1};
  split.stride = {stride[0], split.shape[2] * stride[1], stride[1], 0};
  return split;
}

bp_tensor Tensor::abi(bp_buffer buffer) const {
  bp_tensor out{};
  out.buffer = buffer;
  out.offset = offset;
  out.type = static_cast<bp_type>(type);
  out.rank = rank;
  for (int d = 0; d < 4; ++d) {
    out.shape[d] = shape[d];
    out.stride[d] = stride[d];
  }
  return out;
}

Tensor make_tensor(std::shared_ptr<Storage> storage, DType type, std::initializer_list<std::int64_t> shape,
                   std::uint64_t offset) {
  Tensor tensor;
  tensor.storage = std::move(storage);
  tensor.offset = offset;
  tensor.type = type;
  tensor.rank = static_cast<std::uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), tensor.shape.begin());
  const DTypeInfo& info = dtype_info(type);
  std::int64_t stride = info.block_bytes;
  for (std::uint32_t d = tensor.rank; d-- > 0;) {
    tensor.stride[d] = stride;
    stride = d + 1 == tensor.rank ? tensor.shape[d] / info.block_elements * info.block_bytes : stride * tensor.shape[d];
  }
  return tensor;
}

}  // namespace backplane::device

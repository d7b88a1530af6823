#include "memory.h"

#include <cstring>
#include <new>

#include "numbers.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

constexpr std::uint64_t kMost = std::uint64_t{1} << 36;

std::byte key(std::uint64_t place) { return static_cast<std::byte>((place * 37 + 0xA5) & 0xFF); }

// Handles are no addresses: dereferencing one ends the process.
std::uint64_t number_of(bp_buffer buffer) { return reinterpret_cast<std::uintptr_t>(buffer) ^ 0xF00D000000000001; }

template <class Visit>
void for_each_element(const bp_tensor& t, Visit&& visit) {
  for (std::int64_t a = 0; a < t.shape[0]; ++a) {
    for (std::int64_t b = 0; b < t.shape[1]; ++b) {
      for (std::int64_t c = 0; c < t.shape[2]; ++c) {
        for (std::int64_t d = 0; d < t.shape[3]; ++d) {
          visit(static_cast<std::uint64_t>(a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3]));
        }
      }
    }
  }
}

}  // namespace

void Scrambled::read(std::uint64_t offset, void* to, std::uint64_t count) const {
  sdk::require(offset <= size() && count <= size() - offset, "a read beyond the end of opaque memory");
  auto* out = static_cast<std::byte*>(to);
  if (count != 0 && plain_) std::memcpy(to, data_ + offset, count);
  for (std::uint64_t i = 0; i < count && !plain_; ++i) out[i] = data_[offset + i] ^ key(offset + i);
}

void Scrambled::write(std::uint64_t offset, const void* from, std::uint64_t count) {
  sdk::require(offset <= size() && count <= size() - offset, "a write beyond the end of opaque memory");
  const auto* in = static_cast<const std::byte*>(from);
  if (count != 0 && plain_) std::memcpy(data_ + offset, from, count);
  for (std::uint64_t i = 0; i < count && !plain_; ++i) data_[offset + i] = in[i] ^ key(offset + i);
}

bp_buffer Memory::add(Scrambled memory) {
  auto shared = std::make_shared<Scrambled>(std::move(memory));
  const std::lock_guard lock(mutex_);
  buffers_.emplace(++last_, std::move(shared));
  return reinterpret_cast<bp_buffer>(static_cast<std::uintptr_t>(last_ ^ 0xF00D000000000001));
}

bp_buffer Memory::alloc(std::uint64_t bytes, bool plain) {
  sdk::require(bytes > 0, "an allocation of no bytes");
  if (bytes > kMost) throw std::bad_alloc();
  return add(Scrambled(bytes, plain));
}

bp_buffer Memory::import(std::byte* memory, std::uint64_t bytes) { return add(Scrambled(memory, bytes)); }

void Memory::free(bp_buffer buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.erase(number_of(buffer));
}

std::uint64_t Memory::live() const {
  const std::lock_guard lock(mutex_);
  return buffers_.size();
}

std::shared_ptr<Scrambled> Memory::at(bp_buffer buffer) const {
  const std::lock_guard lock(mutex_);
  const auto it = buffers_.find(number_of(buffer));
  sdk::require(it != buffers_.end(), "a buffer that is not, or no longer, this device's");
  return it->second;
}

std::vector<double> Memory::load(const bp_tensor& tensor) const {
  std::vector<double> values;
  if (sdk::is_absent(tensor) || sdk::is_empty(tensor)) return values;
  const auto memory = at(tensor.buffer);
  const auto extent = sdk::extent_bytes(tensor);
  sdk::require(extent.has_value(), "a malformed tensor");
  std::vector<std::byte> bytes(*extent);
  memory->read(tensor.offset, bytes.data(), bytes.size());
  for_each_element(tensor, [&](std::uint64_t place) { values.push_back(decode(tensor.type, bytes.data() + place)); });
  return values;
}

void Memory::store(const bp_tensor& tensor, const std::vector<double>& values) {
  if (sdk::is_empty(tensor)) return;
  const auto memory = at(tensor.buffer);
  const auto extent = sdk::extent_bytes(tensor);
  sdk::require(extent && values.size() == *sdk::element_count(tensor), "a result of another shape than its tensor");
  std::vector<std::byte> bytes(*extent);
  memory->read(tensor.offset, bytes.data(), bytes.size());
  std::size_t i = 0;
  for_each_element(tensor, [&](std::uint64_t place) { encode(tensor.type, values[i++], bytes.data() + place); });
  memory->write(tensor.offset, bytes.data(), bytes.size());
}

}  // namespace opaque

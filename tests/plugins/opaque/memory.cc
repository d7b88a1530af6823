#include "memory.h"

#include <cstring>
#include <new>

#include "numbers.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

constexpr std::uint64_t kMost = std::uint64_t{1} << 36;

// Puts bytes [place, place + count) into disguise, or takes them out of it.
void disguise(std::uint64_t place, const std::byte* from, std::byte* to, std::uint64_t count) {
  auto key = static_cast<std::uint8_t>(place * 37 + 0xA5);
  for (std::uint64_t i = 0; i < count; ++i, key = static_cast<std::uint8_t>(key + 37)) to[i] = from[i] ^ std::byte{key};
}

// Handles are no addresses: dereferencing one ends the process.
std::uint64_t number_of(bp_buffer buffer) { return reinterpret_cast<std::uintptr_t>(buffer) ^ 0xF00D000000000001; }

// Where each element begins, or each block of a quantized type, from the tensor's first one.
template <class Visit>
void for_each_element(bp_tensor t, Visit&& visit) {
  t.shape[t.rank - 1] /= sdk::type_info(t.type).block_elements;
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
  if (count == 0) return;
  if (plain_) {
    std::memcpy(to, data_ + offset, count);
  } else {
    disguise(offset, data_ + offset, static_cast<std::byte*>(to), count);
  }
}

void Scrambled::write(std::uint64_t offset, const void* from, std::uint64_t count) {
  sdk::require(offset <= size() && count <= size() - offset, "a write beyond the end of opaque memory");
  if (count == 0) return;
  if (plain_) {
    std::memcpy(data_ + offset, from, count);
  } else {
    disguise(offset, static_cast<const std::byte*>(from), data_ + offset, count);
  }
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

// The bytes from a tensor's first element to the end of its last.
std::vector<std::byte> Memory::extent(const bp_tensor& tensor) const {
  const auto bytes = sdk::extent_bytes(tensor);
  sdk::require(bytes.has_value(), "a malformed tensor");
  std::vector<std::byte> out(*bytes);
  at(tensor.buffer)->read(tensor.offset, out.data(), out.size());
  return out;
}

std::vector<double> Memory::load(const bp_tensor& tensor) const {
  std::vector<double> values;
  if (sdk::is_absent(tensor) || sdk::is_empty(tensor)) return values;
  const std::vector<std::byte> bytes = extent(tensor);
  const auto info = sdk::type_info(tensor.type);
  values.resize(*sdk::element_count(tensor));
  double* out = values.data();
  for_each_element(tensor, [&](std::uint64_t place) {
    if (info.block_elements == 1) {
      *out++ = decode(tensor.type, bytes.data() + place);
    } else {
      decode_row(tensor.type, bytes.data() + place, info.block_elements, out);
      out += info.block_elements;
    }
  });
  return values;
}

void Memory::store(const bp_tensor& tensor, const std::vector<double>& values) {
  if (sdk::is_empty(tensor)) return;
  std::vector<std::byte> bytes = extent(tensor);
  sdk::require(values.size() == *sdk::element_count(tensor), "a result of another shape than its tensor");
  std::size_t i = 0;
  for_each_element(tensor, [&](std::uint64_t place) { encode(tensor.type, values[i++], bytes.data() + place); });
  at(tensor.buffer)->write(tensor.offset, bytes.data(), bytes.size());
}

void Memory::copy(const bp_tensor& from, const bp_tensor& to) {
  if (sdk::is_empty(to)) return;
  const std::vector<std::byte> source = extent(from);
  std::vector<std::byte> target = extent(to);
  sdk::require(from.type == to.type && sdk::element_count(from) == sdk::element_count(to),
               "a copy to another type or shape");
  std::vector<std::uint64_t> places;
  for_each_element(from, [&](std::uint64_t place) { places.push_back(place); });
  std::size_t i = 0;
  const std::size_t size = sdk::type_info(to.type).block_bytes;
  for_each_element(to,
                   [&](std::uint64_t place) { std::memcpy(target.data() + place, source.data() + places[i++], size); });
  at(to.buffer)->write(to.offset, target.data(), target.size());
}

}  // namespace opaque

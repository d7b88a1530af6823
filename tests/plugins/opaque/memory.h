// Memory that the host can't touch: handles are numbers, contents are scrambled, and every access goes through here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "plugins/sdk/backplane_plugin.hpp"

namespace opaque {

// Bytes that read right only through read and write, unless they are plain: then the host sees them too.
class Scrambled {
 public:
  explicit Scrambled(std::uint64_t bytes, bool plain = false)
      : bytes_(bytes, std::byte{0xEE}), data_(bytes_.data()), size_(bytes), plain_(plain) {}
  Scrambled(std::byte* memory, std::uint64_t bytes) : data_(memory), size_(bytes), plain_(true) {}  // of the host
  Scrambled(Scrambled&&) = default;
  Scrambled& operator=(Scrambled&&) = default;

  std::uint64_t size() const { return size_; }
  std::byte* host() const { return plain_ ? data_ : nullptr; }
  // Both throw BP_INVALID for a range beyond the end.
  void read(std::uint64_t offset, void* to, std::uint64_t count) const;
  void write(std::uint64_t offset, const void* from, std::uint64_t count);

 private:
  std::vector<std::byte> bytes_;
  std::byte* data_;
  std::uint64_t size_;
  bool plain_;
};

// The buffers of one device. Free-threaded but for the contents, which belong to the stream that works on them.
class Memory {
 public:
  bp_buffer alloc(std::uint64_t bytes, bool plain);
  bp_buffer import(std::byte* memory, std::uint64_t bytes);
  void free(bp_buffer buffer);
  std::uint64_t live() const;

  // Throws BP_INVALID for a handle that isn't, or is no longer, a buffer of this device.
  std::shared_ptr<Scrambled> at(bp_buffer buffer) const;

  // All elements in row-major order, whatever the strides; blocks are decoded. An absent tensor gives none.
  std::vector<double> load(const bp_tensor& tensor) const;
  template <class T>
  std::vector<T> load_raw(const bp_tensor& tensor) const;  // contiguous
  // Leaves alone what lies between the elements.
  void store(const bp_tensor& tensor, const std::vector<double>& values);
  // Bit for bit, any type, any strides.
  void copy(const bp_tensor& from, const bp_tensor& to);

 private:
  bp_buffer add(Scrambled memory);
  std::vector<std::byte> extent(const bp_tensor& tensor) const;

  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Scrambled>> buffers_;
  std::uint64_t last_ = 0;
};

template <class T>
std::vector<T> Memory::load_raw(const bp_tensor& tensor) const {
  std::vector<T> values(backplane::plugin::element_count(tensor).value_or(0));
  if (!values.empty()) at(tensor.buffer)->read(tensor.offset, values.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace opaque

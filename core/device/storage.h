// Memory that an executor's devices share by copying, and the views that ops take of it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/device/device.h"

namespace backplane::device {

// The devices of one executor: those the user chose, in the order of the layers they hold, and last the reference that
// runs what they can't. It may be the last chosen one itself.
using Devices = std::vector<std::shared_ptr<Device>>;
using Slot = std::size_t;

// Bytes with a copy on each device that has needed them. Devices with host-visible memory work on the
// first such device's memory itself. Not free-threaded: it belongs to an executor.
class Storage {
 public:
  enum class Home {
    kDevice,  // activations, weights: best on the device
    kHost     // canonical KV pages: in the reference's memory, which other devices may import but never copy
  };

  Storage(const Devices& devices, std::uint64_t bytes, std::string purpose, Home home = Home::kDevice);

  std::uint64_t bytes() const { return bytes_; }

  // The buffer on `slot`, holding the current contents. Adds to `staged` the bytes that had to be copied there.
  const Buffer& read(Slot slot, std::uint64_t& staged);
  // The buffer on `slot`, whose first `end` bytes the caller is about to write; everything else becomes undefined.
  const Buffer& write(Slot slot, std::uint64_t end);
  // Both: the contents are current and the caller changes some of the first `end` bytes.
  const Buffer& update(Slot slot, std::uint64_t end, std::uint64_t& staged);

  // Contents from or to the host. set_host replaces all of them.
  void set_host(std::vector<std::byte> contents);
  void get_host(std::uint64_t offset, std::span<std::byte> out);
  // Replaces a part, wherever the contents are valid.
  void put_host(std::uint64_t offset, std::span<const std::byte> data);

  // Whoever asked for write or update last may leave its number here.
  static constexpr std::size_t kNobody = SIZE_MAX;
  void set_writer(std::size_t writer) { writer_ = writer; }
  std::size_t writer() const { return writer_; }

  // Whether an op on `slot` can use the bytes without a copy: only then may it be planned on kHost storage.
  bool reachable(Slot slot);
  void allocate(Slot slot);

 private:
  struct Copy {
    Buffer buffer;
    std::size_t memory = 0;  // copies that alias share a number
  };
  void make_copy(Slot slot);
  void stage(Slot slot, std::uint64_t& staged);
  void only_valid(Slot slot);

  const Devices* devices_;
  std::uint64_t bytes_;
  std::uint64_t used_ = 0;  // bytes from the start that hold contents
  std::string purpose_;
  Home home_;
  std::size_t writer_ = kNobody;
  std::vector<Copy> copies_;     // by slot
  std::vector<char> valid_;      // by memory number
  std::vector<std::byte> host_;  // contents given by the host, while valid
  bool host_valid_ = false;
};

// A view: type, shape, byte strides. Shapes are outermost first. Copying it copies the view, not the bytes.
struct Tensor {
  std::shared_ptr<Storage> storage;
  std::uint64_t offset = 0;
  DType type = DType::kNone;
  std::uint32_t rank = 0;
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};
  std::array<std::int64_t, 4> stride{};

  bool present() const { return type != DType::kNone; }
  std::int64_t last() const { return shape[rank - 1]; }
  std::uint64_t end() const;    // one past the last byte of the view in its storage
  bool row_contiguous() const;  // no gaps between rows

  // Rows [begin, begin + count) of the outermost dimension; columns likewise of the innermost (plain types).
  Tensor rows(std::int64_t begin, std::int64_t count) const;
  Tensor columns(std::int64_t begin, std::int64_t count) const;
  Tensor heads(std::int64_t count) const;  // [T, h*D] -> [T, h, D]

  bp_tensor abi(bp_buffer buffer) const;
};

// A contiguous view of all of `storage` from `offset` on, or of nothing (storage may be null while planning).
Tensor make_tensor(std::shared_ptr<Storage> storage, DType type, std::initializer_list<std::int64_t> shape,
                   std::uint64_t offset = 0);

}  // namespace backplane::device

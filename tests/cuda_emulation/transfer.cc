// Copies and fills. Which pointers belong to a device is known, so a wrong direction is refused as the driver does.
#include <cstring>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/runtime.h"

namespace cuda_emulation {

void move_bytes(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  std::memmove(to, from, bytes);
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  shared.copied[kind] += bytes;
}

namespace {

/// What kind of memory a range is, as far as copies care.
enum class Side { kDevice, kPinned, kPageable, kBroken };

Side side_of(const void* p, std::size_t bytes) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  if (const Allocation* whole = find_memory(p, bytes)) {
    return whole->kind == Memory::kDevice || whole->kind == Memory::kManaged ? Side::kDevice : Side::kPinned;
  }
  return find_memory(p, 1) != nullptr ? Side::kBroken : Side::kPageable;  // begins inside, ends outside
}

bool host(Side side) { return side == Side::kPinned || side == Side::kPageable; }

// The direction that the pointers have, or cudaErrorInvalidValue's stand-in, -1, if it isn't the one that was said.
int direction(Side to, Side from, cudaMemcpyKind said) {
  if (to == Side::kBroken || from == Side::kBroken) return -1;
  const cudaMemcpyKind found = host(to) ? (host(from) ? cudaMemcpyHostToHost : cudaMemcpyDeviceToHost)
                                        : (host(from) ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice);
  return said == cudaMemcpyDefault || said == found ? found : -1;
}

cudaError_t copy(const Call& call, void* to, const void* from, std::size_t bytes, cudaMemcpyKind said,
                 const std::shared_ptr<CUstream_st>& stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  const Side target = side_of(to, bytes), source = side_of(from, bytes);
  const int kind = direction(target, source, said);
  if (kind < 0) return cudaErrorInvalidValue;
  const auto checked = static_cast<cudaMemcpyKind>(kind);
  const bool captured = stream->capture != nullptr;
  if (source == Side::kPageable && checked == cudaMemcpyHostToDevice && !captured) {
    // Memory that isn't pinned has been read when the call returns.
    const auto* first = static_cast<const unsigned char*>(from);
    auto staged = std::make_shared<std::vector<unsigned char>>(first, first + bytes);
    // The operation alone owns them, or the last of two owners would free them by a count, which no race checker sees.
    return enqueue(stream, [=, staged = std::move(staged)] { move_bytes(to, staged->data(), bytes, checked); });
  }
  const cudaError_t status = enqueue(stream, [=] { move_bytes(to, from, bytes, checked); });
  if (status == cudaSuccess && target == Side::kPageable && !captured) {  // and has been written
    drain(end_of(stream));
    return lost(call.device());
  }
  return status;
}

}  // namespace
}  // namespace cuda_emulation

using namespace cuda_emulation;

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Call call("cudaMemcpyAsync");
  return call.refused() ? call.result() : call.result(copy(call, to, from, bytes, kind, find_stream(stream)));
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const Call call("cudaMemcpy", InCapture::kForbidden);
  if (call.refused()) return call.result();
  const auto stream = find_stream(nullptr);
  const cudaError_t status = copy(call, to, from, bytes, kind, stream);
  if (status != cudaSuccess) return call.result(status);
  drain(end_of(stream));
  return call.result(lost(call.device()));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t stream) {
  const Call call("cudaMemcpyPeerAsync");
  if (call.refused()) return call.result();
  return call.result(copy(call, to, from, bytes, cudaMemcpyDeviceToDevice, find_stream(stream)));
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t handle) {
  const Call call("cudaMemcpy2DAsync");
  if (call.refused()) return call.result();
  if (width > to_pitch || width > from_pitch) return call.result(cudaErrorInvalidValue);
  const auto stream = find_stream(handle);
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t status = copy(call, static_cast<char*>(to) + row * to_pitch,
                                    static_cast<const char*>(from) + row * from_pitch, width, kind, stream);
    if (status != cudaSuccess) return call.result(status);
  }
  return call.result(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void* p, int value, std::size_t bytes, cudaStream_t handle) {
  const Call call("cudaMemsetAsync");
  if (call.refused()) return call.result();
  const auto stream = find_stream(handle);
  if (stream == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return call.result();
  if (side_of(p, bytes) != Side::kDevice) return call.result(cudaErrorInvalidValue);
  return call.result(enqueue(stream, [=] { std::memset(p, value, bytes); }));
}

cudaError_t cudaMemset(void* p, int value, std::size_t bytes) { return cudaMemsetAsync(p, value, bytes, nullptr); }

}  // extern "C"

// Products by cuBLASLt: many tokens with weights of the activations' type. The library is loaded when the first such
// product asks for it, and never linked, so that the plugin loads and runs without it.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/cuda/kernels.h"
#include "backends/cuda/recordings.h"

namespace backplane::cuda {

// cuBLASLt on one device. Free-threaded.
class Blas {
 public:
  explicit Blas(Recordings& recordings);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // What it uses of an op's workspace.
  static constexpr std::uint64_t kWorkspaceBytes = std::uint64_t{32} << 20;

  // Enqueues a product that suits_blas, on the calling thread's device; `workspace`, of `bytes` on the device, is busy
  // until it is done. Which algorithm: chosen once for each class of shapes, so that a product takes the same one
  // whenever it comes; one that is recorded takes only what was chosen before. False, and nothing enqueued, where the
  // library is missing or can't, which is logged once, and as long as it isn't loaded because somebody records on this
  // GPU. Throws what the device has against it.
  bool multiply(cudaStream_t stream, const LinearCall& call, void* workspace, std::uint64_t bytes, bool recording);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace backplane::cuda

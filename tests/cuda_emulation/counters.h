#pragma once
namespace cuda_emulation {
struct WarpCounters {};
}  // namespace cuda_emulation

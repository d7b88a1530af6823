// A cuBLASLt with the few functions that the backend takes from it, found as a library that is loaded by name. It
// multiplies on the host, at the stream's turn. Config::blas says whether it is there.
#pragma once

namespace cuda_emulation {

/// Stands for dlopen: null where it is missing, or has another name.
void* open_blas(const char* name);
/// Stands for dlsym.
void* find_blas(void* library, const char* function);

}  // namespace cuda_emulation

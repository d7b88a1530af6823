// Calls of the CUDA runtime with their errors as failures of the plugin.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cuda {

// What an error of the runtime means to the core: out of memory, unavailable, lost, or internal.
bp_status status_of(cudaError_t error);

// "cudaMalloc: out of memory (cudaErrorMemoryAllocation)".
std::string error_text(const char* call, cudaError_t error);

// Throws unless the call succeeded. Errors that don't stick to the device are taken off the thread, so that the next
// call doesn't report them again.
void check(cudaError_t error, const char* call);

// How many devices the driver offers. Throws BP_UNAVAILABLE with the driver's reason where it offers none.
int device_count();

}  // namespace backplane::cuda

// Stands before the toolkit's header of the same name in emulated builds: the toolkit's declarations, and then what
// nvcc would have built in. Launches need the kernel's parameter types, which the toolkit's own wrapper erases.
#pragma once
#pragma GCC system_header

#include <cuda_runtime_api.h>
#define cudaLaunchKernelEx toolkit_cudaLaunchKernelEx
#include_next <cuda_runtime.h>
#undef cudaLaunchKernelEx

#include "cuda_emulation/device.h"
#include "cuda_emulation/launch.h"

#include "backends/cuda/runtime.h"

namespace backplane::cuda {
namespace {

// Names that the headers of the first CUDA 12 lack.
constexpr int kContained = 226, kTensorMemoryLeak = 721;

// After these the context is gone for good: every later call returns the same.
bool is_sticky(cudaError_t error) {
  switch (static_cast<int>(error)) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorCudartUnloading:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
    case cudaErrorUnknown:
    case kContained:
    case kTensorMemoryLeak:
      return true;
    default:
      return false;
  }
}

bool is_absence(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorStubLibrary:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorDevicesUnavailable:  // somebody else has it for himself, or it is set so that nobody can
      return true;
    default:
      return false;
  }
}

}  // namespace

bp_status status_of(cudaError_t error) {
  if (error == cudaSuccess) return BP_OK;
  if (error == cudaErrorMemoryAllocation) return BP_OUT_OF_MEMORY;
  if (is_sticky(error)) return BP_DEVICE_LOST;
  return is_absence(error) ? BP_UNAVAILABLE : BP_INTERNAL;
}

std::string error_text(const char* call, cudaError_t error) {
  return std::string(call) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
}

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw plugin::Failure(status_of(error), error_text(call, error));
}

int device_count() {
  int count = 0;  // left alone where there is no driver
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    throw plugin::Failure(BP_UNAVAILABLE, std::string("no CUDA device: ") + cudaGetErrorString(error));
  }
  if (count == 0) throw plugin::Failure(BP_UNAVAILABLE, "no CUDA device: the driver lists none");
  return count;
}

}  // namespace backplane::cuda

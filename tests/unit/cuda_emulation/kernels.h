// The kernels that the tests run.
#pragma once

#include "backends/cuda/device_compat.cuh"

__global__ void add_vectors(const float* a, const float* b, float* sum, int count);

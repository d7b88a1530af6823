// Stands before the toolkit's header of the same name in emulated builds.
#pragma once

#include <cuda_runtime.h>

#include "cuda_emulation/wmma.h"

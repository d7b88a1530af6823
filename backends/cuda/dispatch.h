// From op codes to ops.
#pragma once

#include "backends/cuda/device.h"

namespace backplane::cuda {

// Answers `supports`; throws BP_UNSUPPORTED with the reason for a no.
void answer_query(const Device& device, const bp_op_query& query, bp_support& support);

// Enqueues an op. What a kernel finds wrong surfaces when the stream is waited for.
void run_op(Stream& stream, bp_context context, const bp_op& op);

}  // namespace backplane::cuda

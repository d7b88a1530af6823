// What may go wrong in an op: each runs it on the cpu plugin with one thing changed, and leaves other ops alone.
#pragma once

#include <functional>

#include "plugins/abi/backplane_plugin.h"

namespace backplane::tools::check {

// Runs an op of the cpu plugin.
using Run = std::function<bp_status(const bp_op& op)>;
using Mutation = bp_status (*)(const bp_op& op, const Run& run);

bp_status see_the_future(const bp_op& op, const Run& run);
bp_status miss_the_last_key(const bp_op& op, const Run& run);
bp_status take_another_rope_base(const bp_op& op, const Run& run);
bp_status interleave(const bp_op& op, const Run& run);
bp_status forget_the_scale(const bp_op& op, const Run& run);
bp_status lose_writes_of_decodes(const bp_op& op, const Run& run);
bp_status confuse_pages(const bp_op& op, const Run& run);
bp_status take_turns_at_kv_heads(const bp_op& op, const Run& run);
bp_status attend_in_halves(const bp_op& op, const Run& run);
bp_status take_another_eps(const bp_op& op, const Run& run);
bp_status take_the_other_gelu(const bp_op& op, const Run& run);
bp_status forget_the_bias(const bp_op& op, const Run& run);
bp_status shift_a_group(const bp_op& op, const Run& run);

}  // namespace backplane::tools::check

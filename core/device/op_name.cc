// The spelling of op codes, as the ABI header has it.
#include "core/device/device.h"

namespace backplane::device {

std::string_view op_name(std::uint32_t code) {
  switch (code) {
    case BP_OP_EMBED:
      return "EMBED";
    case BP_OP_NORM:
      return "NORM";
    case BP_OP_LINEAR:
      return "LINEAR";
    case BP_OP_ROPE:
      return "ROPE";
    case BP_OP_KV_WRITE:
      return "KV_WRITE";
    case BP_OP_ATTN_PREFILL:
      return "ATTN_PREFILL";
    case BP_OP_ATTN_DECODE:
      return "ATTN_DECODE";
    case BP_OP_ACT:
      return "ACT";
    case BP_OP_GLU:
      return "GLU";
    case BP_OP_ADD:
      return "ADD";
    case BP_OP_MUL:
      return "MUL";
    case BP_OP_SCALE:
      return "SCALE";
    case BP_OP_GATHER_ROWS:
      return "GATHER_ROWS";
    case BP_OP_CAST:
      return "CAST";
    case BP_OP_COPY:
      return "COPY";
    case BP_OP_FILL:
      return "FILL";
    case BP_OP_SOFTCAP:
      return "SOFTCAP";
    case BP_OP_TOPK:
      return "TOPK";
    case BP_OP_SAMPLE:
      return "SAMPLE";
    case BP_OP_ADVANCE:
      return "ADVANCE";
    case BP_OP_ADD_NORM:
      return "ADD_NORM";
    case BP_OP_QKV_ROPE_WRITE:
      return "QKV_ROPE_WRITE";
    case BP_OP_GATEUP_GLU:
      return "GATEUP_GLU";
    case BP_OP_LINEAR_ADD:
      return "LINEAR_ADD";
    case BP_OP_LINEAR_ACT:
      return "LINEAR_ACT";
    case BP_OP_HEAD_ARGMAX:
      return "HEAD_ARGMAX";
    default:
      return "an unknown op";
  }
}

}  // namespace backplane::device

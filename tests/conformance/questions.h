// A proper question about each op, to be asked again with one thing made wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/device/device.h"

namespace backplane::conformance {

struct Question {
  std::uint32_t code = 0;
  std::uint64_t features = 0;
  std::shared_ptr<void> args;           // the op's argument struct, which keeps those that it points to
  std::vector<bp_tensor*> activations;  // in there
  std::uint32_t* kind = nullptr;        // in there: of a norm or an activation function, where the op has one
};

struct Answer {
  bp_status status = BP_OK;
  std::string reason;
  bp_support support{};

  // In either of the two ways: a refusal, or a yes without an attribute that was asked for.
  bool is_no(std::uint64_t features) const {
    return status == BP_UNSUPPORTED || (status == BP_OK && (features & ~support.features) != 0);
  }
};

// About small shapes, with weights of a type that the device takes, on its own KV cache where it has one.
std::vector<Question> proper_questions(const device::Device& device, DType activation);
Answer ask(device::Device& device, const Question& question);

// A contiguous tensor without memory.
bp_tensor shape_of(bp_type type, const std::vector<std::int64_t>& shape);

}  // namespace backplane::conformance

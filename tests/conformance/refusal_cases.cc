// What a plugin doesn't know, it refuses: with BP_UNSUPPORTED and a reason, never with a crash or a wrong result. Here
// what `supports` is asked; refusal_object_cases.cc has what objects are made from.
#include <fmt/format.h>

#include <cstring>

#include "core/base/abi_call.h"
#include "tests/conformance/questions.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

void expect_no(const Answer& answer, const std::string& what) {
  require(answer.status == BP_UNSUPPORTED, fmt::format("supports for {}: {} instead of {}", what,
                                                       status_text(answer.status), status_text(BP_UNSUPPORTED)));
  require(!answer.reason.empty(), fmt::format("{} was refused without a reason", what));
}

std::string op_of(const Question& question) { return std::string(device::op_name(question.code)); }

// Questions that the device says yes to: only there does a no show that it has seen what is wrong.
std::vector<Question> agreed_questions(Trial& trial) {
  device::Device& device = trial.subject.device();
  std::vector<Question> agreed;
  std::string reason = "no op is supported";
  for (Question& question : proper_questions(device, trial.activation())) {
    const Answer answer = ask(device, question);
    if (answer.status == BP_OK && !answer.is_no(question.features)) {
      agreed.push_back(std::move(question));
    } else if (answer.status != BP_UNSUPPORTED && answer.status != BP_OK) {
      throw Failed{
          fmt::format("supports for a proper {}: {}: {}", op_of(question), status_text(answer.status), answer.reason)};
    } else if (!answer.reason.empty()) {
      reason = answer.reason;
    }
  }
  if (agreed.empty()) throw Skipped{reason};
  return agreed;
}

void try_op_code(Trial& trial) {
  for (Question& question : agreed_questions(trial)) {
    const std::string op = op_of(question);
    for (const std::uint32_t code : {0u, 21u, 63u, 70u, 9999u, UINT32_MAX}) {
      question.code = code;
      expect_no(ask(trial.subject.device(), question), fmt::format("op code {} with arguments of {}", code, op));
    }
  }
}

void try_weight_type(Trial& trial) {
  for (Question& question : agreed_questions(trial)) {
    if (question.code != BP_OP_LINEAR && question.code != BP_OP_EMBED) continue;
    bp_tensor& weight = question.code == BP_OP_LINEAR ? static_cast<bp_linear_args*>(question.args.get())->weight.tensor
                                                      : static_cast<bp_embed_args*>(question.args.get())->table.tensor;
    for (const bp_type type : {0u, 31u, 61u, 200u, 255u, 256u, UINT32_MAX}) {
      weight.type = type;
      const Answer answer = ask(trial.subject.device(), question);
      if (type == 0 && answer.status == BP_INVALID) continue;  // a weight that is absent is simply wrong
      expect_no(answer, fmt::format("{} with weights of type {}", op_of(question), type));
    }
  }
}

void try_activation_type(Trial& trial) {
  for (const Question& question : agreed_questions(trial)) {
    if (question.activations.empty()) continue;
    for (const bp_type type : {8u, 199u, 254u, 256u, 70000u}) {
      for (bp_tensor* activation : question.activations) activation->type = type;
      expect_no(ask(trial.subject.device(), question),
                fmt::format("{} on activations of type {}", op_of(question), type));
    }
  }
}

constexpr std::uint64_t kKnownFeatures =
    BP_FEATURE_STRIDED | BP_FEATURE_BIAS | BP_FEATURE_NORM_LAYER | BP_FEATURE_NORM_NO_WEIGHT |
    BP_FEATURE_NORM_UNIT_OFFSET | BP_FEATURE_ROPE_INTERLEAVED | BP_FEATURE_ROPE_PARTIAL | BP_FEATURE_QK_NORM |
    BP_FEATURE_NO_ROPE | BP_FEATURE_KV_CANONICAL | BP_FEATURE_ATTN_WINDOW | BP_FEATURE_ATTN_SOFTCAP |
    BP_FEATURE_ATTN_SINKS | BP_FEATURE_ATTN_VALUE_DIM | BP_FEATURE_BROADCAST | BP_FEATURE_ALPHA | BP_FEATURE_GELU_ERF |
    BP_FEATURE_GELU_TANH | BP_FEATURE_SILU | BP_FEATURE_RELU | BP_FEATURE_TRANSPOSED | BP_FEATURE_X_NORM;

// An attribute of the future: a refusal, or an answer that doesn't claim to honor it.
void try_feature(Trial& trial) {
  for (Question& question : agreed_questions(trial)) {
    const std::uint64_t proper = question.features;
    for (int bit = 0; bit < 64; ++bit) {
      const std::uint64_t unknown = std::uint64_t{1} << bit;
      if ((unknown & kKnownFeatures) != 0) continue;
      question.features = proper | unknown;
      const Answer answer = ask(trial.subject.device(), question);
      const std::string what = fmt::format("{} with feature bit {}, which has no meaning yet", op_of(question), bit);
      require(answer.is_no(question.features),
              answer.status == BP_OK ? "supports claims " + what
                                     : fmt::format("supports for {}: {} instead of {}", what,
                                                   status_text(answer.status), status_text(BP_UNSUPPORTED)));
      require(answer.status == BP_OK || !answer.reason.empty(), what + " was refused without a reason");
    }
  }
}

void try_kind(Trial& trial) {
  bool any = false;
  for (const Question& question : agreed_questions(trial)) {
    if (!question.kind) continue;
    any = true;
    for (const std::uint32_t kind : {5u, 77u, UINT32_MAX}) {
      *question.kind = kind;
      expect_no(ask(trial.subject.device(), question), fmt::format("{} of kind {}", op_of(question), kind));
    }
    *question.kind = 0;
    require(ask(trial.subject.device(), question).status != BP_OK, op_of(question) + " of no kind was taken");
  }
  if (!any) throw Skipped{"no op with kinds is supported"};
}

// A struct of an older core ends before the members that came later.
void try_shorter_answer(Trial& trial) {
  struct Room {
    bp_support support;
    unsigned char behind[32];
  } room;
  constexpr std::uint64_t kSize = offsetof(bp_support, activation_type);
  device::Device& device = trial.subject.device();
  for (const Question& question : agreed_questions(trial)) {
    std::memset(&room, 0xa5, sizeof(room));
    room.support.size = kSize;
    bp_op_query query{};
    query.size = sizeof(query);
    query.code = question.code;
    query.smallest = query.largest = question.args.get();
    query.features = question.features;
    AbiCall call;
    call.check(device.tables().device->supports(device.handle(), call.context(), &query, &room.support), "supports");
    require(room.support.size == kSize, "supports changed the size of its answer");
    const auto* bytes = reinterpret_cast<const unsigned char*>(&room);
    for (std::size_t i = kSize; i < sizeof(room); ++i) {
      require(bytes[i] == 0xa5,
              fmt::format("supports for {} wrote byte {} of a struct of {} bytes", op_of(question), i, kSize));
    }
  }
}

}  // namespace

void add_refusal_cases(Suite& suite) {
  suite.add("refusals/op_code", try_op_code);
  suite.add("refusals/weight_type", try_weight_type);
  suite.add("refusals/activation_type", try_activation_type);
  suite.add("refusals/feature", try_feature);
  suite.add("refusals/kind", try_kind);
  suite.add("refusals/shorter_answer", try_shorter_answer);
}

}  // namespace backplane::conformance

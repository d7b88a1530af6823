// What a plugin doesn't know, it refuses: with BP_UNSUPPORTED and a reason, never with a crash or a wrong result.
#include <fmt/format.h>

#include "core/base/abi_call.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

bp_tensor shape_of(bp_type type, std::int64_t rows, std::int64_t columns, std::int64_t element) {
  bp_tensor t{};
  t.type = type;
  t.rank = 2;
  t.shape[0] = rows;
  t.shape[1] = columns;
  t.shape[2] = t.shape[3] = 1;
  t.stride[0] = columns * element;
  t.stride[1] = element;
  return t;
}

struct Answer {
  bp_status status;
  std::string reason;
  bp_support support{};
};

Answer ask(device::Device& device, std::uint32_t code, const void* args, std::uint64_t features = 0) {
  bp_op_query query{};
  query.size = sizeof(query);
  query.code = code;
  query.smallest = query.largest = args;
  query.features = features;
  Answer answer{};
  answer.support.size = sizeof(bp_support);
  AbiCall call;
  answer.status = device.tables().device->supports(device.handle(), call.context(), &query, &answer.support);
  answer.reason = call.text();
  return answer;
}

void expect_no(const Answer& answer, const std::string& what) {
  require(answer.status == BP_UNSUPPORTED, fmt::format("supports for {}: {} instead of {}", what,
                                                       status_text(answer.status), status_text(BP_UNSUPPORTED)));
  require(!answer.reason.empty(), fmt::format("{} was refused without a reason", what));
}

bp_linear_args linear_of(Trial& trial, bp_type weight_type) {
  const auto real = static_cast<bp_type>(trial.activation());
  const std::int64_t size = dtype_info(trial.activation()).block_bytes;
  bp_linear_args args{};
  args.size = sizeof(args);
  args.x = shape_of(real, 4, 256, size);
  args.weight.tensor = shape_of(weight_type, 8, 256, size);
  args.out = shape_of(real, 4, 8, size);
  return args;
}

void try_unknown_op(Trial& trial) {
  const bp_linear_args args = linear_of(trial, BP_TYPE_F32);
  for (const std::uint32_t code : {0u, 21u, 63u, 69u, 9999u, UINT32_MAX}) {
    expect_no(ask(trial.subject.device(), code, &args), fmt::format("op code {}", code));
  }
}

void try_unknown_weight_type(Trial& trial) {
  for (const bp_type type : {0u, 31u, 61u, 200u, 255u, 256u, UINT32_MAX}) {
    const bp_linear_args args = linear_of(trial, type);
    const Answer answer = ask(trial.subject.device(), BP_OP_LINEAR, &args);
    if (type == 0 && answer.status == BP_INVALID) continue;  // a weight that is absent is simply wrong
    expect_no(answer, fmt::format("a LINEAR with weights of type {}", type));
  }
}

void try_unknown_activation(Trial& trial) {
  for (const bp_type type : {8u, 199u, 254u, 70000u}) {
    bp_binary_args add{};
    add.size = sizeof(add);
    add.a = add.b = add.out = shape_of(type, 4, 8, 4);
    add.alpha = 1;
    expect_no(ask(trial.subject.device(), BP_OP_ADD, &add), fmt::format("an ADD of type {}", type));
    bp_linear_args args = linear_of(trial, BP_TYPE_F32);
    args.x.type = args.out.type = type;
    expect_no(ask(trial.subject.device(), BP_OP_LINEAR, &args),
              fmt::format("a LINEAR on activations of type {}", type));
  }
}

// An attribute of the future: a no, or a yes that doesn't claim to honor it.
void try_unknown_feature(Trial& trial) {
  constexpr std::uint64_t kFuture = std::uint64_t{1} << 60;
  bp_norm_args norm{};
  norm.size = sizeof(norm);
  norm.x = norm.out =
      shape_of(static_cast<bp_type>(trial.activation()), 4, 64, dtype_info(trial.activation()).block_bytes);
  norm.kind = BP_NORM_RMS;
  const bp_linear_args linear = linear_of(trial, static_cast<bp_type>(trial.subject.parameter_type()));
  const std::pair<std::uint32_t, const void*> questions[] = {{BP_OP_LINEAR, &linear}, {BP_OP_NORM, &norm}};
  for (const auto& [code, args] : questions) {
    const std::string op(device::op_name(code));
    const Answer answer = ask(trial.subject.device(), code, args, kFuture);
    if (answer.status == BP_OK) {
      require((answer.support.features & kFuture) == 0, op + " claims an attribute that doesn't exist yet");
    } else {
      expect_no(answer, op + " with an unknown attribute");
    }
  }
}

void try_unknown_kind(Trial& trial) {
  const bp_tensor x =
      shape_of(static_cast<bp_type>(trial.activation()), 4, 64, dtype_info(trial.activation()).block_bytes);
  bp_norm_args norm{};
  norm.size = sizeof(norm);
  norm.x = norm.out = x;
  bp_activation_args act{};
  act.size = sizeof(act);
  act.x = act.out = x;
  for (const std::uint32_t kind : {0u, 77u, UINT32_MAX}) {
    norm.kind = act.kind = kind;
    require(ask(trial.subject.device(), BP_OP_NORM, &norm).status != BP_OK,
            fmt::format("a norm of kind {} was taken", kind));
    require(ask(trial.subject.device(), BP_OP_ACT, &act).status != BP_OK,
            fmt::format("an activation of kind {} was taken", kind));
  }
}

// A struct of an older core ends before the members that came later.
void try_short_answer(Trial& trial) {
  struct Room {
    bp_support support;
    unsigned char behind[32];
  } room;
  std::memset(&room, 0xa5, sizeof(room));
  constexpr std::uint64_t kSize = offsetof(bp_support, activation_type);
  room.support.size = kSize;
  const bp_linear_args args = linear_of(trial, static_cast<bp_type>(trial.subject.parameter_type()));
  bp_op_query query{};
  query.size = sizeof(query);
  query.code = BP_OP_LINEAR;
  query.smallest = query.largest = &args;
  AbiCall call;
  device::Device& device = trial.subject.device();
  const bp_status status = device.tables().device->supports(device.handle(), call.context(), &query, &room.support);
  if (status == BP_UNSUPPORTED) throw Skipped{call.text()};
  require(status == BP_OK, "supports: " + status_text(status));
  const auto* bytes = reinterpret_cast<const unsigned char*>(&room);
  for (std::size_t i = kSize; i < sizeof(room); ++i) {
    require(bytes[i] == 0xa5, fmt::format("supports wrote byte {} of a struct of {} bytes", i, kSize));
  }
}

}  // namespace

void add_refusal_cases(Suite& suite) {
  suite.add("refusals/op_code", try_unknown_op);
  suite.add("refusals/weight_type", try_unknown_weight_type);
  suite.add("refusals/activation_type", try_unknown_activation);
  suite.add("refusals/feature", try_unknown_feature);
  suite.add("refusals/kind", try_unknown_kind);
  suite.add("refusals/shorter_answer", try_short_answer);
}

}  // namespace backplane::conformance

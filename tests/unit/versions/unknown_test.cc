// What a later version may bring is "no" to the cpu plugin, whoever asks and wherever it stands: BP_UNSUPPORTED with a
// reason, never an error of another kind, never a crash, and nothing computed.
#include <set>

#include "tests/unit/versions/every_op.h"

namespace backplane::versions_test {
namespace {

constexpr bp_type kUnknownTypes[] = {7, 61, 255, 256, 4000000000U};

class Unknown : public cpu_test::CpuTest {};
INSTANTIATE_TEST_SUITE_P(Devices, Unknown, ::testing::Values(0U, 1U), cpu_test::device_name);

#define EXPECT_NO(status, what)                                                 \
  do {                                                                          \
    EXPECT_EQ(status, bp_status{BP_UNSUPPORTED}) << what << ": " << rig.reason; \
    EXPECT_FALSE(rig.reason.empty()) << what;                                   \
  } while (false)

TEST_P(Unknown, EveryOpIsKnownAndItsArgumentsAreGood) {
  Rig rig(GetParam());
  std::set<std::uint32_t> codes;
  for_every_op(rig, [&](std::uint32_t code, const auto& args, const Tensors&) {
    codes.insert(code);
    EXPECT_EQ(rig.run(code, args), BP_OK) << "op " << code << ": " << rig.reason;
  });
  std::set<std::uint32_t> named;
  for (std::uint32_t code = 0; code < 1000; ++code) {
    if (std::string(plugin::op_name(code)) != "op") named.insert(code);
  }
  EXPECT_EQ(codes, named) << "what follows must be asked of every op of the header";
}

TEST_P(Unknown, Types) {
  Rig rig(GetParam());
  for_every_op(rig, [&](std::uint32_t code, const auto& args, const Tensors& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const bp_type known = tensors[i]->type;
      for (const bp_type type : kUnknownTypes) {
        tensors[i]->type = type;
        const std::string what =
            std::string(plugin::op_name(code)) + ", tensor " + std::to_string(i) + ", type " + std::to_string(type);
        bp_support answer{};
        EXPECT_NO(rig.ask(code, args, &answer), what + ", asked");
        EXPECT_EQ(answer.features, 0u) << "a no has no more to say";
        EXPECT_NO(rig.run_with(code, args, 1 << 16), what + ", run");
      }
      tensors[i]->type = known;
    }
  });
}

TEST_P(Unknown, Features) {
  Rig rig(GetParam());
  for_every_op(rig, [&](std::uint32_t code, const auto& args, const Tensors&) {
    for (const int bit : {2, 30, 31, 32, 50, 63}) {
      bp_support answer{};
      EXPECT_NO(rig.ask(code, args, &answer, BP_FEATURE_KV_CANONICAL | std::uint64_t{1} << bit),
                plugin::op_name(code) << ", feature bit " << bit);
    }
  });
}

TEST_P(Unknown, OpCodes) {
  Rig rig(GetParam());
  bp_unary_args args{};
  args.size = sizeof(args);
  for (const std::uint32_t code : {0U, 21U, 63U, 70U, 255U, 0x80000000U, 0xffffffffU}) {
    bp_support answer{};
    EXPECT_NO(rig.ask(code, args, &answer), "op code " << code << ", asked");
    EXPECT_NO(rig.run_with(code, args, 0), "op code " << code << ", run");
  }
}

TEST_P(Unknown, Kinds) {
  Rig rig(GetParam());
  int asked = 0;
  for_every_op(rig, [&](std::uint32_t code, auto& args, const Tensors&) {
    const auto expect_no = [&](std::uint32_t& kind, const char* what) {
      const std::uint32_t known = std::exchange(kind, 77);
      bp_support answer{};
      EXPECT_NO(rig.ask(code, args, &answer), plugin::op_name(code) << ", " << what << ", asked");
      EXPECT_NO(rig.run_with(code, args, 1 << 16), plugin::op_name(code) << ", " << what << ", run");
      kind = known;
      ++asked;
    };
    using Args = std::decay_t<decltype(args)>;
    if constexpr (std::is_same_v<Args, bp_linear_args>) {
      if (code == BP_OP_LINEAR_ACT) expect_no(args.kind, "kind");
    } else if constexpr (requires { args.kind; }) {
      expect_no(args.kind, "kind");
    }
    if constexpr (requires { args.x_norm; }) {
      if (args.x_norm != nullptr) expect_no(const_cast<bp_norm_args*>(args.x_norm)->kind, "norm of x");
    }
    if constexpr (std::is_same_v<Args, bp_rope_args>) expect_no(args.interleaved, "pairing");
    if constexpr (std::is_same_v<Args, bp_add_norm_args>) expect_no(const_cast<bp_norm_args*>(args.norm)->kind, "norm");
    if constexpr (std::is_same_v<Args, bp_gateup_args>) expect_no(const_cast<bp_glu_args*>(args.glu)->kind, "gating");
    if constexpr (std::is_same_v<Args, bp_qkv_args>) {
      expect_no(const_cast<bp_norm_args*>(args.q_norm)->kind, "norm");
      expect_no(const_cast<bp_rope_args*>(args.rope)->interleaved, "pairing");
    }
  });
  EXPECT_EQ(asked, 12);
}

TEST_P(Unknown, Memory) {
  Rig rig(GetParam());
  for (const bp_memory kind : {3U, 4U, 77U, 0xffffffffU}) {
    for (const std::uint64_t bytes : {std::uint64_t{64}, std::uint64_t{1} << 62}) {
      bp_buffer buffer = nullptr;
      rig.reason.clear();
      EXPECT_NO(cpu_test::Library::get().buffer.alloc(rig.device(), rig.context(), bytes, kind, &buffer),
                "memory kind " << kind);
      EXPECT_EQ(buffer, nullptr);
    }
  }
}

TEST_P(Unknown, OpenFlags) {
  Rig rig(GetParam());
  for (int bit = 1; bit < 64; ++bit) {
    bp_open_params params{};
    params.size = sizeof(params);
    params.flags = std::uint64_t{1} << bit;
    bp_device device = nullptr;
    rig.reason.clear();
    EXPECT_NO(cpu_test::Library::get().driver.open(rig.context(), GetParam(), &params, &device), "open flag " << bit);
    EXPECT_EQ(device, nullptr);
  }
}

}  // namespace
}  // namespace backplane::versions_test

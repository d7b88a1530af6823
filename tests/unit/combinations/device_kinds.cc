#include "tests/unit/combinations/device_kinds.h"

#include <fmt/format.h>

#include "core/device/device.h"

namespace backplane::test {
namespace {

constexpr std::uint32_t kFused[] = {BP_OP_ADD_NORM,   BP_OP_QKV_ROPE_WRITE, BP_OP_GATEUP_GLU,
                                    BP_OP_LINEAR_ADD, BP_OP_HEAD_ARGMAX,    BP_OP_LINEAR_ACT};

std::vector<std::uint32_t> single_ops() {
  std::vector<std::uint32_t> codes;
  for (std::uint32_t code = BP_OP_EMBED; code <= BP_OP_ADVANCE; ++code) codes.push_back(code);
  return codes;
}

std::string names(const std::vector<std::uint32_t>& codes) {
  std::vector<std::string_view> out;
  for (const std::uint32_t code : codes) out.push_back(device::op_name(code));
  return fmt::format("{}", fmt::join(out, "+"));
}

std::vector<std::uint32_t> all_but(const std::set<std::uint32_t>& kept) {
  std::vector<std::uint32_t> codes;
  for (const std::uint32_t code : single_ops()) {
    if (!kept.contains(code)) codes.push_back(code);
  }
  for (const std::uint32_t code : kFused) {
    if (!kept.contains(code)) codes.push_back(code);
  }
  return codes;
}

void add_ops(std::vector<DeviceKind>& kinds) {
  std::vector<std::uint32_t> fused(std::begin(kFused), std::end(kFused));
  kinds.push_back({"no fused ops", "without=" + names(fused), {}});
  for (const std::uint32_t code : all_but({})) kinds.push_back({"an op removed", "without=" + names({code}), {}, code});
  for (const std::uint32_t code : single_ops()) {
    fused.push_back(code);
    kinds.push_back({"an op and all fused ones", "without=" + names(fused), {}, code});
    fused.pop_back();
  }
  kinds.push_back({"LINEAR only", "without=" + names(all_but({BP_OP_LINEAR})), {}});
  kinds.push_back({"LINEAR only", "without=" + names(all_but({BP_OP_LINEAR, BP_OP_CAST})), {}});
  kinds.push_back({"nothing", "without=" + names(all_but({})), {}});
}

void add_tables(std::vector<DeviceKind>& kinds) {
  const std::set<std::string> all{"stream", "weights", "kv",          "graph",  "prepare",     "compile",
                                  "map",    "copy",    "import_host", "events", "native_pages"};
  for (const std::string& table : all) kinds.push_back({"a table removed", "", {table}});
  kinds.push_back({"all tables removed", "", all});
  kinds.push_back({"LINEAR and no tables", "without=" + names(all_but({BP_OP_LINEAR})), all});
  for (const std::string flag :
       {"no_stream", "no_graph", "no_transposed", "no_embed", "no_map", "no_import", "no_copy"}) {
    kinds.push_back({"a refusal", flag + "=1", {}});
  }
}

void add_ownership(std::vector<DeviceKind>& kinds) {
  for (const bool weights : {true, false}) {
    for (const bool kv : {true, false}) {
      for (const bool visible : {true, false}) {
        std::string options = visible ? "visible=1" : "visible=0";
        if (!weights) options += ",no_weights=1";
        if (!kv) options += ",no_kv=1";
        kinds.push_back({"owned groups, by answer", options, {}});
      }
      std::set<std::string> tables;
      if (!weights) tables.insert("weights");
      if (!kv) tables.insert("kv");
      kinds.push_back({"owned groups, by table", "", tables});
    }
  }
  kinds.push_back({"some weights owned", "import=F32", {}});
  kinds.push_back({"some weights owned", "import=Q8_0+F16", {}});
}

}  // namespace

std::vector<DeviceKind> device_kinds() {
  std::vector<DeviceKind> kinds{{"everything", "", {}}};
  add_ops(kinds);
  add_tables(kinds);
  add_ownership(kinds);
  return kinds;
}

std::string want_f16() { return "want_f16=" + names(all_but({BP_OP_CAST, BP_OP_COPY, BP_OP_FILL, BP_OP_ADVANCE})); }

}  // namespace backplane::test

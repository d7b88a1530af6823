// Faults put into the CUDA backend one at a time, by CU_FAULT: the conformance suite must find each. A process asks for
// its fault by the environment, so every case is a run of the program.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "tests/support/run_program.h"

namespace backplane {
namespace {

struct Fault {
  const char* name;    // as in CU_FAULT
  const char* device;  // of the emulated plugin
  const char* cases;   // conform's filter: where it shows
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

constexpr Fault kFaults[] = {
    {"attention.barrier", "0", "ATTN_DECODE/own/F32/S16"},
    {"attention.kv_head", "0", "ATTN_DECODE/own/F32/S16"},
    {"attention.lost_key", "0", "ATTN_DECODE/own/F32/S16"},
    {"attention.page_stride", "0", "ATTN_DECODE/own/F32/S16"},
    {"attention.rescale", "0", "ATTN_DECODE/own/F32/S16"},
    {"attention.window", "0", "ATTN_DECODE/own/F32/S16"},
    {"candidates.tie", "0", "TOPK/"},
    {"capture.stale_table", "0", "graphs/decode"},
    {"events.lost_wait", "0", "streams/"},
    {"few.dropped_barrier", "0", "LINEAR/F32/imported"},
    {"few.first_factor", "0", "LINEAR_ACT/F32/"},
    {"few.first_token", "0", "LINEAR/F32/imported"},
    {"few.forgotten_bias", "0", "LINEAR/F32/imported"},
    {"few.infinite_span", "0-bf16", "LINEAR/Q5_1/imported"},
    {"few.lost_tail", "0", "LINEAR/F32/imported"},
    {"few.moments_tail", "0", "LINEAR_ACT/F32/"},
    {"few.same_row", "0", "LINEAR/F32/imported"},
    {"formats.forgotten_minimum", "0", "LINEAR/Q4_1/imported"},
    {"formats.high_bits", "0", "LINEAR/Q6_K/imported"},
    {"formats.upper_scales", "0", "LINEAR/Q4_K/imported"},
    {"heads.dropped_barrier", "0", "QKV_ROPE_WRITE/"},
    {"heads.first_value", "0", "QKV_ROPE_WRITE/"},
    {"heads.plain_keys", "0", "QKV_ROPE_WRITE/"},
    {"kv.block_scale", "0", "ATTN_DECODE/own/Q8_0/S16"},
    {"kv_write.offset", "0", "KV_WRITE/"},
    {"mma.lost_low_term", "0", "LINEAR/F32/canonical"},
    {"narrow.lost_tail", "0", "LINEAR/F32/canonical"},
    {"narrow.swapped_rows", "0", "LINEAR/F32/canonical"},
    {"norm.whole_vectors", "0", "NORM/"},
    {"pages.stride", "0", "ATTN_DECODE/own/F32/S16"},
    {"prefill.causal_edge", "0", "ATTN_PREFILL/own/F32/S16"},
    {"prefill.missing_wait", "0", "ATTN_PREFILL/own/F32/S16"},
    {"prefill.not_finite", "0", "ATTN_PREFILL/own/F32/S16"},
    {"prefill.rescale", "0", "ATTN_PREFILL/own/F32/S16"},
    {"repack.lost_block", "0", "LINEAR/Q4_1/imported"},
    {"rope.pair", "0", "ROPE/"},
    {"sample.number", "0", "SAMPLE/"},
    {"wide.missing_barrier", "0", "LINEAR/Q8_0/imported"},
    {"wide.missing_wait", "0", "LINEAR/Q8_0/imported"},
};

test::ProgramRun conform(const Fault& where, const std::string& fault) {
  return test::run_program({BACKPLANE_PROGRAM, "conform", CUDA_EMULATED_PLUGIN, "--device",
                            std::string("cuda_emulated:") + where.device, "--filter", where.cases},
                           {.environment = {{"CUDA_EMULATION_FAULT", fault}}});
}

class CudaFaults : public testing::TestWithParam<Fault> {};

TEST_P(CudaFaults, AreFound) {
  const Fault& fault = GetParam();
  static std::map<std::pair<std::string, std::string>, int> sound;  // the status without a fault, by device and cases
  const auto [it, added] = sound.try_emplace({fault.device, fault.cases}, 0);
  if (added) it->second = conform(fault, "").status;
  ASSERT_EQ(it->second, 0) << "these cases fail without it";
  const test::ProgramRun run = conform(fault, fault.name);
  EXPECT_EQ(run.status, 6) << run.out << run.err;
  EXPECT_NE(run.out.find("FAILED  "), std::string::npos) << run.out;
}

INSTANTIATE_TEST_SUITE_P(Each, CudaFaults, testing::ValuesIn(kFaults), [](const auto& each) {
  return std::regex_replace(std::string(each.param.name), std::regex("[^A-Za-z0-9]"), "_");
});

// Every fault that the sources have a name for is tried above.
TEST(CudaFaults, AreAllTried) {
  std::set<std::string> tried, named;
  for (const Fault& fault : kFaults) EXPECT_TRUE(tried.insert(fault.name).second) << fault.name << " twice";
  const std::regex use("CU_FAULT\\(\"([^\"]+)\"\\)");
  for (const auto& entry : std::filesystem::directory_iterator(BACKPLANE_SOURCE_DIR "/backends/cuda")) {
    std::istringstream lines(test::read_file(entry.path()));
    for (std::string line; std::getline(lines, line);) {
      std::smatch found;
      const bool comment = line.starts_with("//");
      if (!comment && std::regex_search(line, found, use)) named.insert(found[1]);
    }
  }
  EXPECT_GE(named.size(), 12u);
  EXPECT_EQ(named, tried);
}

}  // namespace
}  // namespace backplane

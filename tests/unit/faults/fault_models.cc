#include "tests/unit/faults/fault_models.h"

#include "tests/support/tiny_hf_model.h"

namespace backplane::test {
namespace {

using Folder = const TempFolder&;

std::filesystem::path llama(Folder f) { return write_tiny_llama(f, {.layers = 1, .tied = true}); }

std::filesystem::path typed(Folder f, TinyType type) { return write_tiny_llama(f, {.layers = 1, .type = type}); }

const FaultModel kModels[] = {
    {"llama", llama},
    {"gpt2", [](Folder f) { return write_tiny_gpt2(f); }},
    {"qwen3",
     [](Folder f) {
       return write_tiny_llama(f, {.layers = 1, .qk_norm = true, .type = TinyType::kF16, .head_dim = 16});
     }},
    {"qwen2", [](Folder f) { return write_tiny_hf(f, TinyHf::kQwen2); }},
    {"mistral", [](Folder f) { return write_tiny_hf(f, TinyHf::kMistral); }},
    {"q8_0", [](Folder f) { return typed(f, TinyType::kQ8_0); }},
    {"q5_0", [](Folder f) { return typed(f, TinyType::kQ5_0); }, "import=F32"},  // converted by the reference
    {"fallbacks", llama, "without=NORM+ATTN_DECODE+QKV_ROPE_WRITE"},
    {"casts", llama, "want_f16=LINEAR+NORM", "", 0.02},
    {"visible", llama, "visible=1"},
    {"no_kv", llama, "", "kv"},
    {"no_weights", llama, "", "weights"},
    {"no_stream", llama, "", "stream"},
    {"no_graph", llama, "", "graph"},
};

}  // namespace

std::span<const FaultModel> fault_models() { return kModels; }

std::vector<FaultModel> fault_models(const std::set<std::string>& names) {
  std::vector<FaultModel> found;
  for (const FaultModel& model : kModels) {
    if (names.contains(model.name)) found.push_back(model);
  }
  return found;
}

std::unique_ptr<models::LoadedModel> FaultFile::load(std::shared_ptr<device::Device> device) const {
  static const auto reference = open_device("cpu:f32");
  models::LoadOptions options;
  options.max_sequences = 4;
  options.max_step_tokens = 20;
  options.page_size = 12;
  options.executor.policy = device::FallbackPolicy::kAllow;
  return models::load(file_, std::move(device), reference, options);
}

}  // namespace backplane::test

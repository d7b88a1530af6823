// One model on two devices: layers split between them, and prefill on one with decode on the other.
#include <gtest/gtest.h>

#include "models/kv_copy.h"
#include "models/phase_model.h"
#include "tests/support/tiny_hf_model.h"
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

using test::Outputs;

// Unlike in memory, layouts and what they can do.
std::shared_ptr<device::Device> open(const std::string& kind) {
  if (kind == "opaque") return test::open_opaque();
  if (kind == "opaque_f16") return test::open_opaque("opaque:f16");
  if (kind == "opaque_without_kv") return test::open_opaque("opaque:f32", {}, {"kv"});
  if (kind == "template") return test::open_device("template:0");
  return test::open_device("cpu:f32");
}

models::LoadOptions options_for(std::uint32_t page_size = 0) {
  models::LoadOptions options;
  options.max_sequences = 4;
  options.max_step_tokens = 20;
  options.page_size = page_size;
  options.executor = test::policy(device::FallbackPolicy::kAllow);
  return options;
}

class SeveralDevicesTest : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  std::string first() const { return std::get<0>(GetParam()); }
  std::string second() const { return std::get<1>(GetParam()); }

  // Tokens and logits, or where a device computes in F16: what it chooses where the best token leads clearly.
  void expect_right(const Outputs& got, const Outputs& want, std::size_t vocabulary) const {
    if (first() != "opaque_f16" && second() != "opaque_f16") return test::expect_same(got, want);
    constexpr double kBound = 0.03;
    EXPECT_LE(worst_difference(got, want), kBound);
    EXPECT_GT(expect_same_choices(got, want, vocabulary, kBound), got.logits.size() / vocabulary / 2);
  }

  test::TempFolder folder_, other_folder_;
  std::shared_ptr<device::Device> reference_ = test::open_device("cpu:f32");
};

TEST_P(SeveralDevicesTest, SplitLayersGiveTheSameTokens) {
  for (const auto& path : {test::write_tiny_llama(folder_, {3, true, 7}), test::write_tiny_gpt2(folder_),
                           test::write_tiny_hf(other_folder_, test::TinyHf::kQwen2)}) {
    const models::ModelFile file(path);
    const Outputs want = test::run_all(*test::load_on(path, reference_));
    const auto model =
        models::load(file, {{open(first()), 1}, {open(second()), std::nullopt}}, reference_, options_for());
    const auto& kv = model->executor().kv();
    EXPECT_EQ(kv.home(0), 0u);
    EXPECT_EQ(kv.home(1), 1u);
    expect_right(test::run_all(*model), want, model->shape().vocab_size);
  }
}

TEST_P(SeveralDevicesTest, PrefillAndDecodeApartGiveTheSameTokens) {
  for (const auto& path : {test::write_tiny_llama(folder_, {2, false, 6}), test::write_tiny_gpt2(folder_),
                           test::write_tiny_hf(other_folder_, test::TinyHf::kQwen2)}) {
    const models::ModelFile file(path);
    const Outputs want = test::run_all(*test::load_on(path, reference_));
    const auto a = open(first()), b = open(second());
    const std::uint32_t page_size = models::resolve(options_for(), file.spec(), {a, b}).page_size;
    models::PhaseModel model(models::load(file, a, reference_, options_for(page_size)),
                             models::load(file, b, reference_, options_for(page_size)));
    expect_right(test::run_all(model), want, model.shape().vocab_size);
    EXPECT_GT(model.pages_moved(), 0u);
  }
}

constexpr const char* kKinds[] = {"cpu", "opaque", "opaque_f16", "template", "opaque_without_kv"};

INSTANTIATE_TEST_SUITE_P(Pairs, SeveralDevicesTest,
                         testing::Combine(testing::ValuesIn(kKinds), testing::ValuesIn(kKinds)), [](const auto& each) {
                           return std::string(std::get<0>(each.param)) + "_then_" + std::get<1>(each.param);
                         });

TEST(KvCopyTest, BringsPagesOverBitForBit) {
  test::TempFolder folder;
  const auto path = test::write_tiny_llama(folder, {2});
  const models::ModelFile file(path);
  const auto reference = test::open_device("cpu:f32");
  const auto opaque = open("opaque");
  const std::uint32_t page_size = models::resolve(options_for(), file.spec(), {opaque, reference}).page_size;
  const auto from = models::load(file, opaque, reference, options_for(page_size));
  const auto to = models::load(file, reference, reference, options_for(page_size));
  test::run_all(*from);  // fills pages
  test::run_all(*to);
  const std::vector<std::int32_t> pages{2, 0};
  models::copy_kv_pages(from->executor(), to->executor(), 0, pages);
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    device::KvPool &a = from->executor().kv(), &b = to->executor().kv();
    std::vector<std::byte> ka(2 * a.k_page_bytes(layer)), va(2 * a.v_page_bytes(layer)), kb(ka.size()), vb(va.size());
    a.read_pages(layer, pages, ka, va);
    b.read_pages(layer, pages, kb, vb);
    EXPECT_EQ(ka, kb);
    EXPECT_EQ(va, vb);
    const std::int32_t absent = 100000;
    EXPECT_ERROR(a.read_pages(layer, std::span(&absent, 1), std::span(ka).first(ka.size() / 2),
                              std::span(va).first(va.size() / 2)),
                 ErrorCode::kInternal, "aren't there");
  }
}

}  // namespace
}  // namespace backplane

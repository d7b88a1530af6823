// The forms a weight takes on devices that want it one way or another.
#include "core/device/weight.h"

#include "tests/unit/device/runs.h"

namespace backplane::device {
namespace {

using Kind = WeightForm::Kind;

class WeightTest : public testing::Test {
 protected:
  Devices devices(const std::string& options) {
    return {test::open_opaque("opaque:f32", options), test::open_device("cpu:f32")};
  }
  // [2,3], or stored as its transpose.
  WeightSource source(bool transposed) const {
    const auto& values = transposed ? transposed_ : straight_;
    WeightSource made;
    made.name = "w";
    made.stored = {std::as_bytes(std::span(values)), DType::kF32, transposed ? 3u : 2u, transposed ? 2u : 3u};
    made.transposed = transposed;
    return made;
  }
  static std::vector<Kind> kinds(const std::vector<WeightForm>& forms) {
    std::vector<Kind> out;
    for (const WeightForm& form : forms) out.push_back(form.kind);
    return out;
  }

  const std::vector<float> straight_{1, 2, 3, 4, 5, 6}, transposed_{1, 4, 2, 5, 3, 6};
};

TEST_F(WeightTest, ImportedComesBackBitForBit) {
  for (const bool transposed : {false, true}) {
    const Devices both = devices("");
    Weight weight(both, source(transposed));
    weight.add_use(BP_USE_LINEAR);
    const auto forms = weight.forms(0, BP_USE_LINEAR);
    ASSERT_EQ(forms[0].kind, Kind::kImported);
    EXPECT_FALSE(forms[0].transposed) << "the plugin has straightened it";
    EXPECT_EQ(weight.realize(0, weight.choose(0, forms[0])), 24u);
    EXPECT_EQ(weight.realize(0, 0), 0u) << "once";
    const bp_matrix matrix = weight.matrix(0, 0);
    EXPECT_EQ(matrix.tensor.shape[0], 2);
    EXPECT_EQ(matrix.tensor.shape[1], 3);
    std::vector<float> back(6);
    AbiCall call;
    const WeightSource from = source(transposed);
    ASSERT_EQ(both[0]->tables().weights->export_rows(both[0]->handle(), both[0]->stream(), call.context(),
                                                     matrix.weight, 0, 0, from.stored.rows, back.data(), 24),
              BP_OK);
    both[0]->sync();
    EXPECT_EQ(back, transposed ? transposed_ : straight_);
  }
}

TEST_F(WeightTest, StraightenedForADeviceThatCantImport) {
  const Devices both = devices("no_weights=1");
  Weight weight(both, source(true));
  weight.add_use(BP_USE_LINEAR);
  const auto forms = weight.forms(0, BP_USE_LINEAR);
  EXPECT_EQ(kinds(forms), (std::vector<Kind>{Kind::kCanonical, Kind::kConverted}));
  EXPECT_TRUE(forms[0].transposed);
  EXPECT_EQ(weight.describe(forms[0]).tensor.stride[0], 4);
  EXPECT_EQ(weight.describe(forms[0]).tensor.stride[1], 8);
  const std::size_t form = weight.choose(0, forms[1]);
  EXPECT_EQ(weight.realize(0, form), 24u);
  std::vector<float> values(6);
  AbiCall call;
  ASSERT_EQ(both[0]->tables().buffer->download(both[0]->handle(), both[0]->stream(), call.context(),
                                               weight.matrix(0, form).tensor.buffer, 0, values.data(), 24),
            BP_OK);
  both[0]->sync();
  EXPECT_EQ(values, straight_);
}

TEST_F(WeightTest, InPlaceOnTheReference) {
  const Devices both = devices("");
  Weight weight(both, source(false));
  weight.add_use(BP_USE_LINEAR);
  const auto forms = weight.forms(1, BP_USE_LINEAR);
  ASSERT_EQ(forms[0].kind, Kind::kCanonical);
  EXPECT_EQ(weight.realize(1, weight.choose(1, forms[0])), 0u) << "takes no memory";
}

TEST_F(WeightTest, ImportIsAskedForTheUsesThatAreLeft) {
  const Devices both = devices("no_embed=1");
  Weight weight(both, source(false));
  weight.add_use(BP_USE_EMBED);
  weight.add_use(BP_USE_LINEAR);
  EXPECT_EQ(weight.forms(0, BP_USE_EMBED)[0].kind, Kind::kCanonical) << "the plugin imports no tables";
  const auto linear = weight.forms(0, BP_USE_LINEAR);
  ASSERT_EQ(linear[0].kind, Kind::kImported) << "not for both, but for this one";
  EXPECT_EQ(linear[0].uses, std::uint64_t{BP_USE_LINEAR});
  weight.choose(0, weight.forms(0, BP_USE_EMBED)[0]);
  EXPECT_EQ(weight.forms(0, BP_USE_LINEAR)[0].kind, Kind::kCanonical) << "what it has already comes first";

  const Devices able = devices("");
  Weight tied(able, source(false));
  tied.add_use(BP_USE_EMBED);
  tied.add_use(BP_USE_LINEAR);
  EXPECT_EQ(tied.forms(0, BP_USE_LINEAR)[0].uses, std::uint64_t{BP_USE_EMBED | BP_USE_LINEAR});
  tied.drop_use(0, BP_USE_EMBED);
  EXPECT_EQ(tied.forms(0, BP_USE_LINEAR)[0].uses, std::uint64_t{BP_USE_LINEAR});
}

TEST_F(WeightTest, TwoFormsWhereTwoOpsDisagree) {
  const Devices both = devices("");
  Weight weight(both, source(true));
  weight.add_use(BP_USE_LINEAR);
  const auto forms = weight.forms(0, BP_USE_LINEAR);
  const std::size_t a = weight.choose(0, forms[0]), b = weight.choose(0, forms.back());
  EXPECT_NE(a, b);
  EXPECT_EQ(weight.choose(0, forms[0]), a);
  EXPECT_EQ(weight.realize(0, a) + weight.realize(0, b), 48u);
  EXPECT_NE(weight.matrix(0, a).weight, nullptr);
  EXPECT_EQ(weight.matrix(0, b).weight, nullptr);
  EXPECT_NE(weight.matrix(0, b).tensor.buffer, nullptr);
}

TEST_F(WeightTest, TransposedBlocksAreRefused) {
  const Devices both = devices("");
  const std::vector<std::byte> blocks(34);
  WeightSource bad;
  bad.stored = {blocks, DType::kQ8_0, 1, 32};
  bad.transposed = true;
  EXPECT_ERROR(Weight(both, bad), ErrorCode::kBadFile, "transposed");
}

TEST_F(WeightTest, TiedEmbeddingIsStoredOnce) {
  test::TempFolder folder;
  const auto path = write_tiny_llama(folder, {.layers = 1, .tied = true});
  const std::uint64_t matrices = 4ull * (96 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32);
  const auto bytes = [&](const std::string& options, std::uint64_t* calls = nullptr) {
    ExecutorOptions executor = test::policy(FallbackPolicy::kAllow);
    std::uint64_t last = 0, total = 0;
    executor.progress = [&](std::uint64_t done, std::uint64_t of) {
      EXPECT_EQ(done, ++last);
      total = of;
    };
    const auto model = test::load_on(path, test::open_opaque("opaque:f32", options), executor);
    EXPECT_EQ(last, total);
    if (calls) *calls = total;
    return model->executor().weight_bytes();
  };
  std::uint64_t steps = 0;
  EXPECT_EQ(bytes("", &steps), matrices);
  EXPECT_EQ(steps, 8u);
  EXPECT_EQ(bytes("without=EMBED"), matrices) << "the reference reads the file in place";
  EXPECT_EQ(bytes("no_embed=1"), matrices) << "one canonical copy serves both";
}

}  // namespace
}  // namespace backplane::device

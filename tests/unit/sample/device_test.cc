// The sampler draws what bp_sample_args defines: the reference plugin's SAMPLE gives the same tokens.
#include <cmath>
#include <random>

#include "core/sample/sampler.h"
#include "tests/unit/cpu/rig.h"

namespace backplane::sample {
namespace {

using cpu_test::Rig;

struct Row {
  std::vector<double> logits;
  SamplingParams params;
  std::uint32_t number = 0;  // of the token
};

std::vector<std::int32_t> by_device(Rig& rig, const std::vector<Row>& rows) {
  const auto n = static_cast<std::int64_t>(rows.size()), size = static_cast<std::int64_t>(rows[0].logits.size());
  bp_sample_args args{};
  std::vector<double> all, temperature, top_p, min_p;
  std::vector<std::int32_t> top_k;
  std::vector<std::uint64_t> seed, counter;
  for (const Row& row : rows) {
    all.insert(all.end(), row.logits.begin(), row.logits.end());
    temperature.push_back(row.params.temperature);
    top_p.push_back(row.params.top_p);
    min_p.push_back(row.params.min_p);
    top_k.push_back(row.params.top_k);
    seed.push_back(row.params.seed);
    counter.push_back((std::uint64_t{row.params.choice} << 32) + row.number);
  }
  args.logits = rig.reals({n, size}, all);
  args.temperature = rig.bytes(BP_TYPE_F64, {n}, temperature.data());
  args.top_p = rig.bytes(BP_TYPE_F64, {n}, top_p.data());
  args.min_p = rig.bytes(BP_TYPE_F64, {n}, min_p.data());
  args.top_k = rig.bytes(BP_TYPE_I32, {n}, top_k.data());
  args.seed = rig.bytes(BP_TYPE_U64, {n}, seed.data());
  args.counter = rig.bytes(BP_TYPE_U64, {n}, counter.data());
  args.ids = rig.bytes(BP_TYPE_I32, {n});
  EXPECT_EQ(rig.run(BP_OP_SAMPLE, args), BP_OK) << rig.reason;
  std::vector<std::int32_t> ids;
  for (const double id : rig.read(args.ids)) ids.push_back(static_cast<std::int32_t>(id));
  return ids;
}

std::vector<Row> random_rows(std::size_t size, std::mt19937_64& random) {
  const auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> list[] = {values...};
    return list[random() % std::size(list)];
  };
  std::normal_distribution<double> normal(0, 3);
  std::vector<Row> rows(60);
  for (Row& row : rows) {
    for (std::size_t i = 0; i < size; ++i) {
      // What float32 holds, so that all see the same; some rows with many ties.
      const double logit = normal(random);
      row.logits.push_back(random() % 3 == 0 ? std::round(logit) : static_cast<double>(static_cast<float>(logit)));
    }
    if (size > 1 && random() % 4 == 0) row.logits[random() % size] = -std::numeric_limits<double>::infinity();
    row.params = {.temperature = one_of(0.0, 0.2, 0.8, 1.0, 1.5, 30.0),
                  .top_k = one_of(0, 0, 1, 7, 40, 1000, 100'000),
                  .top_p = one_of(1.0, 1.0, 0.95, 0.5, 0.02),
                  .min_p = one_of(0.0, 0.0, 0.05, 0.4, 1.0),
                  .seed = random(),
                  .choice = static_cast<std::uint32_t>(one_of(0, 0, 1, 6))};
    row.number = static_cast<std::uint32_t>(random() % 5);
  }
  return rows;
}

TEST(Device, DrawsTheSamplersTokens) {
  std::mt19937_64 random(12);
  for (const std::uint32_t index : {0u, 1u}) {  // cpu:f32, cpu:f64
    Rig rig(index);
    for (const std::size_t size : {1u, 5u, 300u, 6000u}) {
      for (int round = 0; round < 6; ++round) {
        const std::vector<Row> rows = random_rows(size, random);
        const std::vector<std::int32_t> ids = by_device(rig, rows);
        for (std::size_t r = 0; r < rows.size(); ++r) {
          Sampler sampler(rows[r].params);
          for (std::uint32_t n = 0; n < rows[r].number; ++n) sampler.accept(0);
          ASSERT_EQ(sampler.sample(rows[r].logits), ids[r]) << "row " << r << " of " << size << " logits";
        }
      }
    }
  }
}

}  // namespace
}  // namespace backplane::sample

// TOPK and SAMPLE over vocabularies for which they take more threads than the conformance suite's.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/unit/cuda/emulated.h"

namespace backplane::test {
namespace {

constexpr std::int64_t kVocabulary = 6001;

// Logits with many ties.
std::vector<float> logits() {
  std::mt19937 random(11);
  std::vector<float> values(kVocabulary);
  for (float& value : values) value = static_cast<float>(random() % 1000) / 100 - 5;
  return values;
}

// Indices from the largest on, of equal ones the lowest first.
std::vector<std::int32_t> ranked(const std::vector<float>& values) {
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
  });
  return order;
}

template <class T>
Tensor vector_of(const std::shared_ptr<device::Device>& on, bp_type type, const std::vector<T>& values) {
  Tensor tensor(on, type, 1, static_cast<std::int64_t>(values.size()));
  tensor.view.rank = 1;
  tensor.view.shape[0] = static_cast<std::int64_t>(values.size());
  tensor.view.stride[0] = sizeof(T);
  on->upload(tensor.buffer, 0, std::as_bytes(std::span(values)));
  return tensor;
}

std::vector<std::int32_t> ids_in(device::Device& on, const Tensor& tensor) {
  std::vector<std::int32_t> ids(tensor.buffer.bytes() / sizeof(std::int32_t));
  on.download(tensor.buffer, 0, std::as_writable_bytes(std::span(ids)));
  return ids;
}

TEST(CudaChoice, TheLargestOfManyComeInOrder) {
  constexpr std::int64_t kTop = 40;
  const auto device = open_emulated();
  const Tensor x(device, 1, logits()), ids(device, BP_TYPE_I32, 1, kTop), values(device, BP_TYPE_F32, 1, kTop);
  bp_topk_args args{};
  args.x = x.view;
  args.ids = ids.view;
  args.values = values.view;
  enqueue(*device, BP_OP_TOPK, args);
  const std::vector<std::int32_t> order = ranked(logits());
  EXPECT_EQ(ids_in(*device, ids), std::vector<std::int32_t>(order.begin(), order.begin() + kTop));
}

// The first of u = 0, which is the best one, and for numbers that the ABI's formula makes of a seed, what it says.
TEST(CudaChoice, DrawsFromManyWhatTheDefinitionSays) {
  const auto device = open_emulated();
  std::vector<float> rows;
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> row = logits();
    rows.insert(rows.end(), row.begin(), row.end());
  }
  const Tensor x(device, 4, rows);
  const std::vector<double> temperature = {0, 0.7, 1, 0.7}, top_p = {1, 1, 0.5, 1}, min_p = {0, 0, 0, 0.999};
  const std::vector<std::int32_t> top_k = {0, 1, 0, 0};
  const std::vector<std::uint64_t> seed = {1, 2, 3, 4}, counter = {0, 1, 2, 3};
  const Tensor t = vector_of(device, BP_TYPE_F64, temperature), p = vector_of(device, BP_TYPE_F64, top_p),
               m = vector_of(device, BP_TYPE_F64, min_p), k = vector_of(device, BP_TYPE_I32, top_k),
               s = vector_of(device, BP_TYPE_U64, seed), c = vector_of(device, BP_TYPE_U64, counter),
               out = vector_of(device, BP_TYPE_I32, std::vector<std::int32_t>(4));
  bp_sample_args args{};
  args.logits = x.view;
  args.temperature = t.view;
  args.top_p = p.view;
  args.min_p = m.view;
  args.top_k = k.view;
  args.seed = s.view;
  args.counter = c.view;
  args.ids = out.view;
  enqueue(*device, BP_OP_SAMPLE, args);
  const std::vector<std::int32_t> ids = ids_in(*device, out), order = ranked(logits());
  EXPECT_EQ(ids[0], order[0]);
  EXPECT_EQ(ids[1], order[0]);
  // The third is one of those that half of the probability needs.
  double sum = 0, whole = 0;
  for (const float logit : logits()) whole += std::exp(static_cast<double>(logit));
  std::size_t kept = 0;
  while (sum < 0.5 * whole) sum += std::exp(static_cast<double>(logits()[static_cast<std::size_t>(order[kept++])]));
  const auto third = std::find(order.begin(), order.end(), ids[2]) - order.begin();
  EXPECT_LT(third, static_cast<std::ptrdiff_t>(kept));
  EXPECT_EQ(logits()[static_cast<std::size_t>(ids[3])], logits()[static_cast<std::size_t>(order[0])]);
}

TEST(CudaChoice, ATemperatureThatMakesNoSenseFailsTheStep) {
  const auto device = open_emulated();
  const Tensor x(device, 1, {1, 2, 3});
  const Tensor t = vector_of(device, BP_TYPE_F64, std::vector<double>{-1}),
               one = vector_of(device, BP_TYPE_F64, std::vector<double>{1}),
               k = vector_of(device, BP_TYPE_I32, std::vector<std::int32_t>{0}),
               s = vector_of(device, BP_TYPE_U64, std::vector<std::uint64_t>{0}),
               out = vector_of(device, BP_TYPE_I32, std::vector<std::int32_t>{7});
  bp_sample_args args{};
  args.logits = x.view;
  args.temperature = t.view;
  args.top_p = args.min_p = one.view;
  args.top_k = k.view;
  args.seed = args.counter = s.view;
  args.ids = out.view;
  enqueue(*device, BP_OP_SAMPLE, args);
  EXPECT_THROW(device->sync(), Error);
  EXPECT_EQ(ids_in(*device, out), std::vector<std::int32_t>{7});
}

}  // namespace
}  // namespace backplane::test

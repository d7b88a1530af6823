// What the suite can't see of attention on the GPU: that it reads the cache once, in whole sectors, and that a token
// has the same bits whether its sequence is spread over blocks or not.
#include <cmath>
#include <random>

#include "core/base/abi_call.h"
#include "tests/unit/cuda/emulated.h"

namespace backplane::test {
namespace {

struct Heads {
  bp_type type;
  std::uint32_t heads, kv_heads, dim;
};

constexpr std::uint32_t kPageSize = 16;

std::uint64_t row_bytes(const Heads& heads) {
  const plugin::TypeInfo info = plugin::type_info(heads.type);
  return heads.dim / info.block_elements * info.block_bytes;
}

// Sequences of such lengths that decode one token each, over pages of random bits that are numbers.
class Decoding {
 public:
  Decoding(const std::shared_ptr<device::Device>& on, const Heads& heads, std::vector<std::int32_t> lengths)
      : device_(on), heads_(heads), lengths_(std::move(lengths)) {
    const auto longest = static_cast<std::uint32_t>(*std::max_element(lengths_.begin(), lengths_.end()));
    step_.size = sizeof(step_);
    step_.tokens = step_.sequences = step_.n_decode = static_cast<std::uint32_t>(lengths_.size());
    step_.groups = step_.max_q = 1;
    step_.page_size = kPageSize;
    step_.max_pages = (longest + kPageSize - 1) / kPageSize;
    step_.max_kv = longest;
    upload_step();
    create_cache();
  }
  ~Decoding() { device_->tables().kv->destroy(device_->handle(), kv_); }
  Decoding(const Decoding&) = delete;
  Decoding& operator=(const Decoding&) = delete;

  // What the device believes about where sequences begin.
  void set_starts(const std::vector<std::int32_t>& starts) {
    device_->upload(buffer_, step_.q_start_offset, std::as_bytes(std::span(starts)));
  }

  // Of sequence i the query is `queries[i]`; the result is that of all of them. `workspace` lets chunks be spread.
  std::vector<float> run(const std::vector<float>& queries, std::uint64_t workspace,
                         std::uint32_t code = BP_OP_ATTN_DECODE) {
    const auto tokens = static_cast<std::int64_t>(step_.tokens), width = std::int64_t{heads_.heads} * heads_.dim;
    Tensor q(device_, tokens, queries), out(device_, BP_TYPE_F32, tokens, width);
    for (Tensor* tensor : {&q, &out}) {
      tensor->view.rank = 3;
      tensor->view.shape[1] = heads_.heads;
      tensor->view.shape[2] = heads_.dim;
      tensor->view.stride[1] = heads_.dim * 4;
      tensor->view.stride[2] = 4;
    }
    const device::Buffer room = device_->alloc(workspace, "a test");
    bp_attention_args args{};
    args.size = sizeof(args);
    args.step = &step_;
    args.q = q.view;
    args.out = out.view;
    args.kv = kv_;
    args.last_sequence = step_.sequences;
    args.kv_heads = heads_.kv_heads;
    args.scale = 0.1;
    bp_op op{};
    op.size = sizeof(op);
    op.code = code;
    op.args = &args;
    op.workspace = room.handle();
    op.workspace_bytes = workspace;
    device_->run(op);
    return out.read(*device_);
  }

 private:
  // Page m of sequence b is page m of all: they have the same keys, as far as they go.
  void upload_step() {
    std::vector<std::int32_t> numbers;
    const auto add = [&](std::uint64_t& offset, const std::vector<std::int32_t>& values) {
      offset = numbers.size() * sizeof(std::int32_t);
      numbers.insert(numbers.end(), values.begin(), values.end());
    };
    std::vector<std::int32_t> starts, positions, table;
    for (std::int32_t b = 0; b <= static_cast<std::int32_t>(lengths_.size()); ++b) starts.push_back(b);
    for (const std::int32_t length : lengths_) {
      positions.push_back(length - 1);
      for (std::int32_t m = 0; m < static_cast<std::int32_t>(step_.max_pages); ++m) table.push_back(m);
    }
    add(step_.q_start_offset, starts);
    add(step_.pos_offset, positions);
    add(step_.page_table_offset, table);
    add(step_.kv_len_offset, lengths_);
    buffer_ = device_->alloc(numbers.size() * sizeof(std::int32_t), "a test");
    device_->upload(buffer_, 0, std::as_bytes(std::span(numbers)));
    step_.buffer = buffer_.handle();
  }

  void create_cache() {
    const std::uint64_t pages = step_.max_pages;
    bp_kv_layer layer{sizeof(bp_kv_layer), heads_.kv_heads, heads_.dim, heads_.dim, 0};
    bp_kv_desc desc{};
    desc.size = sizeof(desc);
    desc.type = heads_.type;
    desc.page_size = kPageSize;
    desc.groups = desc.layer_count = 1;
    desc.pages = &pages;
    desc.layers = &layer;
    desc.layer_stride = sizeof(layer);
    AbiCall call;
    call.check(device_->tables().kv->create(device_->handle(), call.context(), &desc, &kv_), "create");
    // Bytes 0x30 to 0x3f are the upper halves of small numbers in every type, and quants.
    std::mt19937 random(7);
    std::vector<std::uint8_t> bytes(pages * kPageSize * heads_.kv_heads * row_bytes(heads_));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(0x30 + random() % 16);
    std::vector<std::int32_t> all;
    for (std::uint64_t page = 0; page < pages; ++page) all.push_back(static_cast<std::int32_t>(page));
    call.check(device_->tables().kv->import_pages(device_->handle(), device_->stream(), call.context(), kv_, 0,
                                                  all.data(), pages, bytes.data(), bytes.data()),
               "import_pages");
    device_->sync();
  }

  std::shared_ptr<device::Device> device_;
  const Heads heads_;
  const std::vector<std::int32_t> lengths_;
  bp_step step_{};
  device::Buffer buffer_;
  bp_kv kv_ = nullptr;
};

std::vector<float> queries(const Heads& heads, std::size_t tokens) {
  std::mt19937 random(3);
  std::vector<float> values(tokens * heads.heads * heads.dim);
  for (float& value : values) value = static_cast<float>(random()) / 4e9f - 0.5f;
  return values;
}

class CudaAttention : public testing::TestWithParam<Heads> {
 protected:
  CudaAttention() {
    cuda_emulation::Config config;
    config.count_accesses = true;
    cuda_emulation::configure(config);
  }
  ~CudaAttention() override { cuda_emulation::configure({}); }
};

TEST_P(CudaAttention, ReadsEachKeyAndValueOnceInWholeSectors) {
  const Heads heads = GetParam();
  const auto device = open_emulated();
  Decoding decoding(device, heads, {700, 300});
  for (const float value : decoding.run(queries(heads, 2), 1 << 20)) ASSERT_TRUE(std::isfinite(value));
  const cuda_emulation::KernelCounts counts = cuda_emulation::kernel_counts("attention_kernel");
  const std::uint64_t sectors = 2 * 1000 * heads.kv_heads * row_bytes(heads) / 32;
  EXPECT_GE(counts.global_loads.cost, sectors) << "the counters see the cache";
  EXPECT_LE(counts.global_loads.cost, sectors * 5 / 4) << cuda_emulation::count_report();
  EXPECT_LE(counts.global_loads.cost, counts.global_loads.minimum * 5 / 4) << cuda_emulation::count_report();
  EXPECT_LE(counts.shared_loads.cost, counts.shared_loads.minimum * 5 / 4) << cuda_emulation::count_report();
  EXPECT_LE(counts.shared_stores.cost, counts.shared_stores.minimum * 5 / 4) << cuda_emulation::count_report();
}

TEST_P(CudaAttention, SpreadOverBlocksATokenHasTheSameBits) {
  const Heads heads = GetParam();
  const auto device = open_emulated();
  const std::vector<float> q = queries(heads, 1);
  const std::vector<float> together = Decoding(device, heads, {523}).run(q, 256);
  EXPECT_EQ(Decoding(device, heads, {523}).run(q, 1 << 20), together);
  EXPECT_EQ(cuda_emulation::calls("cudaLaunchKernelExC"), 6u) << "a launch each, and two for the pages";
  std::vector<float> others = q;
  for (int i = 0; i < 3; ++i) others.insert(others.end(), q.begin(), q.end());
  const std::vector<float> among = Decoding(device, heads, {523, 3, 260, 17}).run(others, 1 << 20);
  EXPECT_EQ(std::vector<float>(among.begin(), among.begin() + static_cast<std::ptrdiff_t>(q.size())), together);
}

// A step whose sequences begin where they can't fails with a reason, and nothing is read or written that isn't there:
// the next step is as it would have been.
TEST(CudaAttentionFailure, SequencesThatBeginOutsideTheStepFailItAndNothingElse) {
  const Heads heads{BP_TYPE_F32, 16, 1, 64};
  const auto device = open_emulated();
  const std::vector<float> q = queries(heads, 3);
  Decoding decoding(device, heads, {300, 270, 290});
  for (const std::uint32_t code : {BP_OP_ATTN_DECODE, BP_OP_ATTN_PREFILL}) {
    const std::vector<float> expected = decoding.run(q, 1 << 20, code);
    for (const std::vector<std::int32_t>& wrong : std::vector<std::vector<std::int32_t>>{{0, 1, 2, 4},
                                                                                         {0, 1, 2, 1 << 30},
                                                                                         {-1, 0, 1, 2},
                                                                                         {INT32_MIN, 1, 2, 3},
                                                                                         {0, 2, 1, 2},
                                                                                         {0, 2, 2, 3},
                                                                                         {0, 3, 3, 3},
                                                                                         {2, 1, 2, 3}}) {
      decoding.set_starts(wrong);
      try {
        decoding.run(q, 1 << 20, code);
        FAIL() << "sequences from " << wrong[0] << ", " << wrong[1] << ", " << wrong[2] << " to " << wrong[3];
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kDevice) << error.what();
        EXPECT_NE(std::string(error.what()).find("outside its tensor"), std::string::npos) << error.what();
      }
      ASSERT_FALSE(device->lost());
    }
    decoding.set_starts({0, 1, 2, 3});
    EXPECT_EQ(decoding.run(q, 1 << 20, code), expected);
  }
}

// Two models whose heads differ in size share a kernel, and each may be between its two calls when the other launches.
TEST(CudaSharedMemory, SmallHeadsLeaveRoomForLargeOnes) {
  cuda_emulation::configure({});
  const auto device = open_emulated();
  int limit = 0;
  for (const std::uint32_t dim : {128, 64}) {
    const Heads heads{BP_TYPE_F32, 16, 1, dim};
    Decoding(device, heads, {40}).run(queries(heads, 1), 256, BP_OP_ATTN_PREFILL);
    const int now = cuda_emulation::shared_limit("prefill_kernel<float, 2u, 16>");
    EXPECT_GT(now, 48 << 10) << "heads of " << dim;
    EXPECT_GE(now, limit) << "heads of " << dim;
    limit = now;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttention,
                         testing::Values(Heads{BP_TYPE_BF16, 8, 2, 128}, Heads{BP_TYPE_F16, 7, 1, 64},
                                         Heads{BP_TYPE_F32, 4, 2, 96}, Heads{BP_TYPE_BF16, 8, 1, 256},
                                         Heads{BP_TYPE_Q8_0, 4, 1, 128}, Heads{BP_TYPE_F8_E4M3, 16, 2, 128},
                                         Heads{BP_TYPE_BF16, 2, 2, 80}));

}  // namespace
}  // namespace backplane::test

// Bytes that devices share by copying, the step on each device, and who owns the KV cache.
#include "core/device/storage.h"

#include "core/device/kv_pool.h"
#include "core/device/step_buffer.h"
#include "tests/unit/device/runs.h"

namespace backplane::device {
namespace {

std::vector<std::byte> bytes(std::size_t count, int value) { return {count, static_cast<std::byte>(value)}; }

void put(Device& device, const Buffer& buffer, const std::vector<std::byte>& data) { device.upload(buffer, 0, data); }

std::vector<std::byte> get(Storage& storage, std::size_t count) {
  std::vector<std::byte> out(count);
  storage.get_host(0, out);
  return out;
}

class StorageTest : public testing::Test {
 protected:
  const Devices apart_{test::open_opaque(), test::open_device("cpu:f32")};
  const Devices shared_{test::open_opaque("opaque:f32", "visible=1"), test::open_device("cpu:f32")};
};

TEST_F(StorageTest, CopiesWhatIsUsedWhenTheOtherSideNeedsIt) {
  Storage storage(apart_, 100, "test");
  std::uint64_t staged = 0;
  put(*apart_[0], storage.write(0, 40), bytes(40, 7));
  storage.read(0, staged);
  EXPECT_EQ(staged, 0u);
  EXPECT_NE(storage.read(1, staged).host(), nullptr);
  EXPECT_EQ(staged, 40u) << "not the 60 bytes that nobody wrote";
  storage.read(1, staged);
  storage.read(0, staged);
  EXPECT_EQ(staged, 40u) << "both are current";
  put(*apart_[1], storage.update(1, 80, staged), bytes(80, 9));
  EXPECT_EQ(staged, 40u);
  storage.read(0, staged);
  EXPECT_EQ(staged, 120u) << "an update that reaches further makes more of it worth copying";
  EXPECT_EQ(get(storage, 80), bytes(80, 9));
}

TEST_F(StorageTest, ContentsOfTheHost) {
  Storage storage(apart_, 8, "test");
  EXPECT_ERROR(get(storage, 8), ErrorCode::kInternal, "before it was written");
  EXPECT_ERROR(storage.set_host(bytes(7, 0)), ErrorCode::kInternal, "wrong size");
  storage.set_host(bytes(8, 3));
  std::uint64_t staged = 0;
  storage.read(0, staged);
  storage.read(1, staged);
  EXPECT_EQ(staged, 0u) << "not a copy between devices";
  put(*apart_[0], storage.write(0, 8), bytes(8, 4));
  EXPECT_EQ(get(storage, 8), bytes(8, 4));
  storage.set_host(bytes(8, 5));
  EXPECT_EQ(get(storage, 8), bytes(8, 5));
  std::vector<std::byte> out(4);
  EXPECT_ERROR(storage.get_host(5, out), ErrorCode::kInternal, "past the end");
}

TEST_F(StorageTest, SharedMemoryIsOneMemory) {
  Storage storage(shared_, 16, "test");
  std::uint64_t staged = 0;
  const Buffer& first = storage.write(0, 16);
  put(*shared_[0], first, bytes(16, 1));
  const Buffer& second = storage.update(1, 16, staged);
  EXPECT_EQ(second.host(), first.host());
  EXPECT_EQ(second.host()[15], std::byte{1});
  EXPECT_EQ(staged, 0u);
}

TEST_F(StorageTest, PagesOfTheHostAreNeverCopied) {
  Storage opaque(apart_, 16, "pages", Storage::Home::kHost);
  EXPECT_FALSE(opaque.reachable(0));
  EXPECT_TRUE(opaque.reachable(1));
  std::uint64_t staged = 0;
  EXPECT_ERROR(opaque.read(0, staged), ErrorCode::kInternal, "can't reach");
  Storage visible(shared_, 16, "pages", Storage::Home::kHost);
  EXPECT_TRUE(visible.reachable(0));
  EXPECT_EQ(visible.read(0, staged).host(), visible.read(1, staged).host());
}

TEST_F(StorageTest, Views) {
  const Tensor t = make_tensor(nullptr, DType::kF32, {4, 6});
  EXPECT_EQ(t.end(), 96u);
  EXPECT_EQ(t.rows(1, 2).offset, 24u);
  EXPECT_EQ(t.rows(1, 2).end(), 72u);
  const Tensor part = t.columns(2, 4);
  EXPECT_FALSE(part.row_contiguous());
  EXPECT_EQ(part.end(), 96u);
  EXPECT_EQ(part.heads(2).stride[1], 8);
  EXPECT_EQ(t.rows(4, 0).end(), t.rows(4, 0).offset);
  EXPECT_EQ(make_tensor(nullptr, DType::kQ8_0, {2, 64}).end(), 2u * 2 * 34);
}

class StepBufferTest : public testing::Test {
 protected:
  StepBufferTest() {
    limits_.tokens = 4;
    limits_.sequences = 2;
    limits_.rows = 2;
    limits_.max_pages = 3;
    limits_.page_size = 4;
    step_.page_size = 4;
    step_.n_decode = 1;
    step_.max_pages = 2;
    step_.max_q = 2;
    step_.max_kv = 6;
    step_.token = {5, 6, 7};
    step_.pos = {5, 0, 1};
    step_.q_start = {0, 1, 3};
    step_.kv_len = {6, 2};
    step_.page_table = {0, 1, 2, -1};
    step_.slot = {5, 8, 9};
    step_.rope_row = {0, 0, 0};
    step_.out_row = {0, 2};
  }
  template <class Change>
  void refused(Change&& change, const char* why) {
    sched::Step changed = step_;
    change(changed);
    EXPECT_ERROR(buffer().set(changed), ErrorCode::kInternal, why);
  }
  StepBuffer& buffer() {
    if (!buffer_) buffer_ = std::make_unique<StepBuffer>(devices_, limits_);
    return *buffer_;
  }

  const Devices devices_{test::open_opaque(), test::open_device("cpu:f32")};
  StepLimits limits_;
  sched::Step step_;
  std::unique_ptr<StepBuffer> buffer_;
};

TEST_F(StepBufferTest, PutsTheArraysOnTheDevice) {
  buffer().set(step_);
  const bp_step* step = buffer().on(0);
  EXPECT_EQ(step->tokens, 3u);
  EXPECT_EQ(step->sequences, 2u);
  EXPECT_EQ(step->slot_offset % 256, 0u) << "as the device wants tensors aligned";
  std::vector<std::int64_t> slots(3);
  AbiCall call;
  ASSERT_EQ(devices_[0]->tables().buffer->download(devices_[0]->handle(), devices_[0]->stream(), call.context(),
                                                   step->buffer, step->slot_offset, slots.data(), 24),
            BP_OK);
  devices_[0]->sync();
  EXPECT_EQ(slots, step_.slot);
  EXPECT_EQ(buffer().out_row(0, 1, 1).offset, step->out_row_offset + 4);
  const bp_buffer first = step->buffer;
  const std::uint64_t offset = step->slot_offset;
  sched::Step next = step_;
  buffer().set(next);
  EXPECT_EQ(buffer().on(0)->buffer, first) << "captured work finds it in its place";
  EXPECT_EQ(buffer().on(0)->slot_offset, offset);
  devices_[0]->sync();  // until then it reads `next`
}

// Counts what goes up, and reads it back.
TEST_F(StepBufferTest, UploadsWhatIsNotThereYet) {
  const auto arrays = [&](Slot slot) {
    const bp_step* step = buffer().on(slot);
    devices_[slot]->sync();
    std::vector<std::int32_t> table(4);
    std::vector<std::int64_t> slots(3);
    const std::pair<std::uint64_t, std::span<std::byte>> parts[] = {
        {step->page_table_offset, std::as_writable_bytes(std::span(table))},
        {step->slot_offset, std::as_writable_bytes(std::span(slots))}};
    for (const auto& [offset, to] : parts) {
      AbiCall call;
      EXPECT_EQ(devices_[slot]->tables().buffer->download(devices_[slot]->handle(), devices_[slot]->stream(),
                                                          call.context(), step->buffer, offset, to.data(), to.size()),
                BP_OK);
    }
    devices_[slot]->sync();
    return std::pair{table, slots};
  };
  buffer().set(step_);
  EXPECT_EQ(arrays(0), (std::pair{step_.page_table, step_.slot}));
  sched::Step next = step_;
  next.page_table = {0, 1, 3, 2};
  next.slot = {6, 8, 9};
  buffer().set(next);
  EXPECT_EQ(arrays(0), (std::pair{next.page_table, next.slot})) << "a part of each";
  buffer().set(step_);
  EXPECT_EQ(arrays(0), (std::pair{step_.page_table, step_.slot})) << "and back";
  sched::Step one = step_;
  one.n_decode = 1;
  one.token = {9};
  one.pos = {3};
  one.q_start = {0, 1};
  one.kv_len = {4};
  one.page_table = {2, 1};
  one.slot = {11};
  one.rope_row = {0};
  one.out_row = {0};
  buffer().set(one);
  EXPECT_EQ(arrays(0).first, (std::vector<std::int32_t>{2, 1, 2, -1})) << "a shorter step leaves the rest";
  buffer().set(next);
  EXPECT_EQ(arrays(0), (std::pair{next.page_table, next.slot})) << "which is not taken for more than it is";
  EXPECT_EQ(arrays(1), (std::pair{next.page_table, next.slot})) << "a device that has seen no step before";
  const bp_step* there = buffer().on(0);
  const std::vector<std::int64_t> noise(3, -7);
  AbiCall call;
  ASSERT_EQ(devices_[0]->tables().buffer->upload(devices_[0]->handle(), devices_[0]->stream(), call.context(),
                                                 there->buffer, there->slot_offset, noise.data(), 24),
            BP_OK);
  devices_[0]->sync();
  buffer().forget();
  EXPECT_EQ(arrays(0).second, next.slot) << "what may not have arrived goes up again";
}

// What is recorded can't change its counts any more: they must be those of the longest sequences it will be launched
// for.
TEST_F(StepBufferTest, CountsForAllThatAWidthHolds) {
  buffer().set(step_);
  EXPECT_EQ(buffer().counts()->max_kv, 6u);
  buffer().set(step_, 2);  // its own width
  EXPECT_EQ(buffer().counts()->max_pages, 2u);
  EXPECT_EQ(buffer().counts()->max_kv, 8u);
  buffer().set(step_, 3);
  EXPECT_EQ(buffer().counts()->max_pages, 3u);
  EXPECT_EQ(buffer().counts()->max_kv, 12u);
  EXPECT_EQ(std::vector<std::int32_t>(buffer().counts()->page_table, buffer().counts()->page_table + 6),
            (std::vector<std::int32_t>{0, 1, -1, 2, -1, -1}));
}

TEST_F(StepBufferTest, RefusesWhatWasNotPlanned) {
  EXPECT_NO_THROW(buffer().set(step_));
  using Step = sched::Step;
  refused([](Step& s) { s.token.resize(5), s.pos.resize(5), s.slot.resize(5), s.rope_row.resize(5); }, "larger");
  refused([](Step& s) { s.kv_len = {1, 1, 1}, s.q_start = {0, 1, 2, 3}, s.page_table.resize(6); }, "larger");
  refused([](Step& s) { s.out_row = {0, 1, 2}; }, "larger");
  refused([](Step& s) { s.max_pages = 4, s.page_table.resize(8); }, "larger");
  refused([](Step& s) { s.groups = 2; }, "larger");
  refused([](Step& s) { s.page_size = 8; }, "larger");
  EXPECT_EQ(buffer().counts()->tokens, 3u) << "the last good step is still the step";
}

TEST_F(StepBufferTest, RefusesContradictions) {
  using Step = sched::Step;
  refused([](Step& s) { s.pos.pop_back(); }, "inconsistent");
  refused([](Step& s) { s.q_start = {0, 1}; }, "inconsistent");
  refused([](Step& s) { s.q_start = {0, 2, 2}; }, "inconsistent");
  refused([](Step& s) { s.q_start = {0, 4, 3}; }, "inconsistent");
  refused([](Step& s) { s.q_start = {1, 1, 3}; }, "inconsistent");
  refused([](Step& s) { s.kv_len = {6, 1}; }, "inconsistent");
  refused([](Step& s) { s.kv_len = {7, 2}; }, "inconsistent");
  refused([](Step& s) { s.max_kv = 9, s.kv_len = {9, 2}; }, "inconsistent");
  refused([](Step& s) { s.out_row = {3}; }, "inconsistent");
  refused([](Step& s) { s.out_row = {-1}; }, "inconsistent");
  refused([](Step& s) { s.n_decode = 3; }, "inconsistent");
  refused([](Step& s) { s.page_table.pop_back(); }, "inconsistent");
}

class KvPoolTest : public StorageTest {
 protected:
  KvSpec spec(DType type = DType::kF32) const { return {type, 3, {5, 2}, {{2, 4, 6, 0}, {1, 4, 4, 1}}}; }
};

TEST_F(KvPoolTest, WhoCanOwnTheLayout) {
  EXPECT_TRUE(KvPool(apart_, spec()).implements_own(0));
  EXPECT_FALSE(KvPool(apart_, spec()).implements_own(1)) << "no kv table";
  KvPool pool(apart_, spec());
  pool.create_owned(0);
  EXPECT_TRUE(pool.owned(0));
  EXPECT_NE(pool.handle(0), nullptr);
}

TEST_F(KvPoolTest, CanonicalPagesBeginWhereDevicesWantTensors) {
  KvPool pool(apart_, spec());
  pool.create_canonical();
  EXPECT_FALSE(pool.owned(0));
  EXPECT_FALSE(pool.reachable(0, 0));
  EXPECT_TRUE(pool.reachable(0, 1));
  EXPECT_EQ(pool.spec().bytes(), 4u * (5 * 3 * 2 * (4 + 6) + 2 * 3 * 1 * (4 + 4)));
  const Tensor k = pool.k_pages(0), v = pool.v_pages(0);
  EXPECT_EQ(k.shape, (std::array<std::int64_t, 4>{5, 3, 2, 4}));
  EXPECT_EQ(v.shape, (std::array<std::int64_t, 4>{5, 3, 2, 6}));
  EXPECT_EQ(k.storage, v.storage);
  EXPECT_GE(v.offset, k.end());
  EXPECT_EQ(v.offset % 256, 0u);
  EXPECT_LE(v.end(), v.storage->bytes());
}

}  // namespace
}  // namespace backplane::device

// Streams, events, callbacks and graphs.
#include <cmath>
#include <cstring>

#include "tests/unit/cuda_emulation/emulation.h"

namespace {

/// Pinned host memory.
class Pinned {
 public:
  explicit Pinned(std::size_t count, float value) : count_(count) {
    EXPECT_EQ(cudaMallocHost(&data_, count * sizeof(float)), cudaSuccess);
    fill(value);
  }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  void fill(float value) {
    for (std::size_t i = 0; i < count_; ++i) data_[i] = value;
  }
  float* get() const { return data_; }

 private:
  float* data_ = nullptr;
  std::size_t count_;
};

class Streams : public EmulationTest {
 protected:
  void SetUp() override {
    EmulationTest::SetUp();
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
  }
  void TearDown() override {
    cudaEventDestroy(event_);
    cudaStreamDestroy(other_);
    cudaStreamDestroy(stream_);
    EmulationTest::TearDown();
  }
  cudaStream_t stream_ = nullptr, other_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

constexpr std::size_t kCount = 32, kBytes = kCount * sizeof(float);

TEST_F(Streams, NothingHappensUntilSomeoneWaits) {
  const DeviceArray<float> array(kCount);
  const Pinned host(kCount, -1.0f);
  ASSERT_EQ(launch_on(stream_, 1, kCount, fill_value, array.get(), 5.0f), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(host.get(), array.get(), kBytes, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_EQ(host.get()[0], -1.0f);
  ASSERT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
  EXPECT_EQ(host.get()[0], -1.0f);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(host.get()[kCount - 1], 5.0f);
}

TEST_F(Streams, PinnedMemoryIsReadLateAndOtherMemoryAtOnce) {
  const DeviceArray<float> from_pinned(kCount), from_pageable(kCount);
  Pinned pinned(kCount, 1.0f);
  std::vector<float> pageable(kCount, 1.0f);
  ASSERT_EQ(cudaMemcpyAsync(from_pinned.get(), pinned.get(), kBytes, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(from_pageable.get(), pageable.data(), kBytes, cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  pinned.fill(2.0f);  // too early: the copy hasn't been waited for
  pageable.assign(kCount, 2.0f);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(from_pinned.values()[0], 2.0f);
  EXPECT_EQ(from_pageable.values()[0], 1.0f);
}

TEST_F(Streams, AStreamThatWaitsForAnEventSeesWhatCameBefore) {
  const DeviceArray<float> array(kCount);
  const Pinned ordered(kCount, -1.0f), unordered(kCount, -1.0f);
  ASSERT_EQ(launch_on(stream_, 1, kCount, fill_value, array.get(), 5.0f), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(unordered.get(), array.get(), kBytes, cudaMemcpyDeviceToHost, other_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(ordered.get(), array.get(), kBytes, cudaMemcpyDeviceToHost, other_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
  EXPECT_TRUE(std::isnan(unordered.get()[0]));  // the copy before the wait was too early
  EXPECT_EQ(ordered.get()[0], 5.0f);
}

TEST_F(Streams, AnEventThatIsAskedForGetsReached) {
  const DeviceArray<float> array(kCount);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);  // never recorded
  ASSERT_EQ(launch_on(stream_, 1, kCount, fill_value, array.get(), 5.0f), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(Streams, TheNullStreamWaitsForBlockingStreamsOnly) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  const DeviceArray<float> seen(kCount), unseen(kCount);
  ASSERT_EQ(launch_on(blocking, 1, kCount, fill_value, seen.get(), 5.0f), cudaSuccess);
  ASSERT_EQ(launch_on(stream_, 1, kCount, fill_value, unseen.get(), 5.0f), cudaSuccess);
  EXPECT_EQ(seen.values()[0], 5.0f);
  EXPECT_TRUE(std::isnan(unseen.values()[0]));
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(Streams, CallbacksRunInOrderAndMayNotCallBack) {
  struct Seen {
    const float* value;
    float found;
    cudaError_t status;
  };
  const DeviceArray<float> array(kCount);
  const Pinned host(kCount, -1.0f);
  Seen seen{host.get(), 0.0f, cudaSuccess};
  ASSERT_EQ(launch_on(stream_, 1, kCount, fill_value, array.get(), 5.0f), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(host.get(), array.get(), kBytes, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(
                stream_,
                [](void* data) {
                  auto& all = *static_cast<Seen*>(data);
                  all.found = *all.value;
                  all.status = cudaDeviceSynchronize();
                },
                &seen),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(seen.found, 5.0f);
  EXPECT_EQ(seen.status, cudaErrorNotPermitted);
}

TEST_F(Streams, GraphsReplayWhatTheirParametersWere) {
  const DeviceArray<float> a(kCount), b(kCount), sum(kCount);
  float value = 1.0f;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(launch_on(stream_, 1, kCount, fill_value, a.get(), value), cudaSuccess);
  value = 100.0f;
  ASSERT_EQ(launch_on(stream_, 1, kCount, add_vectors, a.get(), b.get(), sum.get(), 32), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_TRUE(std::isnan(a.values()[0]));  // captured, not executed
  for (const float other : {10.0f, 20.0f}) {
    ASSERT_EQ(launch_on(stream_, 1, kCount, fill_value, b.get(), other), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(ready, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(sum.values(), std::vector<float>(kCount, other + 1.0f));
  }
  EXPECT_EQ(cudaGraphExecDestroy(ready), cudaSuccess);
}

TEST_F(Streams, ACaptureSpreadsOverEventsAndMustComeBack) {
  const DeviceArray<float> array(kCount);
  cudaEvent_t back = nullptr;
  ASSERT_EQ(cudaEventCreate(&back), cudaSuccess);
  for (const bool joined : {true, false}) {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
    ASSERT_EQ(launch_on(other_, 1, kCount, fill_value, array.get(), 5.0f), cudaSuccess);
    if (joined) {
      ASSERT_EQ(cudaEventRecord(back, other_), cudaSuccess);
      ASSERT_EQ(cudaStreamWaitEvent(stream_, back, 0), cudaSuccess);
    }
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    EXPECT_EQ(graph != nullptr, joined);
    EXPECT_EQ(cudaGraphDestroy(graph), graph != nullptr ? cudaSuccess : cudaErrorInvalidValue);
  }
  EXPECT_EQ(cudaEventDestroy(back), cudaSuccess);
}

TEST_F(Streams, ACaptureIsSpoiledByWhatCannotBeCaptured) {
  cudaGraph_t graph = nullptr;
  void* memory = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

}  // namespace

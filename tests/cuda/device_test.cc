// What single calls of the CUDA device leave behind on an emulated GPU.
#include "runtime/device/device.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/algorithms.h"
#include "kernels/cuda/check.h"
#include "runtime/base/error.h"
#include "tests/cuda/emulated_runtime.h"

namespace gradloom {
namespace {

class DeviceCalls : public testing::Test {
 protected:
  void SetUp() override { emulated::Reset({.devices = 2, .memory_bytes = 1 << 20, .seed = 5}); }
  void TearDown() override { emulated::Reset({}); }
};

// CUDA keeps "not ready" as the thread's last error, and a launch is checked by asking for that.
TEST_F(DeviceCalls, AskingAStreamThatIsNotDoneFailsNoLaunch) {
  const auto device = CudaPlatform()->Open(0);
  void* const stream = device->NewStream();
  bool waited = false;
  for (int i = 0; i < 100; ++i) {
    device->Delay(1, stream);
    device->Delay(1, stream);
    waited = waited || !device->Done(stream);
    EXPECT_NO_THROW(device->Delay(1, stream));
  }
  EXPECT_TRUE(waited);
  device->DeleteStream(stream);
}

TEST_F(DeviceCalls, ARefusedAllocationFailsNoLaunch) {
  const auto device = CudaPlatform()->Open(0);
  try {
    device->Allocate(1 << 21);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
    for (const char* way : {"--batch", "--memory-limit", "--precision"}) EXPECT_NE(error.help().find(way), std::string::npos) << way;
  }
  void* const stream = device->NewStream();
  EXPECT_NO_THROW(device->Delay(1, stream));
  device->DeleteStream(stream);
}

// A call that waits reports the error of a kernel, and cannot say which kernel that was.
TEST_F(DeviceCalls, ErrorsSayWhatToDo) {
  const auto help = [](cudaError_t error) {
    try {
      cuda::CheckCuda(error, "cudaStreamSynchronize(stream)");
    } catch (const Error& thrown) {
      EXPECT_EQ(thrown.code(), ErrorCode::kDevice);
      EXPECT_EQ(thrown.message().find("cudaStreamSynchronize failed: "), 0U) << thrown.message();
      return thrown.help();
    }
    return std::string("no error");
  };
  EXPECT_NE(help(cudaErrorIllegalAddress).find("--check-numerics"), std::string::npos);
  EXPECT_NE(help(cudaErrorNoKernelImageForDevice).find("CUDA_ARCHS"), std::string::npos);
  EXPECT_EQ(help(cudaErrorInvalidValue), "");
}

// The refusal of a step must be cleared before the next one begins, on whatever stream that is, also without pinned memory.
class Refusals : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { emulated::Reset({.devices = 2, .memory_bytes = 1 << 20, .seed = 5, .pinning_fails = GetParam()}); }
  void TearDown() override { emulated::Reset({}); }
};

TEST_P(Refusals, ATakenFaultIsClearedAtOnce) {
  const auto device = CudaPlatform()->Open(0);
  std::byte* const memory = device->Allocate(256);
  void* const stream = device->NewStream();
  for (unsigned char run = 1; run < 20; ++run) {
    device->Refuse(stream);
    device->Synchronize(stream);
    EXPECT_EQ(device->TakeFault(), std::nullopt);
    device->Zero(memory + 128, 128, stream);
    device->Zero(memory, 128, stream);
    const unsigned char written = run;
    device->Copy(memory + 128, &written, 1, stream);
    device->CopyState(memory, memory + 128, 1, stream);
    unsigned char found = 0;
    device->Copy(&found, memory, 1, stream);
    device->Synchronize(stream);
    EXPECT_EQ(found, run) << "the step was still refused";
  }
  device->DeleteStream(stream);
  device->Free(memory);
}

INSTANTIATE_TEST_SUITE_P(Device, Refusals, testing::Bool(), [](const auto& test) { return test.param ? "pageable" : "pinned"; });

// The smallest steps take as long as a few calls of CUDA.
TEST_F(DeviceCalls, WithoutAFaultNothingIsCopied) {
  const auto device = CudaPlatform()->Open(0);
  const size_t before = emulated::Calls().size();
  EXPECT_EQ(device->TakeFault(), std::nullopt);
  EXPECT_EQ(emulated::Calls().size(), before);
}

// Sessions of several threads copy tensors to one device, each on a stream of its own.
TEST_F(DeviceCalls, ThreadsShareADevice) {
  const auto device = CudaPlatform()->Open(0);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        void* const first = device->NewStream();
        void* const second = device->NewStream();
        device->Check();
        EXPECT_TRUE(device->Idle());
        device->DeleteStream(first);
        device->DeleteStream(second);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NO_THROW(device->Check());
}

// A session that starts may measure algorithms while another one captures its step. The device cannot be waited for then.
TEST_F(DeviceCalls, AnotherThreadCapturesDuringATrial) {
  const auto device = CudaPlatform()->Open(0);
  void* const stream = device->NewStream();
  device->BeginCapture(stream);
  device->Delay(1, stream);
  std::thread([] { EXPECT_NO_THROW(cuda::TrialMemory::Allocate(DType::kFloat32, {64, 0, 32})); }).join();
  EXPECT_NE(device->EndCapture(stream), nullptr);
  device->DeleteStream(stream);
}

// A context takes memory, so a process has one only on the devices that it uses. A thread that has chosen no device is on device 0.
TEST_F(DeviceCalls, AskingWhereMemoryIsMakesNoContext) {
  const auto device = CudaPlatform()->Open(1);
  std::byte* const memory = device->Allocate(1);
  int ordinal = -1;
  std::thread([&] { ordinal = CudaPlatform()->OrdinalOf(memory); }).join();
  EXPECT_EQ(ordinal, 1);
  EXPECT_EQ(emulated::Contexts(), std::set<int>{1});
  device->Free(memory);
}

TEST_F(DeviceCalls, ReleasingInAnotherThreadMakesNoContext) {
  auto device = CudaPlatform()->Open(1);
  std::byte* const memory = device->Allocate(1);
  std::byte* const pinned = device->AllocatePinned(1);
  void* const stream = device->NewStream();
  void* const event = device->NewEvent(true);
  device->BeginCapture(stream);
  device->Delay(1, stream);
  std::unique_ptr<DeviceGraph> graph = device->EndCapture(stream);
  const auto in_new_thread = [](auto release) { std::thread(release).join(); };
  in_new_thread([&] { graph.reset(); });
  in_new_thread([&] { device->DeleteEvent(event); });
  in_new_thread([&] { device->DeleteStream(stream); });
  in_new_thread([&] { device->FreePinned(pinned); });
  in_new_thread([&] { device->Free(memory); });
  in_new_thread([&] { device.reset(); });
  EXPECT_EQ(emulated::Contexts(), std::set<int>{1});
}

// After an error, each group is ended in a thread of its own.
TEST_F(DeviceCalls, EndingAGroupInAnotherThreadMakesNoContext) {
  emulated::Reset({.devices = 3, .seed = 5});
  const auto first = CudaPlatform()->Open(1), second = CudaPlatform()->Open(2);
  Device* const members[] = {first.get(), second.get()};
  for (const bool aborts : {true, false}) {
    std::unique_ptr<DeviceGroup> group = CudaPlatform()->NewGroup(members);
    std::thread([&] {
      if (aborts) group->Abort();
      group.reset();
    }).join();
    EXPECT_EQ(emulated::Contexts(), (std::set<int>{1, 2})) << aborts;
  }
}

// The thread that watches a step aborts the groups while the one that enqueues it may be asking for their state.
TEST_F(DeviceCalls, AnEndedGroupIsNotAskedForItsState) {
  const auto first = CudaPlatform()->Open(0), second = CudaPlatform()->Open(1);
  Device* const members[] = {first.get(), second.get()};
  emulated::SetNcclQueryTime(std::chrono::milliseconds(2));
  for (int round = 0; round < 5; ++round) {
    const std::unique_ptr<DeviceGroup> group = CudaPlatform()->NewGroup(members);
    std::atomic<bool> asking = false;
    std::string words;
    std::thread asks([&] {
      try {
        for (;; asking = true) group->Check();
      } catch (const Error& error) {
        words = error.message();
      }
    });
    while (!asking) std::this_thread::yield();
    group->Abort();
    asks.join();
    EXPECT_NE(words.find("has been ended"), std::string::npos) << words;
  }
  emulated::SetNcclQueryTime({});
}

// Whatever another library makes next in this thread, it makes on the thread's current device.
TEST_F(DeviceCalls, TheCallersDeviceIsRestored) {
  RestoreCurrentDevice();  // what earlier tests left
  const auto current = [] {
    int device = -1;
    cudaGetDevice(&device);
    return device;
  };
  auto device = CudaPlatform()->Open(1);
  RestoreCurrentDevice();
  EXPECT_EQ(current(), 1) << "device 0 has no context, which would take memory";
  cudaSetDevice(0);  // now it has one
  for (int round = 0; round < 2; ++round) {
    device->Free(device->Allocate(1));
    EXPECT_EQ(current(), 1);
    RestoreCurrentDevice();
    EXPECT_EQ(current(), 0);
  }
  cudaSetDevice(1);
  auto other = CudaPlatform()->Open(0);
  RestoreCurrentDevice();
  EXPECT_EQ(current(), 1);
}

}  // namespace
}  // namespace gradloom

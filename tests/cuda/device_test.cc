// What single calls of the CUDA device leave behind on an emulated GPU.
#include "runtime/device/device.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <thread>

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
  EXPECT_THROW(device->Allocate(1 << 21), Error);
  void* const stream = device->NewStream();
  EXPECT_NO_THROW(device->Delay(1, stream));
  device->DeleteStream(stream);
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

}  // namespace
}  // namespace gradloom

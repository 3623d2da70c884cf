// Loads the real CUDA library as the command does. On a machine without a driver it reports this, and nothing else happens.
#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/base/error.h"
#include "runtime/device/choose_devices.h"
#include "runtime/device/device.h"

namespace gradloom {
namespace {

TEST(CudaPlugin, LoadsAndReportsItsLibraries) {
  setenv("GRADLOOM_CUDA_LIBRARY", "runtime/device/cuda/libgradloom_cuda.so", 1);
  std::string why;
  DevicePlatform* const platform = CudaPlatform(&why);
  ASSERT_NE(platform, nullptr) << why;
  EXPECT_GE(platform->versions().runtime, 12000);
  EXPECT_GE(platform->versions().cudnn, 90000);
  EXPECT_GT(platform->versions().cublas, 0);
  EXPECT_GT(platform->versions().nccl, 0);
  EXPECT_GT(platform->versions().nvrtc, 0);
  const std::vector<DeviceProperties> devices = platform->devices();
  if (!platform->problem().empty()) {
    EXPECT_TRUE(devices.empty());
    EXPECT_TRUE(ThisMachinesCuda().devices.empty());
    EXPECT_THROW(platform->Open(0), Error);
    return;
  }
  for (const DeviceProperties& device : devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.memory_total_bytes, 0);
    EXPECT_GE(device.compute_major, 7);
  }
  EXPECT_THROW(platform->Open(static_cast<int>(devices.size())), Error);
}

}  // namespace
}  // namespace gradloom

// Puts the emulated runtime in the place of CUDA's for the whole process.
#include "kernels/cuda/rows/rows.h"
#include "runtime/device/cuda/device.h"
#include "runtime/device/cuda/nccl_group.h"
#include "runtime/device/cuda/versions.h"
#include "runtime/device/plugin.h"

extern "C" gradloom::DevicePlatform* gradloom_cuda_platform(int version);

namespace gradloom::cuda {

// One GPU for each member is emulated as well as one for all.
std::unique_ptr<DeviceGroup> NewNcclGroup(std::span<Device* const> members) { return NewLocalGroup(members); }
PlatformVersions ReadVersions() { return {.driver = 13000, .runtime = 13000}; }

}  // namespace gradloom::cuda

namespace gradloom {
namespace {

const bool kReplaced = [] {
  SetCudaPlatform(gradloom_cuda_platform(kPluginVersion));
  return true;
}();

}  // namespace
}  // namespace gradloom

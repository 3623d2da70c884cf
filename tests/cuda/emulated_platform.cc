// Makes the emulated device the CUDA platform of the whole process.
#include "runtime/device/plugin.h"

extern "C" gradloom::DevicePlatform* gradloom_cuda_platform(int version);

namespace gradloom {
namespace {

const bool kReplaced = [] {
  SetCudaPlatform(gradloom_cuda_platform(kPluginVersion));
  return true;
}();

}  // namespace
}  // namespace gradloom

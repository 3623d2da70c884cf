// The CUDA device is part of this program, and no library to open.
#include "runtime/device/plugin.h"

extern "C" gradloom::DevicePlatform* gradloom_cuda_platform(int version);

namespace gradloom {
namespace {

const bool kThere = [] {
  SetCudaPlatform(gradloom_cuda_platform(kPluginVersion));
  return true;
}();

}  // namespace
}  // namespace gradloom

// Opens the library of the CUDA device at run time, so that the program starts on machines without the toolkit and the driver.
#include <mutex>
#include <string>

#include "runtime/device/device.h"
#include "runtime/device/plugin.h"

namespace gradloom {
namespace {

struct Opened {
  std::mutex mutex;
  bool tried = false;
  DevicePlatform* platform = nullptr;
  DevicePlatform* replaced = nullptr;
  std::string why;
};

Opened& TheLibrary() {
  static Opened opened;
  return opened;
}

void Open(Opened& opened) {
  opened.tried = true;
  const PluginLibrary library{.file = "libgradloom_cuda.so",
                              .variable = "GRADLOOM_CUDA_LIBRARY",
                              .build_folder = "runtime/device/cuda",
                              .entry = kCudaPlatformEntry};
  const auto entry = reinterpret_cast<CudaPlatformEntry>(OpenPlugin(library, opened.why));
  if (entry == nullptr) return;
  opened.platform = entry(kPluginVersion);
  if (opened.platform == nullptr) opened.why = "the CUDA library belongs to a different version of Gradloom";
}

}  // namespace

DevicePlatform* CudaPlatform(std::string* why) {
  Opened& opened = TheLibrary();
  const std::lock_guard lock(opened.mutex);
  if (opened.replaced != nullptr) return opened.replaced;
  if (!opened.tried) Open(opened);
  if (why != nullptr) *why = opened.why;
  return opened.platform;
}

void RestoreCurrentDevice() noexcept {
  Opened& opened = TheLibrary();
  const std::lock_guard lock(opened.mutex);
  DevicePlatform* const platform = opened.replaced != nullptr ? opened.replaced : opened.platform;
  if (platform != nullptr) platform->RestoreCurrentDevice();
}

void SetCudaPlatform(DevicePlatform* platform) {
  Opened& opened = TheLibrary();
  const std::lock_guard lock(opened.mutex);
  opened.replaced = platform;
}

}  // namespace gradloom

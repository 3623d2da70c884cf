// Opens the library of the CUDA device, so that the program starts where there is neither toolkit nor driver.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/device/plugin.h"

namespace gradloom {
namespace {

constexpr char kLibrary[] = "libgradloom_cuda.so";

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

// Where the program lies, and where the shared library that this code is in does, which may be it.
std::vector<std::filesystem::path> Folders() {
  std::vector<std::filesystem::path> folders;
  std::error_code error;
  if (const auto program = std::filesystem::read_symlink("/proc/self/exe", error); !error) folders.push_back(program.parent_path());
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&kLibrary), &info) != 0 && info.dli_fname != nullptr) {
    const auto object = std::filesystem::canonical(info.dli_fname, error);
    if (!error && (folders.empty() || object.parent_path() != folders.front())) folders.push_back(object.parent_path());
  }
  return folders;
}

// In the order in which they are tried.
std::vector<std::string> Places() {
  if (const char* const given = std::getenv("GRADLOOM_CUDA_LIBRARY"); given != nullptr && given[0] != '\0') return {given};
  std::vector<std::string> places;
  for (const std::filesystem::path& folder : Folders()) {
    for (const char* beside : {"", "../lib", "../../runtime/device/cuda"})
      places.push_back((folder / beside / kLibrary).lexically_normal().string());
  }
  places.emplace_back(kLibrary);
  return places;
}

void Open(Opened& opened) {
  opened.tried = true;
  for (const std::string& place : Places()) {
    const bool file = place.find('/') != std::string::npos;
    std::error_code error;
    if (file && !std::filesystem::exists(place, error)) {
      opened.why = "there is no " + Escaped(place);
      continue;
    }
    // Never closed: kernels of it may be in use until the process ends.
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const said = dlerror();
      opened.why = Escaped(said == nullptr ? place : said, 1000);
      if (file) return;
      continue;
    }
    const auto entry = reinterpret_cast<CudaPlatformEntry>(dlsym(library, kCudaPlatformEntry));
    if (entry == nullptr) {
      opened.why = Escaped(place) + " is no CUDA library of Gradloom";
      return;
    }
    opened.platform = entry(kPluginVersion);
    if (opened.platform == nullptr) opened.why = Escaped(place) + " belongs to another version of Gradloom";
    return;
  }
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

void SetCudaPlatform(DevicePlatform* platform) {
  Opened& opened = TheLibrary();
  const std::lock_guard lock(opened.mutex);
  opened.replaced = platform;
}

}  // namespace gradloom

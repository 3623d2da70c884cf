#include "kernels/cuda/runtime_code.h"

#include <cuda_runtime_api.h>
#include <nvrtc.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "kernels/cuda/cache_folder.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/pointwise_source.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"

namespace gradloom::cuda {
namespace {

void CheckCompiler(nvrtcResult result, const char* call) {
  if (result != NVRTC_SUCCESS) throw Error(ErrorCode::kDevice, std::string(call) + " failed: " + nvrtcGetErrorString(result));
}

class Program {
 public:
  explicit Program(const std::string& source) {
    CheckCompiler(nvrtcCreateProgram(&program_, source.c_str(), "gradloom.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  }
  ~Program() { nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::string Compile(const std::string& architecture) {
    const std::string target = "--gpu-architecture=" + architecture;
    // Contraction is off, so that roundings are those of the CPU's tile interpreter.
    const char* const options[] = {target.c_str(), "--std=c++17", "--fmad=false"};
    const nvrtcResult result = nvrtcCompileProgram(program_, 3, options);
    if (result != NVRTC_SUCCESS) {
      size_t size = 0;
      nvrtcGetProgramLogSize(program_, &size);
      std::string log(size, '\0');
      nvrtcGetProgramLog(program_, log.data());
      throw Error(ErrorCode::kDevice, "NVRTC does not compile for " + architecture + ": " + nvrtcGetErrorString(result),
                  log.substr(0, 2000));
    }
    size_t size = 0;
    CheckCompiler(nvrtcGetCUBINSize(program_, &size), "nvrtcGetCUBINSize");
    std::string code(size, '\0');
    CheckCompiler(nvrtcGetCUBIN(program_, code.data()), "nvrtcGetCUBIN");
    return code;
  }

 private:
  nvrtcProgram program_ = nullptr;
};

class Loaded : public RuntimeFunction {
 public:
  Loaded(const std::string& code, const std::string& name, int ordinal) : ordinal_(ordinal) {
    GRADLOOM_CUDA(cudaSetDevice(ordinal));
    GRADLOOM_CUDA(cudaLibraryLoadData(&library_, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    const cudaError_t error = cudaLibraryGetKernel(&kernel_, library_, name.c_str());
    if (error == cudaSuccess) return;
    cudaLibraryUnload(library_);
    ThrowCuda(error, "cudaLibraryGetKernel");
  }
  ~Loaded() override { cudaLibraryUnload(library_); }

  void Launch(int64_t blocks, int threads, const void* arguments, size_t, cudaStream_t stream) override {
    GRADLOOM_CUDA(cudaSetDevice(ordinal_));
    void* parameters[] = {const_cast<void*>(arguments)};
    GRADLOOM_CUDA(cudaLaunchKernel(reinterpret_cast<const void*>(kernel_), dim3(static_cast<unsigned>(blocks)),
                                   dim3(static_cast<unsigned>(threads)), parameters, 0, stream));
  }

 private:
  int ordinal_;
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
};

// A file has the length of the source in decimal, a newline, the source, and the code. Storing the source makes hash collisions harmless.
std::string Head(const std::string& source) { return std::to_string(source.size()) + "\n" + source; }

std::string CachePath(const std::string& source, const std::string& architecture) {
  const std::string folder = CacheFolder();
  if (folder.empty()) return "";
  int major = 0, minor = 0;
  nvrtcVersion(&major, &minor);
  const std::string name = HashText(HashOf(source)) + "." + architecture + ".nvrtc" + std::to_string(major) + "." + std::to_string(minor);
  return folder + "/code/" + name;
}

std::optional<std::string> Cached(const std::string& path, const std::string& source) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return std::nullopt;
  try {
    std::string kept = ReadWholeFile(path);
    const std::string head = Head(source);
    if (kept.starts_with(head)) return kept.substr(head.size());
  } catch (const Error&) {
    // Treated as absent.
  }
  return std::nullopt;
}

// The cache is optional: failure to write is ignored.
void Keep(const std::string& path, const std::string& source, const std::string& code) {
  if (path.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(FolderOf(path), error);
  if (error) return;
  try {
    WriteFileAtomically(path, Head(source) + code);
  } catch (const Error&) {
  }
}

}  // namespace

std::string CompileForDevice(const std::string& source, const std::string& architecture) { return Program(source).Compile(architecture); }

std::shared_ptr<RuntimeFunction> LoadFunction(const std::string& source, const std::string& architecture, int ordinal,
                                              const std::string& code) {
  if (!code.empty()) return std::make_shared<Loaded>(code, kPointwiseName, ordinal);
  if (const auto cached = Cached(CachePath(source, architecture), source)) {
    try {
      return std::make_shared<Loaded>(*cached, kPointwiseName, ordinal);
    } catch (const Error&) {
      // Damaged: compiled again.
    }
  }
  return std::make_shared<Loaded>(CompileAndCache(source, architecture), kPointwiseName, ordinal);
}

bool IsCached(const std::string& source, const std::string& architecture) {
  std::error_code error;
  const std::string path = CachePath(source, architecture);
  return !path.empty() && std::filesystem::exists(path, error);
}

std::string CompileAndCache(const std::string& source, const std::string& architecture) {
  const std::string code = CompileForDevice(source, architecture);
  Keep(CachePath(source, architecture), source, code);
  return code;
}

}  // namespace gradloom::cuda

// Runs code that is compiled at run time without NVRTC or a GPU: the host's compiler compiles it, and it runs as one block of one thread.
#include "tests/cuda/emulated_code.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "kernels/cuda/emulated_launch.h"
#include "kernels/cuda/pointwise_source.h"
#include "kernels/cuda/runtime_code.h"
#include "runtime/base/error.h"

namespace gradloom::cuda {
namespace {

constexpr size_t kMaxParameterBytes = 4096;  // of a kernel, on every GPU

// What a GPU's compiler defines. No header of the standard library: reading one would take most of the time of a compilation.
constexpr char kBefore[] = R"(
#define __global__
#define __launch_bounds__(threads)
struct Place { unsigned x; };
static const Place gridDim{1}, blockDim{1}, blockIdx{0}, threadIdx{0};
struct Half {
  unsigned short bits;
  Half() = default;
  explicit Half(float f);
  explicit operator float() const;
};
struct Bfloat16 {
  unsigned short bits;
  Bfloat16() = default;
  explicit Bfloat16(float f);
  explicit operator float() const;
};
)";

// The conversions of kernels/scalar/math.h, which the source begins with.
constexpr char kAfter[] = R"(
Half::Half(float f) : bits((unsigned short)HalfBits(f)) {}
Half::operator float() const { return HalfValue(bits); }
Bfloat16::Bfloat16(float f) : bits((unsigned short)Bfloat16Bits(f)) {}
Bfloat16::operator float() const { return Bfloat16Value(bits); }
extern "C" void emulated(const void* a) { )";

class Emulated : public RuntimeFunction {
 public:
  using Function = void (*)(const void* arguments);
  explicit Emulated(Function function) : function_(function) {}
  void Launch(int64_t, int, const void* arguments, size_t bytes, cudaStream_t stream) override {
    GRADLOOM_CHECK(bytes <= kMaxParameterBytes);
    EmulatedLaunch(stream, [function = function_, copy = std::string(static_cast<const char*>(arguments), bytes)] {
      // The struct must be aligned.
      alignas(16) char aligned[kMaxParameterBytes];
      copy.copy(aligned, copy.size());
      function(aligned);
    });
  }

 private:
  Function function_;
};

// The folder for compiled code: shared by all processes of a test that names one, otherwise this process's own, which is removed at exit.
const std::string& Folder() {
  static const struct Made {
    std::string path;
    bool shared = false;
    Made() {
      const char* const kept = std::getenv("GRADLOOM_EMULATED_CODE");
      const char* const base = std::getenv("TEST_TMPDIR");
      shared = kept != nullptr;
      path = shared ? kept : std::string(base != nullptr ? base : "/tmp") + "/emulated_code." + std::to_string(getpid());
      std::filesystem::create_directories(path);
    }
    ~Made() {
      if (!shared) std::filesystem::remove_all(path);
    }
  } folder;
  return folder.path;
}

std::string PathOf(const std::string& source) { return Folder() + "/" + std::to_string(std::hash<std::string>()(source)) + ".so"; }

std::atomic<int> late = 0;

}  // namespace

int SourcesCompiledLate() { return late; }

bool IsCached(const std::string& source, const std::string&) { return std::filesystem::exists(PathOf(source)); }

// Returns the library's path.
std::string CompileAndCache(const std::string& source, const std::string&) {
  const std::string path = PathOf(source), own = path + "." + std::to_string(getpid());
  std::ofstream(own + ".cc") << kBefore << source << kAfter << kPointwiseName << "(*(const Arguments*)a); }\n";
  // A GPU refuses words at addresses that are no multiples of their size. To link a library takes most of the time if the linker reads the
  // standard libraries, which this process has anyway.
  const std::string command = "g++ -std=c++20 -O0 -w -ffp-contract=off -fsanitize=alignment -fno-sanitize-recover=alignment -shared -fPIC" +
                              std::string(" -fuse-ld=gold -nostdlib -o ") + own + " " + own + ".cc -lubsan -lm 2> " + own + ".log";
  if (std::system(command.c_str()) != 0) {
    std::ifstream log(own + ".log");
    throw Error(ErrorCode::kDevice, "the host's compiler refuses:\n" + std::string(std::istreambuf_iterator<char>(log), {}), source);
  }
  std::filesystem::rename(own, path);
  return path;
}

std::shared_ptr<RuntimeFunction> LoadFunction(const std::string& source, const std::string& architecture, int, const std::string& code) {
  static std::map<std::string, Emulated::Function> loaded;  // by source text
  Emulated::Function& function = loaded[source];
  if (function != nullptr) return std::make_shared<Emulated>(function);
  std::string path = code;
  if (path.empty() && IsCached(source, architecture)) path = PathOf(source);
  if (path.empty()) {
    ++late;
    path = CompileAndCache(source, architecture);
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(ErrorCode::kDevice, dlerror());
  function = reinterpret_cast<Emulated::Function>(dlsym(library, "emulated"));
  return std::make_shared<Emulated>(function);
}

}  // namespace gradloom::cuda

// Operators that only reinterpret elements, and gradloom.Copy: the same bytes in the same order.
#include <cstring>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

// A single core already uses half of the memory bandwidth, so more threads pay off late.
constexpr int64_t kBytesPerThread = 1 << 18;

class CopyKernel : public Kernel {
 public:
  explicit CopyKernel(const KernelCall& call)
      : bytes_(call.outputs[0].bytes()), threads_(ThreadsFor(bytes_, kBytesPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    if (inputs[0] == outputs[0]) return;
    ParallelRanges(bytes_, kAlignmentBytes, threads_, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(outputs[0]) + begin, static_cast<const char*>(inputs[0]) + begin, static_cast<size_t>(end - begin));
    });
  }

 private:
  int64_t bytes_;
  int threads_;
};

constexpr Aliasing kInPlace[] = {{0, 0}};

constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain = "") {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = RejectsView, .may_alias = kInPlace}, .make = MakeKernel<CopyKernel>};
}

constexpr CpuKernel kKernels[] = {
    Row("cpu.Identity", "Identity"), Row("cpu.Reshape", "Reshape"),     Row("cpu.Flatten", "Flatten"),
    Row("cpu.Squeeze", "Squeeze"),   Row("cpu.Unsqueeze", "Unsqueeze"), Row("cpu.Copy", "Copy", "gradloom"),
};

}  // namespace

std::span<const CpuKernel> CpuCopyKernels() { return kKernels; }

}  // namespace gradloom

// Operators that only reinterpret elements, and gradloom.Copy: the same bytes in the same order.
#include "kernels/catalog/physical.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel_bytes.h"

namespace gradloom {
namespace {

class CopyKernel : public Kernel {
 public:
  explicit CopyKernel(const KernelCall& call) : bytes_(call.outputs[0].bytes()), threads_(call.threads) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override { CopyBytes(outputs[0], inputs[0], bytes_, threads_); }

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

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

// The same shape and layout, or row-major on both sides.
std::string Rejects(const KernelCall& call) {
  const OperandType &in = call.inputs[0], &out = call.outputs[0];
  if (in.bytes() != out.bytes()) return "input and output of different size";
  if (in.layout.plain() && out.layout.plain()) return "";
  if (in.shape == out.shape && SameMemoryOrder(in.layout, out.layout, in.shape)) return "";
  return "layout " + in.layout.ToString() + " to " + out.layout.ToString();
}

constexpr Aliasing kInPlace[] = {{0, 0}};

constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain = "") {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = Rejects, .may_alias = kInPlace}, .make = MakeKernel<CopyKernel>};
}

constexpr CpuKernel kKernels[] = {
    Row("cpu.Identity", "Identity"), Row("cpu.Reshape", "Reshape"),     Row("cpu.Flatten", "Flatten"),
    Row("cpu.Squeeze", "Squeeze"),   Row("cpu.Unsqueeze", "Unsqueeze"), Row("cpu.Copy", "Copy", "gradloom"),
};

}  // namespace

std::span<const CpuKernel> CpuCopyKernels() { return kKernels; }

}  // namespace gradloom

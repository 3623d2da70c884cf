// Pointwise programs, each compiled for its call.
#include <algorithm>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/pointwise_source.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom::cuda {
namespace {

constexpr int kThreads = 256;

// Without text for no elements.
PointwiseSource SourceFor(const KernelCall& call, bool preserves_state) {
  const PhysicalCall physical = *PhysicalOf(call);
  if (physical.call.outputs[0].shape.elements() == 0) return {};
  return WritePointwiseSource(physical.call, *PointwiseProgramOf(physical.call), preserves_state);
}

std::string SourceText(const KernelCall& call, bool preserves_state) { return SourceFor(call, preserves_state).text; }

std::unique_ptr<Kernel> Make(const KernelCall& call, const KernelSite& site) {
  const int32_t* const refused = site.refused;
  const PointwiseSource source = SourceFor(call, refused != nullptr);
  if (source.text.empty()) return MakeKernel([](const Launch&) {});
  const std::shared_ptr<RuntimeFunction> function = site.libraries->Function(source.text);
  // Enough blocks to fill any device several times over; threads loop over the rest.
  const int64_t blocks = std::min<int64_t>((source.threads + kThreads - 1) / kThreads, 16384);
  const size_t inputs = call.inputs.size(), outputs = call.outputs.size();
  return MakeKernel([=](const Launch& l) {
    const void* addresses[PointwiseProgram::kMaxInputs + PointwiseProgram::kMaxOutputs + 1];
    std::copy_n(l.inputs, inputs, addresses);
    std::copy_n(l.outputs, outputs, addresses + inputs);
    addresses[inputs + outputs] = refused;
    function->Launch(blocks, kThreads, addresses, (inputs + outputs + (refused == nullptr ? 0 : 1)) * sizeof(void*), l.stream);
  });
}

// One per row of kernels/cuda/rows/pointwise.cc.
const std::vector<CudaKernel>& TheKernels() {
  static const std::vector<CudaKernel> kernels = [] {
    std::vector<CudaKernel> made;
    for (const KernelRow& row : CudaPointwiseRows()) made.push_back({row.name, Make, SourceText});
    return made;
  }();
  return kernels;
}

}  // namespace

std::span<const CudaKernel> PointwiseKernels() { return TheKernels(); }

}  // namespace gradloom::cuda

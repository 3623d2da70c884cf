// Pointwise programs, each compiled for its call.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/catalog/pointwise_tensors.h"
#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/pointwise_source.h"
#include "kernels/cuda/rows/padded_rows.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom::cuda {
namespace {

// Without text for no elements.
PointwiseSource SourceFor(const KernelCall& call, bool preserves_state) {
  if (call.outputs[0].shape.elements() == 0) return {};
  if (PaddedPointwiseStride(call)) return WritePointwiseSource(call, *PointwiseProgramOf(call), preserves_state);
  const PhysicalCall physical = *PhysicalOf(call);
  return WritePointwiseSource(physical.call, *PointwiseProgramOf(physical.call), preserves_state);
}

std::string SourceText(const KernelCall& call, bool preserves_state) { return SourceFor(call, preserves_state).text; }

std::unique_ptr<Kernel> Make(const KernelCall& call, const KernelSite& site) {
  const int32_t* const refused = site.refused;
  const PointwiseSource source = SourceFor(call, refused != nullptr);
  if (source.text.empty()) return MakeKernel([](const Launch&) {});
  const std::shared_ptr<RuntimeFunction> function = site.libraries->Function(source.text);
  // Enough blocks to fill any device several times over; threads loop over the rest.
  const int64_t blocks = std::min<int64_t>((source.threads + kPointwiseThreads - 1) / kPointwiseThreads, 16384);
  const size_t inputs = call.inputs.size(), outputs = call.outputs.size();
  return MakeKernel([=](const Launch& l) {
    const void* addresses[PointwiseProgram::kMaxInputs + PointwiseProgram::kMaxOutputs + 1];
    std::copy_n(l.inputs, inputs, addresses);
    std::copy_n(l.outputs, outputs, addresses + inputs);
    addresses[inputs + outputs] = refused;
    function->Launch(blocks, kPointwiseThreads, addresses, (inputs + outputs + (refused == nullptr ? 0 : 1)) * sizeof(void*), l.stream);
  });
}

std::string TensorsSourceText(const KernelCall& call, bool preserves_state) { return WriteTensorsSource(call, preserves_state).text; }

std::unique_ptr<Kernel> MakeTensors(const KernelCall& call, const KernelSite& site) {
  const int32_t* const refused = site.refused;
  const std::shared_ptr<RuntimeFunction> function = site.libraries->Function(TensorsSourceText(call, refused != nullptr));
  const auto tensors = static_cast<size_t>(FusedTensorsOf(call));
  const size_t inputs = call.inputs.size() / tensors, outputs = call.outputs.size() / tensors;
  std::vector<int64_t> elements;
  for (size_t tensor = 0; tensor < tensors; ++tensor) elements.push_back(call.outputs[tensor * outputs].shape.elements());
  return MakeKernel([=](const Launch& l) {
    // Addresses and numbers of 8 bytes each.
    std::vector<uint64_t> arguments;
    const auto add = [&](const void* const* addresses, size_t count) {
      for (size_t k = 0; k < count; ++k) arguments.push_back(reinterpret_cast<uintptr_t>(addresses[k]));
    };
    int64_t blocks = 0;
    for (size_t tensor = 0; tensor < tensors; ++tensor) {
      add(l.inputs + tensor * inputs, inputs);
      add(l.outputs + tensor * outputs, outputs);
      blocks += (elements[tensor] + kPointwiseTile - 1) / kPointwiseTile;
      arguments.push_back(static_cast<uint64_t>(elements[tensor]));
      arguments.push_back(static_cast<uint64_t>(blocks));
    }
    const void* const address = refused;
    if (refused != nullptr) add(&address, 1);
    if (blocks > 0) function->Launch(blocks, kPointwiseThreads, arguments.data(), arguments.size() * sizeof(uint64_t), l.stream);
  });
}

// One per row of kernels/cuda/rows/pointwise.cc.
const std::vector<CudaKernel>& TheKernels() {
  static const std::vector<CudaKernel> kernels = [] {
    std::vector<CudaKernel> made;
    for (const KernelRow& row : CudaPointwiseRows()) {
      const bool many = row.op == "FusedTensors";
      made.push_back({row.name, many ? MakeTensors : Make, many ? TensorsSourceText : SourceText});
    }
    return made;
  }();
  return kernels;
}

}  // namespace

std::span<const CudaKernel> PointwiseKernels() { return TheKernels(); }

}  // namespace gradloom::cuda

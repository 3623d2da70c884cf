#include <array>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernel.h"
#include "runtime/base/error.h"

namespace gradloom::cuda {
namespace {

using Family = std::span<const CudaKernel> (*)();

// One family per line.
// clang-format off
constexpr Family kFamilies[] = {
    PointwiseKernels,
    BlasKernels,
    ElementwiseKernels,
    MoveKernels,
    IndexKernels,
    ReduceKernels,
    ScanKernels,
    SoftmaxKernels,
    NormalizationKernels,
    BatchNormKernels,
    LossKernels,
    LossTrainingKernels,
    OptimizerKernels,
    RandomKernels,
    ProductKernels,
    DnnConvKernels,
    ConvolutionKernels,
    PoolingKernels,
    SampleKernels,
    DnnAttentionKernels,
    AttentionBlasKernels,
    AttentionKernels,
    RecurrentBlasKernels,
    RecurrentKernels,
    LinearAlgebraKernels,
    QuantizedKernels,
    TensorScatterKernels,
    TrainingKernels,
    UnfoldKernels,
    DeformConvKernels,
    ExtentKernels,
    NarrowKernels,
    RegionKernels,
    SignalKernels,
    TraditionalKernels,
};
// clang-format on

struct Index {
  std::vector<const CudaKernel*> all;
  std::map<std::string_view, const CudaKernel*> by_row;
};

const Index& TheIndex() {
  static const Index index = [] {
    Index made;
    for (Family family : kFamilies) {
      for (const CudaKernel& kernel : family()) {
        made.all.push_back(&kernel);
        GRADLOOM_CHECK(made.by_row.emplace(kernel.row, &kernel).second);
      }
    }
    return made;
  }();
  return index;
}

}  // namespace

std::span<const CudaKernel* const> AllCudaKernels() { return TheIndex().all; }

std::unique_ptr<Kernel> MakeCudaKernel(const KernelRow& row, const KernelCall& call, const KernelSite& site) {
  const std::string why = Rejection(row, call);
  if (!why.empty())
    throw Error(ErrorCode::kPlan, "kernel '" + Escaped(row.name) + "' cannot run operator '" + Escaped(call.op) + "': " + why);
  const auto found = TheIndex().by_row.find(row.name);
  if (found == TheIndex().by_row.end())
    throw Error(ErrorCode::kPlan, "the CUDA library of this build has no kernel '" + Escaped(row.name) + "'");
  return found->second->make(call, site);
}

std::string GeneratedSource(const KernelRow& row, const KernelCall& call, bool preserves_state) {
  const auto found = TheIndex().by_row.find(row.name);
  if (found == TheIndex().by_row.end() || found->second->source == nullptr || !Rejection(row, call).empty()) return {};
  return found->second->source(call, preserves_state);
}

}  // namespace gradloom::cuda

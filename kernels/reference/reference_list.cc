// The list of all families, and the lookup of kernels.
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "kernels/catalog/backends.h"
#include "kernels/reference/families.h"
#include "kernels/reference/reference.h"

namespace gradloom {
namespace {

using Rows = std::span<const ReferenceKernel> (*)();

// One family per line.
// clang-format off
constexpr Rows kFamilies[] = {
    ReferenceMatMul,
    ReferenceReduce,
    ReferenceShape,
    ReferenceConvolution,
    ReferencePooling,
    ReferenceNormalization,
    ReferenceNormalizationMore,
    ReferenceRandom,
    ReferenceLoss,
    ReferenceOptimizer,
    ReferenceUnary,
    ReferenceActivation,
    ReferenceBinary,
    ReferenceMany,
    ReferenceEinsum,
    ReferencePad,
    ReferenceGenerate,
    ReferenceIndex,
    ReferenceExtents,
    ReferenceLstm,
    ReferenceGru,
    ReferenceResize,
    ReferenceAttention,
    ReferenceGridSample,
    ReferenceFused,
    ReferenceQuantized,
    ReferenceRegionsOfInterest,
    ReferenceSignal,
    ReferenceTensorScatter,
    ReferenceTraditional,
    ReferenceTraining,
};
// clang-format on

struct Index {
  std::vector<const ReferenceKernel*> all;
  std::map<std::pair<std::string_view, std::string_view>, const ReferenceKernel*> by_name;
};

const Index& TheIndex() {
  static const Index index = [] {
    Index made;
    for (Rows rows : kFamilies) {
      for (const ReferenceKernel& kernel : rows()) {
        made.all.push_back(&kernel);
        GRADLOOM_CHECK(made.by_name.emplace(std::pair(kernel.domain, kernel.op), &kernel).second);
      }
    }
    return made;
  }();
  return index;
}

}  // namespace

const ReferenceKernel* FindReference(std::string_view domain, std::string_view op) {
  const auto found = TheIndex().by_name.find({domain, op});
  return found == TheIndex().by_name.end() ? nullptr : found->second;
}

std::span<const ReferenceKernel* const> AllReferenceKernels() { return TheIndex().all; }

std::vector<const KernelRow*> ReferenceKernelRows() {
  struct Row {
    std::string name;
    KernelRow row;  // refers to the name
  };
  static const std::deque<Row> rows = [] {
    std::deque<Row> made;
    for (const ReferenceKernel* kernel : AllReferenceKernels()) {
      Row& last = made.emplace_back();
      last.name = "reference." + std::string(kernel->domain) + (kernel->domain.empty() ? "" : ".") + std::string(kernel->op);
      last.row = {.name = last.name, .op = kernel->op, .domain = kernel->domain, .device = DeviceKind::kCpu};
    }
    return made;
  }();
  std::vector<const KernelRow*> all;
  for (const Row& row : rows) all.push_back(&row.row);
  return all;
}

std::vector<Tensor> RunReference(const KernelCall& call, std::span<const Tensor> inputs) {
  const ReferenceKernel* kernel = FindReference(call.domain, call.op);
  if (kernel == nullptr) throw Error(ErrorCode::kUnsupported, "no kernel for operator '" + Escaped(call.op) + "'");
  std::vector<const void*> in;
  for (const Tensor& tensor : inputs) in.push_back(tensor.data());
  std::vector<Tensor> outputs;
  std::vector<void*> out;
  for (const OperandType& type : call.outputs) {
    outputs.push_back(type.present() ? Tensor(type.dtype, type.shape) : Tensor());
    out.push_back(outputs.back().data());
  }
  kernel->run(call, in.data(), out.data());
  return outputs;
}

}  // namespace gradloom

// Classification losses over rows of classes, and their gradients.
#include <algorithm>
#include <string>

#include "kernels/cuda/rows/padded_rows.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/scratch.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

// Input `labels` must have int64 or int32 labels; input `floats` has the type of all other operands.
template <size_t labels, size_t floats>
std::string Rejects(const KernelCall& call) {
  const DType dtype = call.inputs[labels].dtype;
  const bool integers = dtype == DType::kInt64 || dtype == DType::kInt32;
  return FirstOf({Layouts(call), NotFloating(call, floats), integers ? "" : "labels that are not int64 or int32"});
}

// The rows of the scores, and of a gradient over them, may be padded.
template <size_t labels>
std::string RejectsScores(const KernelCall& call) {
  const OperandType& scores = call.inputs[0];
  if (scores.shape.rank() != 2) return "rank " + std::to_string(scores.shape.rank());
  // Kernels write padding as parts of words with scores, so there may be no further word.
  if (!scores.layout.plain() && scores.layout != PaddedRows(scores.dtype)) return "layout " + scores.layout.ToString();
  KernelCall plain = call;
  for (auto* operands : {&plain.inputs, &plain.outputs}) {
    for (OperandType& operand : *operands) {
      if (operand.shape == scores.shape && operand.layout == scores.layout) operand.layout = {};
    }
  }
  const bool same = std::all_of(call.outputs.begin(), call.outputs.end(),
                                [&](const OperandType& output) { return output.shape != scores.shape || output.layout == scores.layout; });
  return FirstOf({same ? "" : "a gradient in another layout than the scores", Rejects<labels, 0>(plain)});
}

template <size_t labels>
int64_t RowTerms(const KernelCall& call) {
  return (call.inputs[labels].shape.elements() + kMaxLossParts) * kLossTermBytes;
}

// The sum of the class weights.
int64_t WeightSum(const KernelCall&) { return 8; }
int64_t RowTermsAndWeightSum(const KernelCall& call) { return RowTerms<1>(call) + WeightSum(call); }

// Labels and, in the type of the sum, class weights.
std::string RejectsLabelWeights(const KernelCall& call) {
  const bool same = call.inputs.size() < 2 || !call.inputs[1].present() || call.inputs[1].dtype == call.outputs[0].dtype;
  const bool sums = IsFloating(call.outputs[0].dtype), integers = call.inputs[0].dtype == DType::kInt64;
  return FirstOf({Layouts(call), same && sums ? "" : "sums of another type", integers ? "" : "labels that are not int64"});
}
int64_t LossParts(const KernelCall&) { return kMaxLossParts * kLossTermBytes; }

// Each element is overwritten only by the thread that alone reads it, or after a barrier.
constexpr Aliasing kInPlace[] = {{0, 0}}, kLogInPlace[] = {{2, 0}}, kScoresInPlace[] = {{1, 0}}, kTrainingInPlace[] = {{1, 0}};

constexpr KernelRow kRows[] = {
    {.name = "cuda.gradloom.CrossEntropy",
     .op = "CrossEntropy",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = Rejects<1, 0>,
     .may_alias = kLogInPlace,
     .scratch_bytes = RowTerms<1>},
    {.name = "cuda.gradloom.CrossEntropyGrad",
     .op = "CrossEntropyGrad",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = Rejects<1, 0>,
     .may_alias = kInPlace,
     .scratch_bytes = WeightSum},
    {.name = "cuda.gradloom.CrossEntropyLogSum",
     .op = "CrossEntropyLogSum",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsScores<1>,
     .scratch_bytes = RowTerms<1>},
    {.name = "cuda.gradloom.CrossEntropyLogSumGrad",
     .op = "CrossEntropyLogSumGrad",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsScores<2>,
     .may_alias = kInPlace,
     .scratch_bytes = WeightSum},
    {.name = "cuda.gradloom.CrossEntropyTraining",
     .op = "CrossEntropyTraining",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsScores<1>,
     .may_alias = kTrainingInPlace,
     .scratch_bytes = RowTermsAndWeightSum},
    {.name = "cuda.gradloom.LabelWeights",
     .op = "LabelWeights",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsLabelWeights,
     .scratch_bytes = LossParts},
    {.name = "cuda.gradloom.Nll",
     .op = "Nll",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = Rejects<1, 0>,
     .scratch_bytes = RowTerms<1>},
    {.name = "cuda.gradloom.NllGrad", .op = "NllGrad", .domain = "gradloom", .device = DeviceKind::kCuda, .rejects = Rejects<0, 2>},
    {.name = "cuda.NegativeLogLikelihoodLoss",
     .op = "NegativeLogLikelihoodLoss",
     .domain = "",
     .device = DeviceKind::kCuda,
     .rejects = Rejects<1, 0>,
     .scratch_bytes = RowTerms<1>},
    {.name = "cuda.SoftmaxCrossEntropyLoss",
     .op = "SoftmaxCrossEntropyLoss",
     .domain = "",
     .device = DeviceKind::kCuda,
     .rejects = Rejects<1, 0>,
     .may_alias = kScoresInPlace,
     .scratch_bytes = RowTerms<1>},
};

}  // namespace

std::span<const KernelRow> CudaLossRows() { return kRows; }

}  // namespace gradloom

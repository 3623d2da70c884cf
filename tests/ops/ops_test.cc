// The table of operator cases: every operator with a gradient has a case, forward values agree between types, and gradients agree with
// finite differences.
#include <set>

#include "compiler/onnx/type_rules.h"
#include "compiler/ops/op.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference.h"
#include "tests/ops/gradient_check.h"

namespace gradloom {
namespace {

std::string FullName(std::string_view domain, std::string_view op) {
  return domain.empty() ? std::string(op) : std::string(domain) + "." + std::string(op);
}

TEST(Ops, ForwardValuesAgreeBetweenTypes) {
  const OnnxTypeRules rules;
  for (const OpCase& op_case : AllOpCases()) {
    try {
      EXPECT_EQ(CheckForward(op_case, rules), "") << op_case.Name();
    } catch (const Error& error) {
      ADD_FAILURE() << op_case.Name() << "\n" << error.Describe();
    }
  }
}

TEST(Ops, GradientsAgreeWithFiniteDifferences) {
  const OnnxTypeRules rules;
  for (const OpCase& op_case : AllOpCases()) {
    if (!op_case.gradient) continue;
    try {
      EXPECT_EQ(CheckGradient(op_case, rules), "") << op_case.Name();
    } catch (const Error& error) {
      ADD_FAILURE() << op_case.Name() << "\n" << error.Describe();
    }
  }
}

TEST(Ops, EveryGradientHasACase) {
  std::set<std::string> checked;
  for (const OpCase& op_case : AllOpCases()) {
    if (op_case.gradient) checked.insert(FullName(op_case.domain, op_case.op));
  }
  for (const Op* op : AllOps()) {
    if (op->gradient == nullptr) continue;
    EXPECT_TRUE(checked.contains(FullName(op->domain, op->name))) << op->name;
  }
}

// Operators that run bodies and are differentiated through them (tests/regions), and operators that are replaced before anything is
// computed.
const std::set<std::string> kNoKernel = {"gradloom.If", "gradloom.Loop", "gradloom.Derivative", "gradloom.BatchNormalization"};

// Operators whose differentiation is an error: they occur only in gradients, so only second derivatives would need it.
TEST(Ops, OperatorsWithoutAGradientAreListed) {
  const std::set<std::string> listed = {
      "gradloom.CumProdGrad",
      "gradloom.DetGrad",
      "gradloom.MaxPoolGrad",
      "gradloom.LpPoolGrad",
      "gradloom.BatchNormTrainGrad",
      "gradloom.LayerNormGrad",
      "gradloom.GroupNormGrad",
      "gradloom.RmsNormGrad",
      "gradloom.LrnGrad",
      "gradloom.CrossEntropyGrad",
      "gradloom.CrossEntropyLogSum",
      "gradloom.CrossEntropyLogSumGrad",
      "gradloom.CrossEntropyTraining",
      "gradloom.NllGrad",
      "gradloom.RnnGrad",
      "gradloom.GruGrad",
      "gradloom.LstmGrad",
      "gradloom.ResizeGrad",
      "gradloom.AttentionGrad",
      "gradloom.AttentionDropoutGrad",
      "gradloom.GridSampleGrad",
      "gradloom.DeformConvGrad",
      "gradloom.RoiAlignGrad",
      "gradloom.MaxRoiPoolGrad",
      "gradloom.Fused",
      "gradloom.FusedTensors",
      "gradloom.Reorder",
      // Created after differentiation.
      "gradloom.Attention",
      "gradloom.AttentionTraining",
      "gradloom.LstmTraining",
      "gradloom.GruTraining",
      "gradloom.LayerNormCast",
      "gradloom.SumLayerNorm",
      "gradloom.SumLayerNormGrad",
      "gradloom.BatchNormLine",
      "gradloom.MaskedBatchNormGrad",
      "gradloom.GemmBiasGrad",
      "gradloom.GemmGelu",
      "gradloom.GemmGeluGrad",
      "gradloom.GemmRelu",
      "gradloom.BatchNormSums",
      "gradloom.BatchNormApply",
      "gradloom.BatchNormStatistics",
      "gradloom.BatchNormGradSums",
      "gradloom.BatchNormGradApply",
      "gradloom.BatchNormGradParameters",
      "gradloom.AllReduce",
      "gradloom.Broadcast",
      "gradloom.Reduce",
      "gradloom.Send",
      "gradloom.Recv",
      "gradloom.GatherSamples",
      "gradloom.ScatterSamples",
  };
  for (const Op* op : AllOps()) {
    if (op->gradient != nullptr || op->has(kNoGradient) || op->has(kUpdate) || kNoKernel.contains(FullName(op->domain, op->name))) continue;
    EXPECT_TRUE(listed.contains(FullName(op->domain, op->name))) << op->name;
  }
}

TEST(Ops, EveryRowHasAReferenceKernel) {
  for (const Op* op : AllOps()) {
    if (op->has(kCollective) || kNoKernel.contains(FullName(op->domain, op->name))) continue;
    EXPECT_NE(FindReference(op->domain, op->name), nullptr) << op->name;
  }
}

}  // namespace
}  // namespace gradloom

#include <array>

#include "kernels/cpu/families.h"
#include "kernels/cpu/pointwise.h"

namespace gradloom {
namespace {

std::unique_ptr<Kernel> Make(const KernelCall& call) {
  return std::make_unique<PointwiseKernel>(call, *PointwiseProgramOf(call), BestLoops());
}

// If all elements have the same size, operands of equal size have equal shapes, and every loop reads an element before it writes it.
// Boolean operands are excluded, because their elements have one byte.
constexpr Aliasing kFloatInputs[] = {{0, 0}, {0, 1}, {0, 2}};
constexpr Aliasing kBranches[] = {{0, 1}, {0, 2}};

constexpr auto kFusedAliasing = [] {
  constexpr size_t kInputs = PointwiseProgram::kMaxInputs;
  std::array<Aliasing, PointwiseProgram::kMaxOutputs * kInputs> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = {static_cast<int>(i / kInputs), static_cast<int>(i % kInputs)};
  return all;
}();

std::string RejectsFusedInPlace(const KernelCall& call) { return HasOneSize(call) ? RejectsPointwise(call) : "elements of several sizes"; }

#define GRADLOOM_ROW(op_name, aliasing)                                                                                            \
  CpuKernel {                                                                                                                      \
    .row = {.name = "cpu." op_name, .op = op_name, .domain = "", .rejects = RejectsPointwise, .may_alias = aliasing}, .make = Make \
  }
#define GRADLOOM_FLOAT(name) GRADLOOM_ROW(name, kFloatInputs)
#define GRADLOOM_TRUTH(name) GRADLOOM_ROW(name, {})

constexpr CpuKernel kKernels[] = {
    GRADLOOM_FLOAT("Abs"),
    GRADLOOM_FLOAT("Acos"),
    GRADLOOM_FLOAT("Acosh"),
    GRADLOOM_FLOAT("Add"),
    GRADLOOM_TRUTH("And"),
    GRADLOOM_FLOAT("Asin"),
    GRADLOOM_FLOAT("Asinh"),
    GRADLOOM_FLOAT("Atan"),
    GRADLOOM_FLOAT("Atanh"),
    GRADLOOM_TRUTH("Cast"),
    GRADLOOM_FLOAT("Ceil"),
    GRADLOOM_FLOAT("Celu"),
    GRADLOOM_FLOAT("Clip"),
    GRADLOOM_FLOAT("Cos"),
    GRADLOOM_FLOAT("Cosh"),
    GRADLOOM_FLOAT("Div"),
    GRADLOOM_FLOAT("Elu"),
    GRADLOOM_TRUTH("Equal"),
    GRADLOOM_FLOAT("Erf"),
    GRADLOOM_FLOAT("Exp"),
    GRADLOOM_FLOAT("Floor"),
    GRADLOOM_FLOAT("Gelu"),
    GRADLOOM_TRUTH("Greater"),
    GRADLOOM_TRUTH("GreaterOrEqual"),
    GRADLOOM_FLOAT("HardSigmoid"),
    GRADLOOM_FLOAT("HardSwish"),
    GRADLOOM_TRUTH("IsNaN"),
    GRADLOOM_FLOAT("LeakyRelu"),
    GRADLOOM_TRUTH("Less"),
    GRADLOOM_TRUTH("LessOrEqual"),
    GRADLOOM_FLOAT("Log"),
    GRADLOOM_FLOAT("Max"),
    GRADLOOM_FLOAT("Mean"),
    GRADLOOM_FLOAT("Min"),
    GRADLOOM_FLOAT("Mish"),
    GRADLOOM_FLOAT("Mod"),
    GRADLOOM_FLOAT("Mul"),
    GRADLOOM_FLOAT("Neg"),
    GRADLOOM_TRUTH("Not"),
    GRADLOOM_TRUTH("Or"),
    GRADLOOM_FLOAT("Pow"),
    GRADLOOM_FLOAT("PRelu"),
    GRADLOOM_FLOAT("Reciprocal"),
    GRADLOOM_FLOAT("Relu"),
    GRADLOOM_FLOAT("Round"),
    GRADLOOM_FLOAT("Selu"),
    GRADLOOM_FLOAT("Sigmoid"),
    GRADLOOM_FLOAT("Sign"),
    GRADLOOM_FLOAT("Sin"),
    GRADLOOM_FLOAT("Sinh"),
    GRADLOOM_FLOAT("Softplus"),
    GRADLOOM_FLOAT("Softsign"),
    GRADLOOM_FLOAT("Sqrt"),
    GRADLOOM_FLOAT("Sub"),
    GRADLOOM_FLOAT("Sum"),
    GRADLOOM_FLOAT("SwiGLU"),
    GRADLOOM_FLOAT("Swish"),
    GRADLOOM_FLOAT("Tan"),
    GRADLOOM_FLOAT("Tanh"),
    GRADLOOM_FLOAT("ThresholdedRelu"),
    GRADLOOM_ROW("Where", kBranches),
    GRADLOOM_TRUTH("Xor"),
    {.row = {.name = "cpu.Fused", .op = "Fused", .domain = "gradloom", .rejects = RejectsFusedInPlace, .may_alias = kFusedAliasing},
     .make = Make},
    {.row = {.name = "cpu.FusedMixed", .op = "Fused", .domain = "gradloom", .rejects = RejectsPointwise}, .make = Make},
};

}  // namespace

std::span<const CpuKernel> CpuPointwiseKernels() { return kKernels; }

}  // namespace gradloom

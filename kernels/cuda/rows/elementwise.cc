// Pointwise operators on every element type.
#include "kernels/catalog/physical.h"
#include "kernels/cuda/rows/fold.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

bool IsNumber(DType dtype) { return IsFloating(dtype) || IsInteger(dtype); }
bool IsBool(DType dtype) { return dtype == DType::kBool; }
bool IsElement(DType dtype) { return IsNumber(dtype) || IsBool(dtype); }

// The operands have different layouts, or more axes than OffsetCalculator supports.
std::string LayoutsOrRank(const KernelCall& call) {
  if (!PhysicalOf(call)) return "operands in different layouts";
  return RankAbove(call, kMaxAxes);
}

// All inputs from `first` on must have the same type.
template <bool (*serves)(DType)>
std::string Types(const KernelCall& call, size_t first = 0) {
  const DType dtype = call.inputs[first].dtype;
  if (!serves(dtype)) return "elements of type " + std::string(DTypeName(dtype));
  for (size_t i = first; i < call.inputs.size(); ++i) {
    if (call.inputs[i].present() && call.inputs[i].dtype != dtype) return "operands of different types";
  }
  return "";
}

template <bool (*serves)(DType)>
std::string Rejects(const KernelCall& call) {
  return FirstOf({Types<serves>(call), LayoutsOrRank(call)});
}

std::string RejectsWhere(const KernelCall& call) {
  return FirstOf({IsBool(call.inputs[0].dtype) ? "" : "a condition of numbers", Types<IsElement>(call, 1), LayoutsOrRank(call)});
}

std::string RejectsPow(const KernelCall& call) {
  return IsNumber(call.inputs[0].dtype) && IsNumber(call.inputs[1].dtype) ? LayoutsOrRank(call) : "operands that are not numeric";
}

// The type of the result says what CastLike converts to.
std::string RejectsCast(const KernelCall& call) {
  if (!IsElement(call.inputs[0].dtype) || !IsElement(call.outputs[0].dtype)) return "elements that are not numeric";
  KernelCall one = call;
  one.inputs.resize(1);
  return PhysicalOf(one) ? "" : "operands in different layouts";
}

// Operands of the output's type and size have as many elements, and each thread reads its elements before it writes them.
constexpr Aliasing kInputs[] = {{0, 0}, {0, 1}, {0, 2}};
constexpr Aliasing kFirst[] = {{0, 0}};
constexpr Aliasing kBranches[] = {{0, 1}, {0, 2}};

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string (*rejects)(const KernelCall&),
                        std::span<const Aliasing> may_alias = {}) {
  return {.name = name, .op = op, .domain = "", .device = DeviceKind::kCuda, .rejects = rejects, .may_alias = may_alias};
}

int64_t FoldBytes(const KernelCall& call) {
  const bool passes = call.inputs.size() > kFoldedAtOnce && Is16BitFloat(call.outputs[0].dtype);
  return passes ? call.outputs[0].shape.elements() * 4 : 0;
}

constexpr KernelRow WithTotals(KernelRow row) {
  row.scratch_bytes = FoldBytes;
  return row;
}

constexpr KernelRow kRows[] = {
    Row("cuda.Abs", "Abs", Rejects<IsNumber>, kInputs),
    Row("cuda.Acos", "Acos", Rejects<IsFloating>, kInputs),
    Row("cuda.Acosh", "Acosh", Rejects<IsFloating>, kInputs),
    Row("cuda.Add", "Add", Rejects<IsNumber>, kInputs),
    Row("cuda.And", "And", Rejects<IsBool>, kInputs),
    Row("cuda.Asin", "Asin", Rejects<IsFloating>, kInputs),
    Row("cuda.Asinh", "Asinh", Rejects<IsFloating>, kInputs),
    Row("cuda.Atan", "Atan", Rejects<IsFloating>, kInputs),
    Row("cuda.Atanh", "Atanh", Rejects<IsFloating>, kInputs),
    Row("cuda.BitShift", "BitShift", Rejects<IsInteger>, kInputs),
    Row("cuda.BitwiseAnd", "BitwiseAnd", Rejects<IsInteger>, kInputs),
    Row("cuda.BitwiseNot", "BitwiseNot", Rejects<IsInteger>, kInputs),
    Row("cuda.BitwiseOr", "BitwiseOr", Rejects<IsInteger>, kInputs),
    Row("cuda.BitwiseXor", "BitwiseXor", Rejects<IsInteger>, kInputs),
    Row("cuda.Cast", "Cast", RejectsCast, kFirst),
    Row("cuda.CastLike", "CastLike", RejectsCast, kFirst),
    Row("cuda.Ceil", "Ceil", Rejects<IsFloating>, kInputs),
    Row("cuda.Celu", "Celu", Rejects<IsFloating>, kInputs),
    Row("cuda.Clip", "Clip", Rejects<IsNumber>, kInputs),
    Row("cuda.Cos", "Cos", Rejects<IsFloating>, kInputs),
    Row("cuda.Cosh", "Cosh", Rejects<IsFloating>, kInputs),
    Row("cuda.Div", "Div", Rejects<IsNumber>, kInputs),
    Row("cuda.Elu", "Elu", Rejects<IsFloating>, kInputs),
    Row("cuda.Equal", "Equal", Rejects<IsElement>),
    Row("cuda.Erf", "Erf", Rejects<IsFloating>, kInputs),
    Row("cuda.Exp", "Exp", Rejects<IsFloating>, kInputs),
    Row("cuda.Floor", "Floor", Rejects<IsFloating>, kInputs),
    Row("cuda.Gelu", "Gelu", Rejects<IsFloating>, kInputs),
    Row("cuda.Greater", "Greater", Rejects<IsElement>),
    Row("cuda.GreaterOrEqual", "GreaterOrEqual", Rejects<IsElement>),
    Row("cuda.HardSigmoid", "HardSigmoid", Rejects<IsFloating>, kInputs),
    Row("cuda.HardSwish", "HardSwish", Rejects<IsFloating>, kInputs),
    Row("cuda.IsInf", "IsInf", Rejects<IsFloating>),
    Row("cuda.IsNaN", "IsNaN", Rejects<IsFloating>),
    Row("cuda.LeakyRelu", "LeakyRelu", Rejects<IsFloating>, kInputs),
    Row("cuda.Less", "Less", Rejects<IsElement>),
    Row("cuda.LessOrEqual", "LessOrEqual", Rejects<IsElement>),
    Row("cuda.Log", "Log", Rejects<IsFloating>, kInputs),
    WithTotals(Row("cuda.Max", "Max", Rejects<IsNumber>, kInputs)),
    WithTotals(Row("cuda.Mean", "Mean", Rejects<IsFloating>, kInputs)),
    WithTotals(Row("cuda.Min", "Min", Rejects<IsNumber>, kInputs)),
    Row("cuda.Mish", "Mish", Rejects<IsFloating>, kInputs),
    Row("cuda.Mod", "Mod", Rejects<IsNumber>, kInputs),
    Row("cuda.Mul", "Mul", Rejects<IsNumber>, kInputs),
    Row("cuda.Neg", "Neg", Rejects<IsNumber>, kInputs),
    Row("cuda.Not", "Not", Rejects<IsBool>, kInputs),
    Row("cuda.Or", "Or", Rejects<IsBool>, kInputs),
    Row("cuda.PRelu", "PRelu", Rejects<IsNumber>, kInputs),
    Row("cuda.Pow", "Pow", RejectsPow, kFirst),
    Row("cuda.Reciprocal", "Reciprocal", Rejects<IsFloating>, kInputs),
    Row("cuda.Relu", "Relu", Rejects<IsNumber>, kInputs),
    Row("cuda.Round", "Round", Rejects<IsFloating>, kInputs),
    Row("cuda.Selu", "Selu", Rejects<IsFloating>, kInputs),
    Row("cuda.Shrink", "Shrink", Rejects<IsNumber>, kInputs),
    Row("cuda.Sigmoid", "Sigmoid", Rejects<IsFloating>, kInputs),
    Row("cuda.Sign", "Sign", Rejects<IsNumber>, kInputs),
    Row("cuda.Sin", "Sin", Rejects<IsFloating>, kInputs),
    Row("cuda.Sinh", "Sinh", Rejects<IsFloating>, kInputs),
    Row("cuda.Softplus", "Softplus", Rejects<IsFloating>, kInputs),
    Row("cuda.Softsign", "Softsign", Rejects<IsFloating>, kInputs),
    Row("cuda.Sqrt", "Sqrt", Rejects<IsFloating>, kInputs),
    Row("cuda.Sub", "Sub", Rejects<IsNumber>, kInputs),
    WithTotals(Row("cuda.Sum", "Sum", Rejects<IsFloating>, kInputs)),
    Row("cuda.SwiGLU", "SwiGLU", Rejects<IsFloating>, kInputs),
    Row("cuda.Swish", "Swish", Rejects<IsFloating>, kInputs),
    Row("cuda.Tan", "Tan", Rejects<IsFloating>, kInputs),
    Row("cuda.Tanh", "Tanh", Rejects<IsFloating>, kInputs),
    Row("cuda.ThresholdedRelu", "ThresholdedRelu", Rejects<IsFloating>, kInputs),
    Row("cuda.Where", "Where", RejectsWhere, kBranches),
    Row("cuda.Xor", "Xor", Rejects<IsBool>, kInputs),
};

}  // namespace

std::span<const KernelRow> CudaElementwiseRows() { return kRows; }

}  // namespace gradloom

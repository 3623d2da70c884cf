// Matrix products of every type without a library, for calls that cuBLASLt does not serve.
#include <algorithm>

#include "kernels/cuda/rows/rows.h"
#include "runtime/base/einsum.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string NotNumbers(const KernelCall& call) {
  const DType dtype = call.inputs[0].dtype;
  for (const OperandType& in : call.inputs) {
    if (in.present() && in.dtype != dtype) return "operands of several types";
  }
  return IsFloating(dtype) || IsInteger(dtype) ? "" : "elements of type " + std::string(DTypeName(dtype));
}

std::string RejectsProduct(const KernelCall& call) { return FirstOf({Layouts(call), NotNumbers(call), RankAbove(call, kMaxAxes)}); }

std::string RejectsInteger(const KernelCall& call) {
  for (size_t i : {0, 1}) {
    const DType dtype = call.inputs[i].dtype;
    if (dtype != DType::kInt8 && dtype != DType::kUint8) return "elements of type " + std::string(DTypeName(dtype));
    if (call.inputs.size() > i + 2 && call.inputs[i + 2].present() && call.inputs[i + 2].dtype != dtype)
      return "zero points of another type";
  }
  return FirstOf({Layouts(call), RankAbove(call, kMaxAxes)});
}

std::string RejectsEinsum(const KernelCall& call) {
  if (std::string why = RejectsProduct(call); !why.empty()) return why;
  if (call.inputs.size() > 4) return "more than 4 operands";
  std::vector<Shape> shapes;
  for (const OperandType& in : call.inputs) shapes.push_back(in.shape);
  const EinsumEquation equation = EinsumEquation::Parse(call.attributes.String("equation", ""), shapes);
  return equation.extents.size() > equation.output.size() + 8 ? "sums over more than 8 indices" : "";
}

constexpr KernelRow kRows[] = {
    {.name = "cuda.MatMul", .op = "MatMul", .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsProduct},
    {.name = "cuda.Gemm", .op = "Gemm", .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsProduct},
    {.name = "cuda.MatMulInteger", .op = "MatMulInteger", .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsInteger},
    {.name = "cuda.Einsum", .op = "Einsum", .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsEinsum},
};

}  // namespace

std::span<const KernelRow> CudaProductRows() { return kRows; }

}  // namespace gradloom

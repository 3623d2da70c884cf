// gradloom.Fused and FusedTensors: run their program one element at a time, with functions of the standard library.
#include <algorithm>
#include <cmath>

#include "kernels/catalog/pointwise.h"
#include "kernels/catalog/pointwise_tensors.h"
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "kernels/scalar/libm.h"

namespace gradloom {
namespace {

// One function of kernels/scalar/pointwise.def.
template <typename T>
T Apply(PointwiseOp op, T a, T b, T c) {
  // As in the loops: one formula for both signs, without a branch.
  if (op == PointwiseOp::kSigmoid) return 1 / (1 + std::exp(-a));
  switch (op) {
#define GRADLOOM_POINTWISE(name, operands, expression) \
  case PointwiseOp::k##name:                           \
    return libm::name##Element(a, b, c);
#include "kernels/scalar/pointwise.def"
#undef GRADLOOM_POINTWISE
  }
  return a;
}

// Element `offset` of an operand with elements of type T, of a 16-bit type, or bool.
template <typename T>
T LoadElement(const OperandType& type, const void* data, int64_t offset) {
  switch (type.dtype) {
    case DType::kBool: return static_cast<T>(static_cast<const bool*>(data)[offset]);
    case DType::kFloat16: return static_cast<float>(static_cast<const Half*>(data)[offset]);
    case DType::kBfloat16: return static_cast<float>(static_cast<const Bfloat16*>(data)[offset]);
    default: return static_cast<const T*>(data)[offset];
  }
}

template <typename T>
void StoreElement(const OperandType& type, void* data, int64_t offset, T value) {
  switch (type.dtype) {
    case DType::kBool: static_cast<bool*>(data)[offset] = value != 0; return;
    case DType::kFloat16: static_cast<Half*>(data)[offset] = static_cast<float>(value); return;
    case DType::kBfloat16: static_cast<Bfloat16*>(data)[offset] = static_cast<float>(value); return;
    default: static_cast<T*>(data)[offset] = value;
  }
}

void Fused(const KernelCall& call, const void* const* in, void* const* out) {
  const PointwiseProgram program = PointwiseProgram::FromAttributes(call.attributes, static_cast<int>(call.inputs.size()));
  const Shape& shape = call.outputs[0].shape;
  const bool wide = std::any_of(call.inputs.begin(), call.inputs.end(), [](const OperandType& i) { return i.dtype == DType::kFloat64; });
  WithFloat(wide ? DType::kFloat64 : DType::kFloat32, [&]<typename T>(std::type_identity<T>) {
    std::vector<std::vector<int64_t>> strides;
    for (const OperandType& input : call.inputs) strides.push_back(BroadcastStrides(input.shape, shape));
    std::vector<T> values(static_cast<size_t>(program.first_result()) + program.instructions.size());
    for (size_t k = 0; k < program.constants.size(); ++k) values[call.inputs.size() + k] = static_cast<T>(program.constants[k]);
    const int64_t n = shape.elements();
    for (int64_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < call.inputs.size(); ++k) {
        int64_t rest = i, offset = 0;
        for (int axis = shape.rank(); axis-- > 0; rest /= shape[axis]) offset += rest % shape[axis] * strides[k][static_cast<size_t>(axis)];
        values[k] = LoadElement<T>(call.inputs[k], in[k], offset);
      }
      auto result = static_cast<size_t>(program.first_result());
      for (const auto& [op, operands] : program.instructions) {
        const auto operand = [&](size_t k) { return operands[k] < 0 ? T{0} : values[static_cast<size_t>(operands[k])]; };
        values[result++] = Apply<T>(op, operand(0), operand(1), operand(2));
      }
      for (size_t k = 0; k < program.outputs.size(); ++k) {
        StoreElement(call.outputs[k], out[k], i, values[static_cast<size_t>(program.outputs[k])]);
      }
    }
  });
}

void FusedTensors(const KernelCall& call, const void* const* in, void* const* out) {
  const int tensors = FusedTensorsOf(call);
  for (int tensor = 0; tensor < tensors; ++tensor) {
    const KernelCall one = FusedOf(call, tensor);
    Fused(one, in, out);
    in += one.inputs.size();
    out += one.outputs.size();
  }
}

constexpr ReferenceKernel kKernels[] = {{"Fused", "gradloom", Fused}, {"FusedTensors", "gradloom", FusedTensors}};

}  // namespace

std::span<const ReferenceKernel> ReferenceFused() { return kKernels; }

}  // namespace gradloom

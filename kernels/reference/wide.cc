#include "kernels/reference/wide.h"

#include <algorithm>
#include <cstring>

#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

bool IsHalf(const OperandType& operand) { return Is16BitFloat(operand.dtype); }

}  // namespace

bool HasHalf(const KernelCall& call) {
  return std::any_of(call.inputs.begin(), call.inputs.end(), IsHalf) || std::any_of(call.outputs.begin(), call.outputs.end(), IsHalf);
}

void RunWide(const KernelCall& call, const void* const* in, void* const* out, ReferenceFunction run) {
  KernelCall wide = call;
  std::vector<Tensor> tensors;  // owns the widened operands
  std::vector<const void*> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    inputs.push_back(in[i]);
    if (!IsHalf(call.inputs[i])) continue;
    wide.inputs[i].dtype = DType::kFloat32;
    inputs.back() = tensors.emplace_back(Converted(InputView(call, in, i), DType::kFloat32)).data();
  }
  std::vector<Tensor> results(call.outputs.size());
  std::vector<void*> outputs;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    outputs.push_back(out[i]);
    if (!IsHalf(call.outputs[i])) continue;
    wide.outputs[i].dtype = DType::kFloat32;
    if (out[i] == nullptr) continue;
    results[i] = Tensor(DType::kFloat32, call.outputs[i].shape);
    outputs.back() = results[i].data();
  }
  run(wide, inputs.data(), outputs.data());
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    const Tensor narrow = Converted(results[i].view(), call.outputs[i].dtype);
    std::memcpy(out[i], narrow.data(), static_cast<size_t>(narrow.bytes()));
  }
}

}  // namespace gradloom

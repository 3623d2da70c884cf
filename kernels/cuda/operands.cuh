// Access to the operands of a launch by their index in the operator's signature.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/cuda/cuda_kernel.h"

namespace gradloom::cuda {

// For operators with optional operands: those past the end of a call's lists count as absent.
struct OperandCounts {
  size_t inputs, outputs;

  explicit OperandCounts(const KernelCall& call) : inputs(call.inputs.size()), outputs(call.outputs.size()) {}

  template <typename T>
  const T* In(const Launch& launch, size_t i) const {
    return i < inputs ? launch.In<T>(i) : nullptr;
  }
  template <typename T>
  T* Out(const Launch& launch, size_t i) const {
    return i < outputs ? launch.Out<T>(i) : nullptr;
  }
};

// For gradient operators whose attribute `wanted` lists the inputs of the forward operator for which they compute gradients.
class WantedOutputs {
 public:
  explicit WantedOutputs(const KernelCall& call) : wanted_(call.attributes.Ints("wanted")) {}

  bool Has(int64_t input) const { return std::find(wanted_.begin(), wanted_.end(), input) != wanted_.end(); }

  // The output for the gradient of this input, or null.
  template <typename T>
  T* Of(const Launch& launch, int64_t input) const {
    const auto at = std::find(wanted_.begin(), wanted_.end(), input);
    return at == wanted_.end() ? nullptr : launch.Out<T>(static_cast<size_t>(at - wanted_.begin()));
  }

 private:
  std::vector<int64_t> wanted_;
};

}  // namespace gradloom::cuda

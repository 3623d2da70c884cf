// Recurrent calls on the CUDA device, compared with the reference kernels in three types.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/cuda/run_kernel.h"
#include "tests/kernels/recurrent_calls.h"

namespace gradloom::recurrent_calls {

// The call with operands of this type. Values saved by the training form stay float32. In 16 bits R is scaled down until no rounding error
// of a state grows from step to step, since the reference does not round states.
inline Drawn InType(Drawn drawn, DType dtype) {
  KernelCall& call = drawn.call;
  const auto change = [&](OperandType& type) {
    if (type.dtype == DType::kFloat32) type.dtype = dtype;
  };
  for (OperandType& type : call.inputs) change(type);
  for (OperandType& type : call.outputs) change(type);
  if (call.op.ends_with("Training")) call.outputs.back().dtype = DType::kFloat32;
  if (DTypeBytes(dtype) == 2) {
    // Its elements lie between -0.5 and 0.5.
    Tensor& r = drawn.inputs[2] = drawn.inputs[2].Clone();
    const double gain = std::sqrt(static_cast<double>(call.inputs[2].shape[2]) / 12);
    for (float& value : r.as<float>()) value = static_cast<float>(value / std::max(gain, 1.0));
  }
  for (Tensor& tensor : drawn.inputs) {
    if (tensor.defined() && tensor.dtype() == DType::kFloat32) tensor = Converted(tensor.view(), dtype);
  }
  return drawn;
}

inline Drawn TrainingFormOf(Drawn drawn, const Kind& kind) {
  drawn.call = TrainingOf(drawn.call, kind);
  return drawn;
}

inline std::vector<Tensor> OnDevice(const Drawn& drawn, const std::string& row) {
  return RunKernel(*FindKernel(row), drawn.call, drawn.inputs);
}

// Relative to the largest element, or to what remains where large terms cancel. In 16 bits the states are rounded between steps, which the
// reference does not do.
inline double ToleranceOf(DType dtype) { return dtype == DType::kFloat32 ? 2e-5 : dtype == DType::kFloat16 ? 4e-3 : 3e-2; }

inline void ExpectNear(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted, double tolerance) {
  for (size_t k = 0; k < wanted.size(); ++k) {
    if (!got[k].defined()) continue;
    double largest = wanted[k].dtype() == DType::kFloat32 ? 1e-3 : 5e-3, worst = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < wanted[k].elements(); ++i) {
      const double g = ElementAsDouble(got[k].view(), i), w = ElementAsDouble(wanted[k].view(), i);
      largest = std::max(largest, std::fabs(w));
      const double difference = std::isfinite(g) ? std::fabs(g - w) : INFINITY;
      if (difference > worst) at = i;
      worst = std::max(worst, difference);
    }
    EXPECT_LE(worst, tolerance * largest) << "output " << k << " at " << at;
  }
}

inline std::vector<char> BytesOf(const std::vector<Tensor>& tensors) {
  std::vector<char> bytes;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const char* const data = static_cast<const char*>(tensor.data());
    bytes.insert(bytes.end(), data, data + tensor.bytes());
  }
  return bytes;
}

}  // namespace gradloom::recurrent_calls

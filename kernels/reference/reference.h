// Reference kernels: simple loops over row-major tensors, in every dtype that an operator allows. Used for constant folding, for the
// oracle, and as the last choice of the CPU device. Clarity comes before speed.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// Computes the outputs of a call from its inputs. Layouts are plain; absent operands have null addresses; operands do not overlap.
using ReferenceFunction = void (*)(const KernelCall& call, const void* const* inputs, void* const* outputs);

struct ReferenceKernel {
  std::string_view op;
  std::string_view domain;
  ReferenceFunction run;
};

// Returns null if there is none.
const ReferenceKernel* FindReference(std::string_view domain, std::string_view op);

// All reference kernels. The catalog has a row for each (ReferenceKernelRows).
std::span<const ReferenceKernel* const> AllReferenceKernels();

// Runs a call on tensors. Absent inputs are undefined tensors. Returns as many outputs as call.outputs has.
std::vector<Tensor> RunReference(const KernelCall& call, std::span<const Tensor> inputs);

}  // namespace gradloom

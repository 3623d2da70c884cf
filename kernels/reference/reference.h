// Plain loops over row-major tensors in any dtype that an operator allows: constant folding, the oracle,
// and the last resort of the CPU device. Clear before fast.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// Computes the outputs of a call from its inputs. Layouts are plain; absent operands have null
// addresses. Operands do not overlap.
using ReferenceFunction = void (*)(const KernelCall& call, const void* const* inputs, void* const* outputs);

struct ReferenceKernel {
  std::string_view op;
  std::string_view domain;
  ReferenceFunction run;
};

// Null where there is none.
const ReferenceKernel* FindReference(std::string_view domain, std::string_view op);

// All of them; kernels/catalog has a row "reference.NAME" (own operators: "reference.gradloom.NAME") for each.
std::span<const ReferenceKernel* const> AllReferenceKernels();

// Runs a call on tensors: absent inputs are undefined tensors; returns as many outputs as call.outputs has.
std::vector<Tensor> RunReference(const KernelCall& call, std::span<const Tensor> inputs);

}  // namespace gradloom

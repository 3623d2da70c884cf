// Operators whose output shapes depend on their data.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// Computes all outputs of a call, which does not have the types of its outputs. Absent inputs are undefined tensors.
using DynamicFunction = std::vector<Tensor> (*)(const KernelCall& call, std::span<const Tensor> inputs);

// Null if the operator is not one of these.
DynamicFunction FindDynamic(std::string_view domain, std::string_view op);

}  // namespace gradloom

// Operators whose results have as many elements as their data says.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// All outputs of a call that is complete but for the types of its outputs. Absent inputs are undefined tensors.
using DynamicFunction = std::vector<Tensor> (*)(const KernelCall& call, std::span<const Tensor> inputs);

// Null for an operator that is none of these.
DynamicFunction FindDynamic(std::string_view domain, std::string_view op);

}  // namespace gradloom

// What the results of a call depend on.
#pragma once

#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// An output of a call, and the indices of what it is computed from.
struct OutputFlow {
  int output = 0;
  std::vector<int> inputs;   // ascending
  std::vector<int> outputs;  // other outputs, ascending; these come earlier in the list
};

// For operators that compute independent results in one launch (gradloom.Fused, FusedTensors, MultiTensorUpdate): all outputs of the call.
// Empty for other operators: each output may depend on every input. Throws Error(kPlan) for attributes that are no program.
std::vector<OutputFlow> FlowsOf(const KernelCall& call);

}  // namespace gradloom

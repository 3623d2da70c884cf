// Chooses the kernel of each node.
#pragma once

#include <string_view>
#include <vector>

#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

// The kernel call of a node, in the layouts that the plan gives its values.
KernelCall CallOf(const Graph& graph, const Node& node, const ProgramPlan& plan);

// Whether a kernel other than the reference kernel serves the call.
bool HasOwnKernel(const KernelCall& call, DeviceKind device);
// The same for a node that is not in the graph yet, with all operands in row-major order. `outputs`: the types of its results, also of
// those that it does not make.
bool HasOwnKernel(const Graph& graph, const Node& node, const std::vector<ValueType>& outputs, DeviceKind device);

// What is left of a row's name without its operator: the same for rows that compute several forms of an operator in the same way.
std::string_view FamilyOf(const KernelRow& row);

// Fills plan.kernels with the first catalog row that serves each node on plan.device; views and collectives get none. Throws
// Error(kUnsupported) naming every node that no row serves, with the reasons.
void ChooseKernels(const Graph& graph, ProgramPlan& plan);

}  // namespace gradloom

// Chooses the kernel of each node.
#pragma once

#include <string_view>

#include "compiler/passes/program_plan.h"

namespace gradloom {

// The kernel call of a node, in the layouts that the plan gives its values.
KernelCall CallOf(const Graph& graph, const Node& node, const ProgramPlan& plan);

// What is left of a row's name without its operator: the same for rows that compute several forms of an operator in the same way.
std::string_view FamilyOf(const KernelRow& row);

// Fills plan.kernels with the first catalog row that serves each node on plan.device; views and collectives get none. Throws
// Error(kUnsupported) naming every node that no row serves, with the reasons.
void ChooseKernels(const Graph& graph, ProgramPlan& plan);

}  // namespace gradloom

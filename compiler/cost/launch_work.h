// The work of a plan's instructions.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ops/op.h"
#include "kernels/catalog/kernel_work.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The computation and memory traffic of a launch, by its operator's row, as the compiler counts them for a node.
Cost CostOfLaunch(const Program& program, const Instruction& launch);

// The work of the kernel that the launch names.
std::vector<KernelWork> WorkOfLaunch(const Plan& plan, const Program& program, const Instruction& launch);

// The bytes of the buffers that an instruction reads: of a collective, what each member passes to it.
int64_t BytesRead(const Program& program, const Instruction& instruction);

}  // namespace gradloom

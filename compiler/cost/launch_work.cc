#include "compiler/cost/launch_work.h"

#include "kernels/catalog/kernel.h"

namespace gradloom {

Cost CostOfLaunch(const Program& program, const Instruction& launch) {
  Graph graph;
  Node node{.op = launch.op, .domain = launch.domain};
  node.attributes = launch.attributes;
  for (const Use& use : launch.uses) {
    if (use.access == Access::kScratch) continue;
    ValueId id = kNoValue;
    if (use.buffer >= 0) {
      const Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
      id = graph.AddValue(buffer.name, buffer.dtype, buffer.shape, Role::kActivation);
    }
    (use.access == Access::kRead ? node.inputs : node.outputs).push_back(id);
  }
  return CostOf(graph, node);
}

std::vector<KernelWork> WorkOfLaunch(const Plan& plan, const Program& program, const Instruction& launch) {
  const Cost cost = CostOfLaunch(program, launch);
  const KernelWork least{1, cost.flops, cost.bytes};
  const KernelRow* const row = FindKernel(launch.kernel);
  return row == nullptr ? std::vector<KernelWork>{least} : WorkOf(*row, CallOf(plan, program, launch), least);
}

int64_t BytesRead(const Program& program, const Instruction& instruction) {
  int64_t bytes = 0;
  for (const Use& use : instruction.uses) {
    if (use.access == Access::kRead && use.buffer >= 0) bytes += program.buffers[static_cast<size_t>(use.buffer)].bytes;
  }
  return bytes;
}

}  // namespace gradloom

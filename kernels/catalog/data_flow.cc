#include "kernels/catalog/data_flow.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "kernels/catalog/pointwise.h"
#include "kernels/catalog/pointwise_tensors.h"
#include "kernels/catalog/update.h"

namespace gradloom {
namespace {

static_assert(PointwiseProgram::kMaxInputs + PointwiseProgram::kMaxOutputs <= 64);

// The outputs of a group of operands whose first input and output have these indices.
void AddFlows(const PointwiseProgram& program, int first_input, int first_output, std::vector<OutputFlow>& flows) {
  // By operand: what it is computed from. Bit i stands for input i, bit num_inputs + k for output k.
  std::vector<uint64_t> sets(static_cast<size_t>(program.first_result()), 0);
  const int inputs = program.num_inputs;
  for (int i = 0; i < inputs; ++i) sets[static_cast<size_t>(i)] = uint64_t{1} << i;
  for (const PointwiseProgram::Instruction& instruction : program.instructions) {
    uint64_t set = 0;
    for (int operand : instruction.operands) {
      if (operand >= 0) set |= sets[static_cast<size_t>(operand)];
    }
    const auto result = static_cast<int>(sets.size());
    uint64_t as_operand = set;
    for (size_t k = 0; k < program.outputs.size(); ++k) {
      if (program.outputs[k] != result) continue;
      OutputFlow flow{.output = first_output + static_cast<int>(k), .inputs = {}, .outputs = {}};
      for (int bit = 0; bit < inputs + PointwiseProgram::kMaxOutputs; ++bit) {
        if ((set >> bit & 1U) == 0) continue;
        bit < inputs ? flow.inputs.push_back(first_input + bit) : flow.outputs.push_back(first_output + bit - inputs);
      }
      flows.push_back(std::move(flow));
      as_operand = uint64_t{1} << (static_cast<size_t>(inputs) + k);
    }
    sets.push_back(as_operand);
  }
}

void AddUpdates(const KernelCall& call, std::vector<OutputFlow>& flows) {
  for (int tensor = 0; tensor < TensorsOf(call); ++tensor) {
    std::vector<int> inputs = UpdateInputs(call, tensor);
    std::sort(inputs.begin(), inputs.end());
    for (int output : UpdateOutputs(call, tensor)) flows.push_back({output, inputs, {}});
  }
}

}  // namespace

std::vector<OutputFlow> FlowsOf(const KernelCall& call) {
  std::vector<OutputFlow> flows;
  if (call.domain != "gradloom") return flows;
  if (call.op == "MultiTensorUpdate") AddUpdates(call, flows);
  const int groups = call.op == "Fused" ? 1 : call.op == "FusedTensors" ? FusedTensorsOf(call) : 0;
  if (groups < 1) return flows;
  const std::optional<PointwiseProgram> program = PointwiseProgramOf(call.op == "Fused" ? call : FusedOf(call, 0));
  if (!program) return flows;
  const auto outputs = static_cast<int>(program->outputs.size());
  for (int group = 0; group < groups; ++group) AddFlows(*program, group * program->num_inputs, group * outputs, flows);
  return flows;
}

}  // namespace gradloom

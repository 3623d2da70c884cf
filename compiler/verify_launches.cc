#include "compiler/verify_launches.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/onnx/type_rules.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Constants larger than this are weights: no shape depends on them.
constexpr int64_t kMaxElements = 1 << 16;

class LaunchVerifier {
 public:
  explicit LaunchVerifier(const Plan& plan) {
    for (const Constant& constant : plan.constants) {
      const Tensor& value = constant.value;
      if (value.elements() == 0) {
        empty_.emplace(std::pair(value.dtype(), value.shape().dims()), &value);
      } else {
        constants_.emplace(constant.offset, &constant);
      }
    }
  }

  // `held`: the place of the ranks that run the program; a body does not store it.
  void Check(const Program& program, int held, const std::string& where) const {
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      const std::string place = where + ", #" + std::to_string(i);
      for (size_t k = 0; k < instruction.bodies.size(); ++k) Check(instruction.bodies[k], held, place + ", body " + std::to_string(k));
      if (instruction.kind == InstructionKind::kLaunch) CheckLaunch(program, held, instruction, place);
    }
  }

 private:
  // Different places can hold different constants at the same offset.
  const Tensor* ValueOf(const Buffer& buffer, int held) const {
    if (buffer.arena != Arena::kConstants) return nullptr;
    if (buffer.shape.checked_elements() == 0) {
      const auto found = empty_.find({buffer.dtype, buffer.shape.dims()});
      return found == empty_.end() ? nullptr : found->second;
    }
    const auto [first, last] = constants_.equal_range(buffer.offset);
    for (auto it = first; it != last; ++it) {
      const Tensor& value = it->second->value;
      if (it->second->in_place(held) && value.dtype() == buffer.dtype && value.shape() == buffer.shape && value.elements() <= kMaxElements)
        return &value;
    }
    return nullptr;
  }

  void CheckLaunch(const Program& program, int held, const Instruction& launch, const std::string& place) const {
    Graph graph;
    Node node{.op = launch.op, .domain = launch.domain};
    node.attributes = launch.attributes;
    for (const Use& use : launch.uses) {
      if (use.buffer < -1 || use.buffer >= static_cast<int>(program.buffers.size())) return;
      if (use.access == Access::kScratch) continue;
      ValueId id = kNoValue;
      if (use.buffer >= 0) {
        const Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
        const Tensor* value = use.access == Access::kRead ? ValueOf(buffer, held) : nullptr;
        id = value != nullptr ? graph.AddData(buffer.name, *value, Role::kConst)
                              : graph.AddValue(buffer.name, buffer.dtype, buffer.shape, Role::kActivation);
      }
      (use.access == Access::kRead ? node.inputs : node.outputs).push_back(id);
    }
    const std::string where = place + " launch " + Escaped(launch.kernel) + " ('" + Escaped(launch.origin) + "')";
    CheckOutputs(node, where);
    try {
      const std::vector<ValueType> types = rules_.Infer(graph, node);
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (i >= types.size()) Refuse("its operator has only " + std::to_string(types.size()) + " outputs", where);
        if (node.outputs[i] == kNoValue || types[i] == graph.type(node.outputs[i])) continue;
        Refuse("output " + std::to_string(i) + " is " + graph.type(node.outputs[i]).ToString() + ", but its operator produces " +
                   types[i].ToString(),
               where);
      }
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kPlan) throw;
      Refuse("its operator does not accept these operands: " + error.message(), where);
    }
  }

  // Type rules expect nodes of a model, whose outputs all exist. Absent trailing outputs are removed, so that a rule can count the outputs
  // that an operator must have. Only ONNX's recurrent operators may lack their first output.
  static void CheckOutputs(Node& node, const std::string& where) {
    while (!node.outputs.empty() && node.outputs.back() == kNoValue) node.outputs.pop_back();
    if (node.outputs.empty()) Refuse("it has no output", where);
    const bool may_lack = node.domain == kGradloomDomain || node.op == "LSTM" || node.op == "GRU" || node.op == "RNN";
    if (node.outputs[0] == kNoValue && !may_lack) Refuse("its first output is missing", where);
  }

  [[noreturn]] static void Refuse(const std::string& message, const std::string& where) {
    throw Error(ErrorCode::kPlan, "unsound plan (types): " + message, where,
                "compile the model again; if a newly compiled plan is refused, this is a bug of Gradloom");
  }

  OnnxTypeRules rules_;
  std::multimap<int64_t, const Constant*> constants_;  // by offset
  // Constants without elements, any number of which can have one offset; those of a type and shape have the same value.
  std::map<std::pair<DType, std::vector<int64_t>>, const Tensor*> empty_;
};

}  // namespace

void VerifyLaunches(const Plan& plan) {
  const LaunchVerifier verifier(plan);
  for (size_t i = 0; i < plan.programs.size(); ++i)
    verifier.Check(plan.programs[i], plan.programs[i].place, "program " + std::to_string(i));
}

}  // namespace gradloom

#include "compiler/passes/loss/loss_graph.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/passes/seed_random.h"
#include "compiler/passes/update/step_params.h"
#include "runtime/base/joined.h"
#include "runtime/base/nearest.h"
#include "runtime/base/suggestion.h"

namespace gradloom {
namespace {

constexpr char kPrefix[] = "loss/";

class LossGraphBuilder {
 public:
  LossGraphBuilder(GraphBuilder& builder, const LossGraph& loss, const std::map<std::string, std::string>& bindings, LossOperands& operands)
      : b_(builder), loss_(loss), operands_(operands), bindings_(bindings), where_("loss '" + Escaped(loss.name(), 1000) + "'") {}

  ValueId Build(int64_t batch) {
    CheckBindings();
    std::map<std::string, LossGraph::Input> known;
    for (const std::string& input : loss_.inputs()) {
      const ValueId id = Known(OperandOf(input));
      if (id == kNoValue) continue;
      known.emplace(input, LossGraph::Input{b_.shape(id), operands_.Extents(id)});
    }
    CheckOutputsRead();
    LossGraph::Instance made;
    try {
      made = loss_.For(known, batch);
    } catch (const Error& error) {
      throw Error(error.code(), error.message(), where_ + (error.where().empty() ? "" : ", " + error.where()), error.help());
    }
    Graph& graph = *made.graph;
    CheckOutput(graph);
    for (Node& node : graph.nodes) node.origin = kPrefix + node.origin;
    GraphBuilder seeded(graph, b_.rules());
    SeedRandom(seeded);
    return b_.Reshape(Inline(graph, made.counts), Shape{});
  }

 private:
  std::string OperandOf(const std::string& input) const {
    const auto bound = bindings_.find(input);
    return bound == bindings_.end() ? input : bound->second;
  }

  // Returns the value of the operand, if the model or an earlier loss defines it; otherwise kNoValue.
  ValueId Known(const std::string& operand) const {
    ValueId id = operands_.FindOutput(operand);
    if (id == kNoValue) id = operands_.FindInput(operand);
    return id != kNoValue ? id : operands_.FindTarget(operand);
  }

  void CheckBindings() const {
    const std::vector<std::string> inputs = loss_.inputs();
    for (const auto& [input, operand] : bindings_) {
      if (std::find(inputs.begin(), inputs.end(), input) != inputs.end()) continue;
      throw Error(ErrorCode::kConfig, "the loss has no input '" + Escaped(input) + "'", where_,
                  Suggestion(input, inputs, "its inputs are: " + JoinedNames(inputs)));
    }
  }

  // A name that is close to that of an output is taken for a typing error, not for a target.
  void CheckOutputsRead() const {
    std::vector<std::string> unread = operands_.OutputNames();
    const std::string all = JoinedNames(unread), inputs = JoinedNames(loss_.inputs());
    const size_t outputs = unread.size();
    for (const std::string& input : loss_.inputs()) std::erase(unread, OperandOf(input));
    for (const std::string& input : loss_.inputs()) {
      // Short names are similar by chance.
      if (input.size() < 3 || bindings_.contains(input) || Known(input) != kNoValue) continue;
      const std::string near = Nearest(input, unread);
      if (near.empty()) continue;
      throw Error(ErrorCode::kConfig, "the model has no output '" + Escaped(input) + "'", where_,
                  DidYouMean(near, "write " + Escaped(input) + "=" + Escaped(near) + " in parentheses after the file, or " +
                                       Escaped(input) + "=" + Escaped(input) + " if it is a target"));
    }
    if (unread.size() < outputs) return;
    throw Error(ErrorCode::kConfig, "the loss reads no output of the model: its inputs are " + inputs, where_,
                "the model's outputs are: " + all +
                    "   name the inputs like them, or write INPUT=OUTPUT in parentheses after the file: --loss 'loss.onnx(" +
                    inputs.substr(0, inputs.find(',')) + "=" + all.substr(0, all.find(',')) + ")'");
  }

  void CheckOutput(const Graph& graph) const {
    if (graph.outputs.size() != 1) {
      const std::string all = JoinedTexts(graph.outputs, [&](ValueId id) { return Escaped(graph.value(id).name); });
      throw Error(ErrorCode::kGraph, "a loss must have one output, but this graph has " + std::to_string(graph.outputs.size()) + ": " + all,
                  where_, "keep only the scalar loss as its output");
    }
    const Value& output = graph.value(graph.outputs[0]);
    if (output.shape.elements() != 1) {
      throw Error(ErrorCode::kShape, "a loss must be a scalar, but the output '" + Escaped(output.name) + "' is " + output.shape.ToString(),
                  where_, "end the graph with ReduceMean or ReduceSum over all axes");
    }
    if (!IsFloating(output.dtype)) {
      throw Error(ErrorCode::kType,
                  "the output '" + Escaped(output.name) + "' is " + graph.type(graph.outputs[0]).ToString() + ", not floating-point",
                  where_);
    }
  }

  // Returns the value that is bound to an input of the loss graph.
  ValueId Operand(const Graph& graph, const Value& input) {
    const std::vector<std::string> own = loss_.inputs();
    if (std::find(own.begin(), own.end(), input.name) == own.end()) return StepParam(b_.graph(), input.name);
    const std::string operand = OperandOf(input.name);
    const ValueId known = operands_.FindOutput(operand) != kNoValue ? operands_.FindOutput(operand) : operands_.FindInput(operand);
    if (known == kNoValue)
      return operands_.Target(operand, graph.type(input.id), where_, "the input '" + Escaped(input.name) + "' of the loss");
    if (b_.graph().type(known) == graph.type(input.id)) return known;
    throw Error(b_.dtype(known) != input.dtype ? ErrorCode::kType : ErrorCode::kShape,
                "the input '" + Escaped(input.name) + "' is " + graph.type(input.id).ToString() + ", but the model's '" + Escaped(operand) +
                    "' is " + b_.graph().type(known).ToString(),
                where_, "declare the input with the type of the model's value, or convert it inside the loss");
  }

  ValueId Inline(const Graph& from, const std::map<ValueId, ValueId>& counts) {
    Graph& to = b_.graph();
    std::map<ValueId, ValueId> made = counts;
    for (ValueId id : from.inputs) {
      if (!made.contains(id)) made.emplace(id, Operand(from, from.value(id)));
    }
    for (const Value& value : from.values()) {
      const Tensor* data = from.data(value.id);
      if (data == nullptr) continue;
      const ValueId id = to.AddData(kPrefix + value.name, *data, Role::kConst);
      // Not a tensor of the model's file.
      to.value(id).derived = true;
      made.emplace(value.id, id);
    }
    for (const Node& node : from.nodes) {
      Node copy = node;
      for (ValueId& id : copy.inputs) id = id == kNoValue ? kNoValue : made.at(id);
      for (ValueId& id : copy.outputs) {
        if (id == kNoValue) continue;
        const Value& output = from.value(id);
        id = made.emplace(id, to.AddValue(kPrefix + output.name, output.dtype, output.shape, Role::kActivation)).first->second;
      }
      to.AddNode(std::move(copy));
    }
    return made.at(from.outputs[0]);
  }

  GraphBuilder& b_;
  const LossGraph& loss_;
  LossOperands& operands_;
  const std::map<std::string, std::string>& bindings_;
  const std::string where_;
};

}  // namespace

ValueId AddLossGraph(GraphBuilder& builder, const LossGraph& loss, const std::map<std::string, std::string>& bindings, int64_t batch,
                     LossOperands& operands) {
  return LossGraphBuilder(builder, loss, bindings, operands).Build(batch);
}

}  // namespace gradloom

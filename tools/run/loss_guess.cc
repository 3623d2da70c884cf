#include "tools/run/loss_guess.h"

#include <string_view>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// "Softmax" if the output is one along the class axis, "Sigmoid", or "".
std::string_view LastFunction(const Graph& graph, const Value& output) {
  for (const Node& node : graph.nodes) {
    if (!node.domain.empty() || node.outputs.empty() || node.outputs[0] == kNoValue || graph.value(node.outputs[0]).name != output.name)
      continue;
    if (node.op == "Sigmoid") return "Sigmoid";
    if (node.op != "Softmax" || output.shape.rank() < 2) return "";
    const int64_t axis = node.attributes.Int("axis", -1);
    return axis == 1 || axis == 1 - output.shape.rank() ? "Softmax" : "";
  }
  return "";
}

}  // namespace

void WarnOfSecondFunction(const std::vector<LossTerm>& losses, const Graph& graph, std::vector<std::string>& notes) {
  for (const LossTerm& term : losses) {
    if (term.type != "cross_entropy" && term.type != "bce_with_logits") continue;
    const bool classes = term.type == "cross_entropy";
    for (const ValueId id : graph.outputs) {
      const Value& output = graph.value(id);
      const bool named = term.output.empty() ? id == graph.outputs.front() : output.name == term.output;
      if (!named || LastFunction(graph, output) != (classes ? "Softmax" : "Sigmoid")) continue;
      notes.push_back("warning " + term.type + " expects scores, but the output '" + Escaped(output.name) + "' is a " +
                      (classes ? "softmax" : "sigmoid") + ": --loss '" + (classes ? "cross_entropy_of_probabilities" : "bce") +
                      "' expects probabilities");
    }
  }
}

LossTerm GuessLoss(const Graph& graph, std::vector<std::string>& notes) {
  if (graph.outputs.empty()) throw Error(ErrorCode::kGraph, "the model has no output to train");
  const Value& output = graph.value(graph.outputs.front());
  const std::string_view last = LastFunction(graph, output);
  LossTerm term;
  term.output = output.name;
  term.target = "target";
  const bool classes = output.shape.rank() == 2 && output.shape[1] > 1;
  term.type = last == "Sigmoid" ? "bce" : !classes ? "mse" : last == "Softmax" ? "cross_entropy_of_probabilities" : "cross_entropy";
  notes.push_back("loss    " + term.type + "(" + Escaped(output.name) + ", target)   [guessed from the output " + output.shape.ToString() +
                  (last.empty()        ? ""
                   : last == "Sigmoid" ? ", a sigmoid"
                                       : ", a softmax") +
                  ": set --loss to change]");
  return term;
}

}  // namespace gradloom

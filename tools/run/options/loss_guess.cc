#include "tools/run/options/loss_guess.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "compiler/ops/op.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Looks through Identity, which the import adds where an output has a name of its own. One pass serves a chain of any length, because a
// producer stands before its consumers.
const Node* ProducerOf(const Graph& graph, ValueId id) {
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (node->outputs.empty() || node->outputs[0] != id) continue;
    if (!node->domain.empty()) return nullptr;
    if (node->op != "Identity") return &*node;
    id = node->inputs[0];
  }
  return nullptr;
}

// Whether the node divides its operand by the sum of its magnitudes: scikit-learn's Normalizer, after a softmax or sigmoids.
bool DividesBySum(const Graph& graph, const Node& node) {
  const Node* divisor = node.op == "Div" ? ProducerOf(graph, node.inputs[1]) : nullptr;
  if (divisor == nullptr || divisor->op != "Where") return false;
  const Node* sum = ProducerOf(graph, divisor->inputs[2]);
  return sum != nullptr && sum->op == "ReduceL1" && sum->inputs[0] == node.inputs[0];
}

// Whether the node makes the probabilities of two classes of one score, as scikit-learn does: [1 - p, p] of a sigmoid p (networks), or the
// sigmoids of [-s, s] (linear models).
bool PairsTwoClasses(const Graph& graph, const Node& node) {
  const Node* pair = node.op == "Sigmoid" ? ProducerOf(graph, node.inputs[0]) : &node;
  if (pair == nullptr || pair->op != "Concat" || pair->inputs.size() != 2) return false;
  if (const int64_t axis = pair->attributes.Int("axis", 0); axis != 1 && axis != -1) return false;
  const Node* first = ProducerOf(graph, pair->inputs[0]);
  if (first == nullptr) return false;
  if (pair != &node) return first->op == "Neg" && first->inputs[0] == pair->inputs[1];
  const Node* second = ProducerOf(graph, pair->inputs[1]);
  return first->op == "Sub" && first->inputs[1] == pair->inputs[1] && second != nullptr && second->op == "Sigmoid";
}

// "Softmax" if the output is one along the class axis or otherwise probabilities of classes, "Sigmoid", or "".
std::string_view LastFunction(const Graph& graph, ValueId output) {
  const Node* node = ProducerOf(graph, output);
  if (node == nullptr) return "";
  if (DividesBySum(graph, *node) || PairsTwoClasses(graph, *node)) return "Softmax";
  if (node->op == "Sigmoid") return "Sigmoid";
  const int rank = graph.value(output).shape.rank();
  if (node->op != "Softmax" || rank < 2) return "";
  const int64_t axis = node->attributes.Int("axis", -1);
  return axis == 1 || axis == 1 - rank ? "Softmax" : "";
}

// By value: whether tensors of the model with several floating-point numbers lead to it, which may be weights.
std::vector<bool> ReachedByTensors(const Graph& graph) {
  std::vector<bool> reached(static_cast<size_t>(graph.num_values()));
  const auto is_reached = [&](ValueId id) {
    if (id == kNoValue) return false;
    const Value& value = graph.value(id);
    const bool tensor = value.role == Role::kConst || value.role == Role::kParam;
    return reached[static_cast<size_t>(id)] || (tensor && IsFloating(value.dtype) && value.shape.elements() > 1);
  };
  for (const Node& node : graph.nodes) {
    if (std::none_of(node.inputs.begin(), node.inputs.end(), is_reached)) continue;
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) reached[static_cast<size_t>(id)] = true;
    }
  }
  return reached;
}

// The first floating-point output that the model's tensors lead to: classifiers may also have the predicted class as an output, policies
// numbers about the model, and others pass an input on as one. If there is none, the first of other outputs that they lead to, for which
// the loss has advice.
ValueId FirstTrainable(const Graph& graph) {
  const std::vector<bool> reached = ReachedByTensors(graph);
  const auto is_floating = [&](ValueId id) { return IsFloating(graph.value(id).dtype); };
  const auto is_reached = [&](ValueId id) { return reached[static_cast<size_t>(id)]; };
  const auto is_both = [&](ValueId id) { return is_floating(id) && is_reached(id); };
  const auto &begin = graph.outputs.begin(), &end = graph.outputs.end();
  auto found = std::find_if(begin, end, is_both);
  if (found == end) found = std::find_if(begin, end, is_reached);
  if (found == end) found = std::find_if(begin, end, is_floating);
  return found == end ? graph.outputs.front() : *found;
}

// Whether the output is a score without bounds: a product with weights, perhaps plus a bias, in another shape.
bool IsScore(const Graph& graph, ValueId output) {
  const auto is_product = [](const Node* node) {
    return node != nullptr && (node->op == "Gemm" || node->op == "MatMul" || node->op == "Conv");
  };
  const Node* node = ProducerOf(graph, output);
  while (node != nullptr && (KeepsElements(*node) || node->op == "Transpose")) node = ProducerOf(graph, node->inputs[0]);
  if (node == nullptr || node->op != "Add") return is_product(node);
  return is_product(ProducerOf(graph, node->inputs[0])) || is_product(ProducerOf(graph, node->inputs[1]));
}

// What a loss expects of its output, and the loss for an output that is something else. Empty: nothing is known to be wrong.
struct Unfit {
  std::string_view expects, instead, takes;
};

// `last`: LastFunction, or "scores".
Unfit UnfitFor(std::string_view loss, std::string_view last) {
  struct Row {
    std::string_view loss, last;
    Unfit unfit;
  };
  constexpr Row kRows[] = {
      {"cross_entropy", "Softmax", {"scores", "cross_entropy_of_probabilities", "probabilities"}},
      {"bce_with_logits", "Sigmoid", {"scores", "bce", "probabilities"}},
      {"bce", "scores", {"probabilities", "bce_with_logits", "scores"}},
      {"cross_entropy_of_probabilities", "scores", {"probabilities", "cross_entropy", "scores"}},
      {"nll", "scores", {"log-probabilities", "cross_entropy", "scores"}},
      {"nll", "Softmax", {"log-probabilities", "cross_entropy_of_probabilities", "probabilities"}},
      {"kl_div", "scores", {"log-probabilities", "cross_entropy(..., probabilities=true)", "scores"}},
      {"kl_div", "Softmax", {"log-probabilities", "cross_entropy_of_probabilities(..., probabilities=true)", "probabilities"}},
  };
  for (const Row& row : kRows) {
    if (row.loss == loss && row.last == last) return row.unfit;
  }
  return {};
}

}  // namespace

void WarnOfUnfitOutputs(const std::vector<LossTerm>& losses, const Graph& graph, std::vector<std::string>& notes) {
  for (const LossTerm& term : losses) {
    for (const ValueId id : graph.outputs) {
      const Value& output = graph.value(id);
      const bool named = term.output.empty() ? id == graph.outputs.front() : output.name == term.output;
      if (!named) continue;
      const std::string_view last = LastFunction(graph, id);
      const Unfit unfit = UnfitFor(term.type, last.empty() && IsScore(graph, id) ? "scores" : last);
      if (unfit.expects.empty()) continue;
      const std::string is = last == "Softmax" ? "a softmax" : last == "Sigmoid" ? "a sigmoid" : "a plain score";
      notes.push_back("warning " + term.type + " expects " + std::string(unfit.expects) + ", but the output '" + Escaped(output.name) +
                      "' is " + is + ": --loss '" + std::string(unfit.instead) + "' expects " + std::string(unfit.takes));
    }
  }
}

LossTerm GuessLoss(const Graph& graph, std::vector<std::string>& notes) {
  if (graph.outputs.empty()) throw Error(ErrorCode::kGraph, "the model has no output to train");
  const ValueId first = FirstTrainable(graph);
  const Value& output = graph.value(first);
  const std::string_view last = LastFunction(graph, first);
  LossTerm term;
  term.output = output.name;
  // A number for the whole batch has no samples to compare: the model computes its loss itself.
  if (output.shape.rank() == 0) {
    term.type = "output";
    notes.push_back("loss    output(" + Escaped(output.name) +
                    ")   [guessed, because the output is a single number: set --loss to change]");
    return term;
  }
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

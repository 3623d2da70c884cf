#include "compiler/passes/standard_form.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/rewrite_nodes.h"
#include "compiler/passes/update/standard_update.h"
#include "runtime/base/ignored_class.h"

namespace gradloom {
namespace {

class StandardForm {
 public:
  StandardForm(GraphBuilder& builder, NodeId first) : b_(builder), graph_(builder.graph()), first_(first) {}

  void Run() {
    FindMeans();
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    std::map<std::string, std::string> left;  // operators without an ONNX form, with the first node of each
    for (Node& node : nodes) {
      ReplaceIds(moved_, node.inputs);
      if (node.id < first_ || node.domain != kGradloomDomain) {
        if (!moved_.contains(node.outputs[0])) graph_.nodes.push_back(std::move(node));
        continue;
      }
      b_.set_origin(node.origin);
      b_.set_phase(node.phase);
      const std::vector<ValueId> made = Replaced(node);
      if (made.empty()) left.emplace(node.op, Describe(node));
      for (size_t i = 0; i < made.size(); ++i) Move(node.outputs[i], made[i]);
    }
    b_.set_origin("");
    ReplaceIds(moved_, graph_.outputs);
    if (!left.empty()) Refuse(left);
  }

 private:
  [[noreturn]] static void Refuse(const std::map<std::string, std::string>& left) {
    std::string names, where;
    for (const auto& [op, node] : left) {
      names += (names.empty() ? "" : ", ") + op;
      where += (where.empty() ? "" : "; ") + node;
    }
    throw Error(ErrorCode::kUnsupported, "cannot be written with ONNX operators: " + names, where);
  }

  void Move(ValueId from, ValueId to) {
    if (from == kNoValue) return;
    moved_[from] = to;
    graph_.value(to).next_of = std::exchange(graph_.value(from).next_of, kNoValue);
  }

  // Finds sums over rows that are only read by a division by their weights: these are means, which ONNX has.
  void FindMeans() {
    const Uses uses(graph_);
    for (const Node& node : graph_.nodes) {
      if (node.op != "Div" || !node.domain.empty() || node.id < first_) continue;
      const Node* const producer = uses.ProducingNode(graph_, node.inputs[0]);
      if (producer == nullptr) continue;
      const Node& loss = *producer;
      if (loss.domain != kGradloomDomain || (loss.op != "CrossEntropy" && loss.op != "Nll") || loss.outputs[0] != node.inputs[0]) continue;
      if (loss.outputs[1] != node.inputs[1] || loss.attributes.Float("label_smoothing", 0) != 0) continue;
      const auto once = [&](ValueId id) { return id == kNoValue || uses.consumers[static_cast<size_t>(id)].size() == 1; };
      const bool probabilities =
          loss.outputs.size() > 2 && loss.outputs[2] != kNoValue && !uses.consumers[static_cast<size_t>(loss.outputs[2])].empty();
      if (once(loss.outputs[0]) && once(loss.outputs[1]) && !probabilities) means_.emplace(loss.id, node.outputs[0]);
    }
  }

  std::vector<ValueId> Replaced(const Node& node) {
    if (IsUpdate(node)) return StandardUpdate(b_, node);
    if (node.op != "CrossEntropy" && node.op != "Nll") return {};
    const auto mean = means_.find(node.id);
    if (mean != means_.end()) {
      Move(mean->second, OnnxLoss(node, "mean"));
      return std::vector<ValueId>(1, moved_.at(mean->second));
    }
    const ValueId valid = Valid(node);
    ValueId sum = OnnxLoss(node, "sum");
    const double smoothing = node.attributes.Float("label_smoothing", 0);
    if (smoothing != 0) sum = b_.Add(b_.Scale(sum, 1 - smoothing), Smoothing(node, valid, smoothing));
    std::vector<ValueId> made{sum, b_.ReduceSum(Weights(node, valid), {}, /*keepdims=*/false)};
    if (node.op == "CrossEntropy") made.push_back(LogSoftmax(node));
    made.resize(node.outputs.size(), kNoValue);
    return made;
  }

  ValueId ClassWeight(const Node& node) const { return node.inputs.size() > 2 ? node.inputs[2] : kNoValue; }

  ValueId OnnxLoss(const Node& node, const std::string& reduction) {
    std::vector<ValueId> inputs{node.inputs[0], node.inputs[1]};
    if (ClassWeight(node) != kNoValue) inputs.push_back(ClassWeight(node));
    return b_.Op(node.op == "Nll" ? "NegativeLogLikelihoodLoss" : "SoftmaxCrossEntropyLoss", std::move(inputs),
                 {{"reduction", reduction}, {"ignore_index", IgnoredClassOf(node.attributes)}});
  }

  ValueId LogSoftmax(const Node& node) { return b_.Op("LogSoftmax", {node.inputs[0]}, {{"axis", int64_t{1}}}); }

  ValueId Ignored(const Node& node) {
    return b_.Op("Equal", {node.inputs[1], b_.Scalar(static_cast<double>(IgnoredClassOf(node.attributes)), DType::kInt64)});
  }

  // Returns 1 for each counted row and 0 for ignored ones.
  ValueId Valid(const Node& node) { return b_.Cast(b_.Op("Not", {Ignored(node)}), b_.dtype(node.inputs[0])); }

  // Returns the weight of each row.
  ValueId Weights(const Node& node, ValueId valid) {
    if (ClassWeight(node) == kNoValue) return valid;
    const ValueId label = b_.Where(Ignored(node), b_.Scalar(0, DType::kInt64), node.inputs[1]);
    return b_.Mul(valid, b_.Op("Gather", {ClassWeight(node), label}));
  }

  // -smoothing / C times the sum over counted rows and classes c of w[c] log p[c].
  ValueId Smoothing(const Node& node, ValueId valid, double smoothing) {
    const double classes = static_cast<double>(b_.shape(node.inputs[0])[1]);
    ValueId each = b_.Mul(LogSoftmax(node), b_.Reshape(valid, Shape{b_.shape(valid)[0], 1}));
    if (ClassWeight(node) != kNoValue) each = b_.Mul(each, ClassWeight(node));
    return b_.Scale(b_.ReduceSum(each, {}, /*keepdims=*/false), -smoothing / classes);
  }

  GraphBuilder& b_;
  Graph& graph_;
  const NodeId first_;
  std::map<ValueId, ValueId> moved_;
  std::map<NodeId, ValueId> means_;  // the result of the division, by loss node
};

}  // namespace

void ApplyStandardForm(GraphBuilder& builder, NodeId first) { StandardForm(builder, first).Run(); }

}  // namespace gradloom

#include "compiler/onnx/export/inference_form.h"

#include <set>
#include <string>

#include "compiler/onnx/standard_domain.h"

namespace gradloom {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;
using Nodes = google::protobuf::RepeatedPtrField<NodeProto>;

// Adds the names that `nodes` and their nested graphs read.
void AddUses(const Nodes& nodes, std::multiset<std::string>& uses) {
  for (const NodeProto& node : nodes) {
    for (const std::string& input : node.input()) uses.insert(input);
    for (const auto& attribute : node.attribute()) {
      if (!attribute.has_g()) continue;
      AddUses(attribute.g().node(), uses);
      for (const auto& output : attribute.g().output()) uses.insert(output.name());
    }
  }
}

void EraseAttribute(NodeProto& node, const char* name) {
  for (int i = node.attribute_size() - 1; i >= 0; --i) {
    if (node.attribute(i).name() == name) node.mutable_attribute()->DeleteSubrange(i, 1);
  }
}

// One graph or function body.
class Body {
 public:
  explicit Body(Nodes& nodes) : nodes_(nodes) { AddUses(nodes, uses_); }

  // Adds a name that is read by something other than a node.
  void AddOutput(const std::string& name) { uses_.insert(name); }
  void AddGraphOutput(const std::string& name) { graph_outputs_.insert(name); }

  void Rewrite() {
    Nodes rewritten;
    for (NodeProto& node : nodes_) {
      const bool normalizes = IsStandard(node, "BatchNormalization");
      if (IsStandard(node, "Dropout")) DisableDropout(node);
      NodeProto* copy = rewritten.Add();
      copy->Swap(&node);
      if (normalizes) UseStatistics(*copy, rewritten);
    }
    nodes_.Swap(&rewritten);
    RemoveOrphans();
  }

  // Outputs of the graph that were removed.
  const std::set<std::string>& gone() const { return gone_; }
  // Values that are no longer read and may be those of an initializer.
  const std::set<std::string>& orphans() const { return orphans_; }

 private:
  void DisableDropout(NodeProto& node) {
    if (node.input_size() < 3 || node.input(2).empty()) return;
    Release(node.input(2));
    node.mutable_input()->DeleteSubrange(2, node.input_size() - 2);
    while (node.input_size() > 1 && node.input(node.input_size() - 1).empty()) node.mutable_input()->RemoveLast();
  }

  void UseStatistics(NodeProto& node, Nodes& rewritten) {
    EraseAttribute(node, "training_mode");
    // Without training, the updated statistics equal the running ones.
    NodeProto original = node;
    while (node.output_size() > 1) node.mutable_output()->RemoveLast();
    for (int i = 1; i < original.output_size(); ++i) {
      const std::string& output = original.output(i);
      if (output.empty()) continue;
      if ((uses_.contains(output) || graph_outputs_.contains(output)) && i <= 2 && original.input_size() > 2 + i) {
        NodeProto* same = rewritten.Add();
        same->set_op_type("Identity");
        same->add_input(original.input(2 + i));
        same->add_output(output);
      } else {
        gone_.insert(output);
      }
    }
  }

  void Release(const std::string& name) {
    uses_.erase(uses_.find(name));
    if (!uses_.contains(name) && !graph_outputs_.contains(name)) orphans_.insert(name);
  }

  // Removes constants that were only read as the training flag of these nodes.
  void RemoveOrphans() {
    if (orphans_.empty()) return;
    Nodes kept;
    for (NodeProto& node : nodes_) {
      if (IsStandard(node, "Constant") && node.output_size() == 1 && orphans_.contains(node.output(0))) continue;
      kept.Add()->Swap(&node);
    }
    nodes_.Swap(&kept);
  }

  Nodes& nodes_;
  std::multiset<std::string> uses_;
  std::set<std::string> graph_outputs_;
  std::set<std::string> gone_;
  std::set<std::string> orphans_;
};

template <typename List, typename Condition>
void EraseIf(List& list, Condition condition) {
  for (int i = list.size() - 1; i >= 0; --i) {
    if (condition(list[i])) list.DeleteSubrange(i, 1);
  }
}

void RewriteGraph(GraphProto& graph);

void RewriteNested(Nodes& nodes) {
  for (NodeProto& node : nodes) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) RewriteGraph(*attribute.mutable_g());
    }
  }
}

void RewriteGraph(GraphProto& graph) {
  RewriteNested(*graph.mutable_node());
  Body body(*graph.mutable_node());
  for (const auto& output : graph.output()) body.AddGraphOutput(output.name());
  body.Rewrite();
  const auto gone = [&](const auto& info) { return body.gone().contains(info.name()); };
  EraseIf(*graph.mutable_output(), gone);
  EraseIf(*graph.mutable_value_info(), [&](const auto& info) { return gone(info) || body.orphans().contains(info.name()); });
  // An input with a default value would have to be fed without it.
  std::set<std::string> erased;
  EraseIf(*graph.mutable_initializer(),
          [&](const auto& tensor) { return body.orphans().contains(tensor.name()) && erased.insert(tensor.name()).second; });
  EraseIf(*graph.mutable_input(), [&](const auto& info) { return erased.contains(info.name()); });
}

}  // namespace

void ToInferenceForm(onnx::ModelProto& model) {
  RewriteGraph(*model.mutable_graph());
  for (auto& function : *model.mutable_functions()) {
    RewriteNested(*function.mutable_node());
    Body body(*function.mutable_node());
    // The outputs of a function must stay, since its calls rely on them.
    for (const std::string& output : function.output()) body.AddOutput(output);
    body.Rewrite();
  }
}

}  // namespace gradloom

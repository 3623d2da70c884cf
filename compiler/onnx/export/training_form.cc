#include "compiler/onnx/export/training_form.h"

#include <algorithm>
#include <set>

#include "compiler/onnx/operator_support.h"
#include "compiler/onnx/standard_domain.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

class Rewriter {
 public:
  Rewriter(const onnx::ModelProto& model, bool restores, const NewName& new_name)
      : model_(model), restores_(restores), new_name_(new_name), functions_(model), opset_(VersionsOf(model)[""]) {
    for (const auto& tensor : model.graph().initializer()) initializers_.emplace(tensor.name(), &tensor);
    for (const auto& node : model.graph().node()) {
      if (!IsStandard(node, "Constant") || node.output_size() != 1) continue;
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_t()) constants_.emplace(node.output(0), &attribute.t());
      }
    }
  }

  TrainingForm Run() {
    for (const onnx::NodeProto& node : model_.graph().node()) {
      RefuseWithin(node);
      if (!Trains(node) && !ReadsRenamed(node)) continue;
      onnx::NodeProto& copy = *result_.nodes.Add();
      copy = node;
      Rename(copy);
      if (Trains(node)) Train(node, copy);
      for (std::string& output : *copy.mutable_output()) {
        if (!output.empty() && !result_.renamed.contains(output)) result_.renamed.emplace(output, new_name_("training/" + output));
        if (!output.empty()) output = result_.renamed.at(output);
      }
      if (IsStandard(node, "BatchNormalization") && Trains(node)) BindStatistics(node, copy);
    }
    for (const auto& [from, to] : latest_) result_.statistics.emplace_back(from, to);
    return std::move(result_);
  }

 private:
  // Whether the node behaves differently in training.
  bool Trains(const onnx::NodeProto& node) const {
    if (IsStandard(node, "BatchNormalization")) {
      const bool written = node.output_size() > 1 ||
                           std::any_of(node.attribute().begin(), node.attribute().end(),
                                       [](const auto& attribute) { return attribute.name() == "training_mode" && attribute.i() == 1; });
      return restores_ || written;
    }
    return IsStandard(node, "Dropout") && (restores_ || (node.input_size() > 2 && IsTrue(node.input(2))));
  }

  bool IsTrue(const std::string& name) const {
    for (const auto* known : {&initializers_, &constants_}) {
      const auto found = known->find(name);
      if (found == known->end()) continue;
      const onnx::TensorProto& tensor = *found->second;
      return tensor.has_raw_data() ? !tensor.raw_data().empty() && tensor.raw_data()[0] != 0
                                   : tensor.int32_data_size() > 0 && tensor.int32_data(0) != 0;
    }
    return false;
  }

  // Visits the names that a nested graph reads; its own names do not occur in enclosing graphs.
  template <typename F>
  static void ForEachRead(onnx::NodeProto& node, const F& f) {
    for (std::string& input : *node.mutable_input()) f(input);
    for (auto& attribute : *node.mutable_attribute()) {
      if (!attribute.has_g()) continue;
      for (auto& inner : *attribute.mutable_g()->mutable_node()) ForEachRead(inner, f);
      for (auto& output : *attribute.mutable_g()->mutable_output()) f(*output.mutable_name());
    }
  }

  bool ReadsRenamed(const onnx::NodeProto& node) const {
    bool reads = false;
    onnx::NodeProto copy = node;
    ForEachRead(copy, [&](const std::string& name) { reads |= result_.renamed.contains(name); });
    return reads;
  }

  void Rename(onnx::NodeProto& node) {
    ForEachRead(node, [&](std::string& name) {
      if (const auto found = result_.renamed.find(name); found != result_.renamed.end()) name = found->second;
    });
  }

  // Refuses nodes in nested graphs and functions that behave differently in training.
  void RefuseWithin(const onnx::NodeProto& node) const {
    std::string found;
    const std::function<void(const onnx::NodeProto&)> look = [&](const onnx::NodeProto& inner) {
      if (&inner != &node && Trains(inner) && found.empty()) found = inner.op_type() + " '" + Escaped(DisplayName(inner)) + "'";
      for (const auto& attribute : inner.attribute()) {
        for (const auto& nested : attribute.g().node()) look(nested);
      }
      if (const onnx::FunctionProto* function = functions_.Find(inner)) {
        for (const auto& nested : function->node()) look(nested);
      }
    };
    look(node);
    if (found.empty()) return;
    throw Error(ErrorCode::kUnsupported, "a training algorithm cannot train " + found + " inside a function or a nested graph",
                "node '" + Escaped(DisplayName(node)) + "'",
                "inline the functions of the model (onnx.inliner), or train the graph as written: --mode graph");
  }

  void RequireOpset(const onnx::NodeProto& node, int opset) const {
    if (opset_ >= opset) return;
    throw Error(ErrorCode::kUnsupported, "operator '" + node.op_type() + "' has no training form in opset " + std::to_string(opset_),
                "node '" + Escaped(DisplayName(node)) + "'",
                "export the model for opset " + std::to_string(opset) + " or newer, or train the graph as written: --mode graph");
  }

  void Train(const onnx::NodeProto& node, onnx::NodeProto& copy) {
    if (IsStandard(node, "Dropout")) {
      RequireOpset(node, 12);
      if (result_.true_name.empty()) result_.true_name = new_name_("training/true");
      while (copy.input_size() < 3) copy.add_input("");
      copy.set_input(2, result_.true_name);
      return;
    }
    RequireOpset(node, 14);
    const auto written = std::find_if(copy.mutable_attribute()->begin(), copy.mutable_attribute()->end(),
                                      [](const auto& attribute) { return attribute.name() == "training_mode"; });
    onnx::AttributeProto* mode = written != copy.mutable_attribute()->end() ? &*written : copy.add_attribute();
    mode->set_name("training_mode");
    mode->set_type(onnx::AttributeProto::INT);
    mode->set_i(1);
    for (int i = 3; i < 5; ++i) {
      if (const auto found = latest_.find(node.input(i)); found != latest_.end()) copy.set_input(i, found->second);
      if (copy.output_size() < i - 1) copy.add_output("");
      if (copy.output(i - 2).empty()) copy.set_output(i - 2, node.input(i) + "/next");
    }
  }

  // Binds the updated running statistics, if the statistics are initializers.
  void BindStatistics(const onnx::NodeProto& node, const onnx::NodeProto& copy) {
    for (int i = 3; i < 5; ++i) {
      if (initializers_.contains(node.input(i))) latest_[node.input(i)] = copy.output(i - 2);
    }
  }

  const onnx::ModelProto& model_;
  const bool restores_;
  const NewName& new_name_;
  const FunctionIndex functions_;
  const int opset_;
  std::map<std::string, const onnx::TensorProto*> initializers_, constants_;
  std::map<std::string, std::string> latest_;  // the value of a running statistic after the nodes so far
  TrainingForm result_;
};

}  // namespace

TrainingForm TrainingFormOf(const onnx::ModelProto& model, bool restores, const NewName& new_name) {
  return Rewriter(model, restores, new_name).Run();
}

}  // namespace gradloom

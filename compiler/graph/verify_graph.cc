#include "compiler/graph/verify_graph.h"

#include <string>

namespace gradloom {
namespace {

[[noreturn]] void Fail(const std::string& message, const std::string& where) {
  throw Error(ErrorCode::kInternal, "the graph is not well-formed: " + message, where,
              "this is a bug of Gradloom: please report it with the model");
}

class Verifier {
 public:
  Verifier(const Graph& graph, const TypeRules* rules) : graph_(graph), rules_(rules), defined_(static_cast<size_t>(graph.num_values())) {}

  void Run() {
    for (ValueId id : graph_.inputs) Make(id, [] { return "graph inputs"; });
    for (const Value& value : graph_.values()) CheckData(value);
    for (const Node& node : graph_.nodes) CheckNode(node);
    for (ValueId id : graph_.outputs) {
      CheckRange(id, [] { return "graph outputs"; });
      if (!defined_[static_cast<size_t>(id)]) Fail("output '" + Escaped(graph_.value(id).name) + "' is never produced", "graph outputs");
    }
  }

 private:
  // `where` returns the place, and is only called in case of an error.
  template <typename Where>
  void CheckRange(ValueId id, const Where& where) {
    if (id < 0 || id >= graph_.num_values()) Fail("value id " + std::to_string(id) + " is out of range", where());
  }

  template <typename Where>
  void Make(ValueId id, const Where& where) {
    CheckRange(id, where);
    if (defined_[static_cast<size_t>(id)]) Fail("value '" + Escaped(graph_.value(id).name) + "' is produced twice", where());
    defined_[static_cast<size_t>(id)] = true;
  }

  void CheckData(const Value& value) {
    const auto where = [&] { return "value '" + Escaped(value.name) + "'"; };
    if (value.next_of != kNoValue) {
      CheckRange(value.next_of, where);
      if (graph_.type(value.next_of) != graph_.type(value.id)) Fail("its type differs from that of the state that it updates", where());
    }
    if (value.rounded_of != kNoValue) {
      CheckRange(value.rounded_of, where);
      const bool rounds = value.role == Role::kState && graph_.value(value.rounded_of).role == Role::kParam &&
                          graph_.value(value.rounded_of).shape == value.shape;
      if (!rounds || graph_.data(value.id) != nullptr) Fail("it is not the copy of a parameter", where());
    }
    for (ValueId parameter : {value.optimizes, value.accumulates, value.averages}) {
      if (parameter == kNoValue) continue;
      CheckRange(parameter, where);
      if (graph_.value(parameter).shape != value.shape) Fail("it is not the state of a parameter", where());
    }
    const Tensor* data = graph_.data(value.id);
    if (data == nullptr) {
      if (value.role == Role::kConst) Fail("the constant has no data", where());
      // A state without data is zero before the first step, or the copy of a parameter.
      if (value.role == Role::kState && value.next_of == kNoValue) Make(value.id, where);
      return;
    }
    if (data->dtype() != value.dtype || data->shape() != value.shape) Fail("its data has a different type", where());
    Make(value.id, where);
  }

  void CheckNode(const Node& node) {
    const auto where = [&] { return Describe(node); };
    ForEachUse(node, [&](ValueId id) {
      CheckRange(id, where);
      if (!defined_[static_cast<size_t>(id)]) Fail("'" + Escaped(graph_.value(id).name) + "' is read before it is produced", where());
    });
    for (const Region& region : node.regions) {
      if (region.body == nullptr) Fail("a region has no body", where());
      VerifyGraph(*region.body, rules_);
    }
    for (ValueId id : node.outputs) {
      if (id != kNoValue) Make(id, where);
    }
    if (rules_ == nullptr) return;
    const std::vector<ValueType> types = rules_->Infer(graph_, node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue || types[i] == graph_.type(node.outputs[i])) continue;
      Fail("output " + std::to_string(i) + " is " + graph_.type(node.outputs[i]).ToString() + ", but its operator produces " +
               types[i].ToString(),
           where());
    }
  }

  const Graph& graph_;
  const TypeRules* rules_;
  std::vector<bool> defined_;
};

}  // namespace

void VerifyGraph(const Graph& graph, const TypeRules* rules) { Verifier(graph, rules).Run(); }

}  // namespace gradloom

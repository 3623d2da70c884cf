#include "compiler/graph/text.h"

#include <algorithm>
#include <charconv>

namespace gradloom {
namespace {

constexpr int64_t kMaxElementsShown = 8;

std::string NameOf(const Graph& graph, ValueId id) { return id == kNoValue ? "_" : Escaped(graph.value(id).name); }

std::string Declaration(const Graph& graph, ValueId id) {
  std::string text = NameOf(graph, id) + " " + graph.type(id).ToString();
  if (graph.value(id).next_of != kNoValue) text += " next_of " + NameOf(graph, graph.value(id).next_of);
  return text;
}

std::string ElementsOf(const Tensor& tensor) {
  std::string text;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    char digits[32];
    const double value = ElementAsDouble(tensor.view(), i);
    // float32 values are printed with the digits that identify them, not with those of their float64 value.
    const auto end = tensor.dtype() == DType::kFloat32 ? std::to_chars(digits, digits + sizeof digits, static_cast<float>(value)).ptr
                                                       : std::to_chars(digits, digits + sizeof digits, value).ptr;
    text += (i > 0 ? "," : "") + std::string(digits, end);
  }
  return tensor.shape().rank() == 0 ? text : "[" + text + "]";
}

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kForward: return "";
    case Phase::kBackward: return "backward";
    case Phase::kUpdate: return "update";
    case Phase::kCopy: return "copy";
  }
  return "";
}

std::string Indented(const std::string& text) {
  std::string out;
  for (size_t start = 0; start < text.size();) {
    const size_t end = text.find('\n', start);
    out += "  " + text.substr(start, end - start) + "\n";
    start = end == std::string::npos ? text.size() : end + 1;
  }
  return out;
}

std::string NodeText(const Graph& graph, const Node& node) {
  std::string text;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (i > 0) text += ", ";
    text += node.outputs[i] == kNoValue ? "_" : Declaration(graph, node.outputs[i]);
  }
  text += " = " + (node.domain.empty() ? node.op : node.domain + "." + node.op) + "(";
  for (size_t i = 0; i < node.inputs.size(); ++i) text += (i > 0 ? ", " : "") + NameOf(graph, node.inputs[i]);
  text += ")";
  if (!node.attributes.empty()) {
    text += " {";
    bool first = true;
    for (const auto& [name, value] : node.attributes) {
      text += (first ? "" : ", ") + Escaped(name) + "=" + Attributes::ToString(value);
      first = false;
    }
    text += "}";
  }
  if (node.phase != Phase::kForward) text += " " + std::string(PhaseName(node.phase));
  if (node.device >= 0) text += " device=" + std::to_string(node.device);
  text += "\n";
  for (const Region& region : node.regions) {
    text += "  region " + Escaped(region.attribute) + "\n" + Indented(ToText(*region.body));
  }
  return text;
}

}  // namespace

std::string ToText(const Graph& graph) {
  std::string text = "graph " + Escaped(graph.name) + "\n";
  const Uses uses(graph);
  for (ValueId id : graph.inputs) text += "input " + Declaration(graph, id) + "\n";
  for (const Value& value : graph.values()) {
    const Tensor* data = graph.data(value.id);
    const bool starts_at_zero = data == nullptr && value.role == Role::kState && value.next_of == kNoValue;
    if (data == nullptr && !starts_at_zero) continue;
    // Constants that folding has left unused are not part of a plan.
    const bool output = std::find(graph.outputs.begin(), graph.outputs.end(), value.id) != graph.outputs.end();
    if (value.role == Role::kConst && !output && uses.consumers[static_cast<size_t>(value.id)].empty()) continue;
    text += value.role == Role::kParam ? "param " : value.role == Role::kState ? "state " : "const ";
    text += Declaration(graph, value.id) + (value.partial ? " partial" : "");
    if (value.rounded_of != kNoValue) text += " rounded_of " + NameOf(graph, value.rounded_of);
    if (value.role == Role::kConst && data->elements() <= kMaxElementsShown) text += " = " + ElementsOf(*data);
    text += "\n";
  }
  for (const Node& node : graph.nodes) text += NodeText(graph, node);
  for (ValueId id : graph.outputs) text += "output " + NameOf(graph, id) + "\n";
  return text;
}

}  // namespace gradloom

#include "compiler/passes/patterns/fuse_gelu.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/constants.h"
#include "compiler/ops/op.h"
#include "compiler/passes/graph_match.h"
#include "kernels/reference/reference.h"

namespace gradloom {
namespace {

// Limit on the operators that are evaluated; the derivative that belongs to torch.onnx's form has about forty.
constexpr int kMaxNodes = 96;
constexpr int kNearPlaces = 49;
constexpr double kFarPlaces[] = {-1e4, -1e2, 1e2, 1e4};
constexpr int kNumbers = kNearPlaces + static_cast<int>(std::size(kFarPlaces));

// Points from -6 to 6: beyond that a GELU is 0 or its operand. Far points tell it from a function of the operand's clipped value.
Tensor Places() {
  std::vector<double> places;
  for (int i = 0; i < kNearPlaces; ++i) places.push_back(0.25 * i - 6);
  places.insert(places.end(), std::begin(kFarPlaces), std::end(kFarPlaces));
  return Tensor::From(places, Shape{kNumbers});
}

// Numbers that are unrelated to the points.
Tensor Gradients() {
  std::vector<double> gradients;
  for (int i = 0; i < kNumbers; ++i) gradients.push_back((i % 2 == 0 ? 1 : -1) * (0.5 + 0.37 * (i * 7 % 5)));
  return Tensor::From(gradients, Shape{kNumbers});
}

double GeluErf(double x) { return x / 2 * (1 + std::erf(x * 0.70710678118654752440)); }
double TanhOf(double x) { return std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)); }
double GeluTanh(double x) { return x / 2 * (1 + TanhOf(x)); }
double GeluSlope(double x) {
  const double t = TanhOf(x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

// Evaluates chains of pointwise operators on given numbers, in float64 whatever the types of the values are.
class Expressions {
 public:
  Expressions(const Graph& graph, const Uses& uses) : graph_(graph), uses_(uses) {}

  void Put(ValueId id, Tensor numbers) {
    numbers_.insert_or_assign(id, std::move(numbers));
    AddReaders(id);
  }

  // Evaluates the readers of known values in list order. Calls found(position, numbers) for each one that can be evaluated, until it
  // returns true.
  void Follow(const std::function<bool(int, const Tensor&)>& found) {
    for (int count = 0; !next_.empty() && count < kMaxNodes; ++count) {
      const int at = *next_.begin();
      next_.erase(next_.begin());
      const Node& node = graph_.nodes[static_cast<size_t>(at)];
      Tensor numbers = Evaluate(node);
      if (!numbers.defined()) continue;
      if (found(at, numbers)) return;
      Put(node.outputs[0], std::move(numbers));
    }
  }

 private:
  void AddReaders(ValueId id) {
    const std::vector<int>& readers = uses_.consumers[static_cast<size_t>(id)];
    next_.insert(readers.begin(), readers.end());
  }

  // Returns an undefined tensor if the node is not pointwise, or reads anything but known values and scalar constants.
  Tensor Evaluate(const Node& node) const {
    const Op* const op = FindOp(node.domain, node.op);
    // Views keep the elements and their order. Casts between floating-point types only round, which is not part of the function.
    if (KeepsElements(node) || (op != nullptr && node.op == "Cast" && IsFloating(graph_.value(node.outputs[0]).dtype))) {
      return numbers_.contains(node.inputs[0]) ? numbers_.at(node.inputs[0]) : Tensor();
    }
    if (op == nullptr || !op->has(kPointwise) || op->has(kRandom) || node.outputs.size() != 1 || !node.domain.empty()) return {};
    if (!IsFloating(graph_.value(node.outputs[0]).dtype)) return {};
    KernelCall call{.op = node.op, .domain = node.domain, .attributes = node.attributes, .inputs = {}, .outputs = {}};
    std::vector<Tensor> inputs;
    for (ValueId id : node.inputs) {
      inputs.push_back(Known(id));
      if (!inputs.back().defined()) return {};
      call.inputs.push_back({DType::kFloat64, inputs.back().shape(), {}});
    }
    call.outputs.push_back({DType::kFloat64, Shape{kNumbers}, {}});
    return RunReference(call, inputs)[0];
  }

  Tensor Known(ValueId id) const {
    if (id == kNoValue) return {};
    if (const auto known = numbers_.find(id); known != numbers_.end()) return known->second;
    const Tensor* const data = ConstantData(graph_, id);
    if (data == nullptr || !IsFloating(data->dtype()) || data->elements() != 1) return {};
    return Converted(data->Reshaped({}).view(), DType::kFloat64);
  }

  const Graph& graph_;
  const Uses& uses_;
  std::map<ValueId, Tensor> numbers_;
  std::set<int> next_;  // positions of nodes to evaluate
};

// Whether the numbers equal wanted(point, gradient) within an absolute and relative error of `tolerance`.
bool Agrees(const Tensor& numbers, double tolerance, const std::function<double(double, double)>& wanted) {
  static const Tensor places = Places(), gradients = Gradients();
  if (numbers.elements() != kNumbers) return false;
  for (int64_t i = 0; i < kNumbers; ++i) {
    const double expected = wanted(ElementAsDouble(places.view(), i), ElementAsDouble(gradients.view(), i));
    if (!(std::fabs(ElementAsDouble(numbers.view(), i) - expected) <= tolerance * std::max(1.0, std::fabs(expected)))) return false;
  }
  return true;
}

}  // namespace

std::map<NodeId, NodeId> FuseGelu(Graph& graph) {
  const Uses uses(graph);
  std::map<int, std::function<void()>> layers;
  for (const Value& value : graph.values()) {
    // Every decomposed form reads the operand at least twice; a Gelu node does not.
    if (!IsFloating(value.dtype) || value.role != Role::kActivation || uses.consumers[static_cast<size_t>(value.id)].size() < 2) continue;
    Expressions expressions(graph, uses);
    expressions.Put(value.id, Places());
    expressions.Follow([&](int at, const Tensor& numbers) {
      // Views and casts between the operators keep the function. A Gelu has one type.
      if (graph.type(graph.nodes[static_cast<size_t>(at)].outputs[0]) != graph.type(value.id)) return false;
      const bool tanh = Agrees(numbers, 1e-5, [](double x, double) { return GeluTanh(x); });
      if (!tanh && !Agrees(numbers, 1e-5, [](double x, double) { return GeluErf(x); })) return false;
      Node gelu{.op = "Gelu", .inputs = {value.id}, .outputs = graph.nodes[static_cast<size_t>(at)].outputs};
      gelu.attributes.set("approximate", std::string(tanh ? "tanh" : "none"));
      gelu.origin = graph.nodes[static_cast<size_t>(at)].origin;
      gelu.phase = graph.nodes[static_cast<size_t>(at)].phase;
      layers.emplace(at, [&graph, gelu] { graph.AddNode(gelu); });
      return true;
    });
  }
  return ReplaceNodes(graph, layers);
}

std::optional<GeluGradient> FindGeluGradient(const Graph& graph, const Uses& uses, ValueId x, ValueId gradient) {
  GeluGradient found;
  std::set<ValueId> made = {gradient};
  Expressions expressions(graph, uses);
  expressions.Put(x, Places());
  expressions.Put(gradient, Gradients());
  expressions.Follow([&](int at, const Tensor& numbers) {
    const Node& node = graph.nodes[static_cast<size_t>(at)];
    if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return made.contains(id); })) return false;
    found.nodes.insert(at);
    // Rounding to 16 bits, also of the constants, does not change the second digit.
    const bool is_it = graph.value(node.outputs[0]).dtype == graph.value(gradient).dtype &&
                       Agrees(numbers, 2e-2, [](double place, double g) { return g * GeluSlope(place); });
    if (is_it) {
      found.value = node.outputs[0];
    } else {
      made.insert(node.outputs[0]);
    }
    return is_it;
  });
  if (found.value == kNoValue) return std::nullopt;
  for (ValueId id : made) {
    for (int reader : uses.consumers[static_cast<size_t>(id)]) {
      if (!found.nodes.contains(reader)) return std::nullopt;
    }
    if (graph.value(id).next_of != kNoValue || std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end())
      return std::nullopt;
  }
  return found;
}

}  // namespace gradloom

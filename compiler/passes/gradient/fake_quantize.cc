#include "compiler/passes/gradient/fake_quantize.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/graph/constants.h"
#include "compiler/passes/region_bodies.h"

namespace gradloom {
namespace {

// The range of the integer type.
std::optional<std::pair<double, double>> RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kInt8: return std::pair(-128.0, 127.0);
    case DType::kUint8: return std::pair(0.0, 255.0);
    case DType::kInt16: return std::pair(-32768.0, 32767.0);
    case DType::kUint16: return std::pair(0.0, 65535.0);
    case DType::kInt4: return std::pair(-8.0, 7.0);
    case DType::kUint4: return std::pair(0.0, 15.0);
    default: return std::nullopt;
  }
}

bool IsOp(const Node& node, const char* op) { return node.domain.empty() && node.op == op; }

ValueId Input(const Node& node, size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNoValue; }

// A QuantizeLinear, and the range of integers that it may produce: that of its type, or a smaller one if a Clip follows.
struct Quantized {
  Node node;
  double least = 0, most = 0;
};

class FakeQuantize {
 public:
  explicit FakeQuantize(GraphBuilder& builder) : b_(builder), graph_(builder.graph()) {}

  void Run() {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    std::map<ValueId, Quantized> quantized;
    for (Node& node : nodes) {
      const auto from = node.inputs.empty() ? quantized.end() : quantized.find(node.inputs[0]);
      if (IsOp(node, "QuantizeLinear")) {
        if (const auto range = RangeOf(graph_.value(node.outputs[0]).dtype))
          quantized.emplace(node.outputs[0], Quantized{node, range->first, range->second});
      } else if (from != quantized.end() && IsOp(node, "Clip")) {
        if (const auto clipped = Clipped(from->second, node)) quantized.emplace(node.outputs[0], *clipped);
      } else if (from != quantized.end() && IsOp(node, "DequantizeLinear") && Fits(from->second.node, node)) {
        Pass(from->second, std::move(node));
        continue;
      }
      graph_.AddNode(std::move(node));
    }
  }

 private:
  // torch.onnx writes torch.fake_quantize_* from 0 to 127 (seven of eight bits) with a Clip.
  std::optional<Quantized> Clipped(Quantized quantized, const Node& clip) const {
    for (size_t i : {1u, 2u}) {
      const ValueId bound = Input(clip, i);
      if (bound == kNoValue) continue;
      const Tensor* data = ConstantData(graph_, bound);
      if (data == nullptr || data->elements() != 1) return std::nullopt;
      const double number = ElementAsDouble(data->view(), 0);
      double& own = i == 1 ? quantized.least : quantized.most;
      own = i == 1 ? std::max(own, number) : std::min(own, number);
    }
    return quantized;
  }

  // Whether both are the same value, or constants with the same elements.
  bool Same(ValueId a, ValueId b) const {
    if (a == b) return true;
    if (a == kNoValue || b == kNoValue || graph_.value(a).role != Role::kConst || graph_.value(b).role != Role::kConst) return false;
    const Tensor *one = graph_.data(a), *two = graph_.data(b);
    return one != nullptr && two != nullptr && SameTensor(*one, *two);
  }

  bool Fits(const Node& quantize, const Node& dequantize) const {
    const ValueType x = graph_.type(quantize.inputs[0]);
    const int64_t axis = quantize.attributes.Int("axis", 1);
    const Shape scale = graph_.value(Input(quantize, 1)).shape;
    const auto along = NormalAxis(axis, x.shape.rank());
    if (scale.elements() != 1 && (!along || scale.elements() != x.shape[*along])) return false;
    return IsFloating(x.dtype) && graph_.type(dequantize.outputs[0]) == x && Same(Input(quantize, 1), Input(dequantize, 1)) &&
           Same(Input(quantize, 2), Input(dequantize, 2)) && quantize.attributes.Int("block_size", 0) == 0 &&
           axis == dequantize.attributes.Int("axis", 1) && scale.rank() <= 1;
  }

  // Reshapes `numbers` (one per position along the axis, or one for all) so that it broadcasts to x.
  ValueId BroadcastAlong(ValueId numbers, const ValueType& x, int64_t axis) {
    const Shape given = b_.shape(numbers);
    numbers = b_.Cast(numbers, x.dtype);
    if (given.elements() == 1) return b_.Reshape(numbers, Shape{});
    std::vector<int64_t> dims(static_cast<size_t>(x.shape.rank()), 1);
    dims[static_cast<size_t>(axis < 0 ? axis + x.shape.rank() : axis)] = given.elements();
    return b_.Reshape(numbers, Shape(dims));
  }

  // Computes y = stop_gradient(y0) + (x - stop_gradient(x)), where x is replaced by 0 if its integer is out of range.
  void Pass(const Quantized& quantized, Node dequantize) {
    const Node& quantize = quantized.node;
    const ValueId x = quantize.inputs[0], y = dequantize.outputs[0];
    const ValueType type = graph_.type(x);
    const int64_t axis = quantize.attributes.Int("axis", 1);
    const std::string origin = dequantize.origin;
    const ValueId rounded = graph_.AddValue(graph_.value(y).name + "/rounded", type.dtype, type.shape, Role::kActivation);
    dequantize.outputs[0] = rounded;
    graph_.AddNode(std::move(dequantize));
    b_.set_origin(origin);
    const ValueId level = b_.Op("Round", {b_.Div(x, BroadcastAlong(quantize.inputs[1], type, axis))});
    ValueId low = b_.Scalar(quantized.least, type.dtype), high = b_.Scalar(quantized.most, type.dtype);
    if (Input(quantize, 2) != kNoValue) {
      const ValueId zero = BroadcastAlong(quantize.inputs[2], type, axis);
      low = b_.Sub(low, zero);
      high = b_.Sub(high, zero);
    }
    const ValueId inside = b_.Op("And", {b_.Op("GreaterOrEqual", {level, low}), b_.Op("LessOrEqual", {level, high})});
    const ValueId kept = b_.Where(inside, x, b_.Scalar(0, type.dtype));
    const ValueId through = b_.Sub(kept, b_.Own("StopGradient", {kept}));
    Node sum{.op = "Add", .inputs = {b_.Own("StopGradient", {rounded}), through}, .outputs = {y}};
    sum.origin = origin;
    graph_.AddNode(std::move(sum));
  }

  GraphBuilder& b_;
  Graph& graph_;
};

}  // namespace

void PassThroughFakeQuantize(GraphBuilder& builder) {
  ForEachBody(builder.graph(), [&](Graph& body) {
    GraphBuilder inner(body, builder.rules());
    FakeQuantize(inner).Run();
  });
  FakeQuantize(builder).Run();
}

}  // namespace gradloom

#include "tests/ops/gradient_edges.h"

#include <limits>
#include <string>
#include <utility>

namespace gradloom {
namespace {

using Edge = GradientEdge;

constexpr double kInf = std::numeric_limits<double>::infinity();

OpOperand V(std::vector<double> values) {
  const int64_t n = static_cast<int64_t>(values.size());
  return Fed(std::move(values), Shape{n});
}

std::vector<Edge> PointwiseEdges() {
  return {
      {{"Relu", {V({-1, 0, 1})}}, {{0, 0, 1}}},
      {{"Abs", {V({-1, 0, 1})}}, {{-1, 0, 1}}},
      {{"LeakyRelu", {V({-1, 0, 1})}, {{"alpha", 0.25}}}, {{0.25, 0.25, 1}}},
      {{"PRelu", {V({-1, 0, 1}), V({0.25})}}, {{0.25, 0.25, 1}, {-1}}},
      {{"Elu", {V({-1, 0, 1})}, {{"alpha", 2.0}}}, {{0.7357588823428847, 2, 1}}},
      {{"Celu", {V({-1, 0, 1})}, {{"alpha", 2.0}}}, {{0.6065306597126334, 1, 1}}},
      {{"Selu", {V({0, 1})}, {{"alpha", 1.6732632423543772}, {"gamma", 1.0507009873554805}}}, {{1.7580993408473766, 1.0507009873554805}}},
      {{"HardSigmoid", {V({-3, 0, 3})}, {{"alpha", 0.1666666716337204}}}, {{0, 0.1666666716337204, 0}}},
      {{"HardSwish", {V({-3, 0, 3})}}, {{0, 0.5, 1}}},
      {{"ThresholdedRelu", {V({0.5, 1, 2})}}, {{0, 0, 1}}},
      {{"Shrink", {V({-0.5, 0.5, 1})}, {{"bias", 0.5}}}, {{0, 0, 1}}},
      {{"Softsign", {V({0})}}, {{1}}},
      {{"Clip", {V({-2, -1, 0, 1, 2}), Fixed({-1}, {}), Fixed({1}, {})}}, {{0, 0, 1, 0, 0}}},
      {{"Clip", {V({-2, -1, 0, 1, 2}), Fixed({-1}, {})}}, {{0, 0, 1, 1, 1}}},
      {{"Clip", {V({-2, -1, 0, 1, 2}), Absent(), Fixed({1}, {})}}, {{1, 1, 1, 0, 0}}},
      {{"Sqrt", {V({0, 4})}}, {{kInf, 0.25}}},
      {{"Softplus", {V({-1000, 0, 1000})}}, {{0, 0.5, 1}}},
      {{"Sigmoid", {V({-1000, 0, 1000})}}, {{0, 0.25, 0}}},
      {{"Gelu", {V({-1000, 0, 1000})}}, {{0, 0.5, 1}}},
      {{"Gelu", {V({-1000, 0, 1000})}, {{"approximate", std::string("tanh")}}}, {{0, 0.5, 1}}},
      {{"Mish", {V({-1000, 0, 1000})}}, {{0, 0.6, 1}}},
      {{"Swish", {V({-1000, 0, 1000})}}, {{0, 0.5, 1}}},
  };
}

std::vector<Edge> BinaryEdges() {
  return {
      {{"Max", {V({1, 2, 3}), V({2, 2, 2})}}, {{0, 0.5, 1}, {1, 0.5, 0}}},
      {{"Min", {V({1, 2, 3}), V({2, 2, 2})}}, {{1, 0.5, 0}, {0, 0.5, 1}}},
      // Three operands, like torch.stack(...).amax(0).
      {{"Max", {V({1, 2}), V({2, 2}), V({0, 2})}}, {{0, 1.0 / 3}, {1, 1.0 / 3}, {0, 1.0 / 3}}},
      {{"Pow", {V({0, 0, 0, 2}), V({0, 1, 2, 0})}}, {{0, 1, 0, 0}, {0, 0, 0, 0.6931471805599453}}},
      {{"Pow", {V({-2, -2}), Fixed({2, 3}, {2})}}, {{-4, 12}}},
      {{"Pow", {V({0, 4}), Fixed({0.5}, {})}}, {{kInf, 0.25}}},
      // The gradient is zero, not absent, so weight decay still applies.
      {{"Pow", {V({-2, 0, 3}), Fixed({0}, {})}}, {{0, 0, 0}}},
      {{"Div", {V({1, 1}), V({0, 2})}}, {{kInf, 0.5}, {-kInf, -0.25}}},
      {{"Mod", {V({5, -5}), V({3, 3})}, {{"fmod", int64_t{1}}}}, {{1, 1}, {-1, 1}}},
  };
}

std::vector<Edge> OtherEdges() {
  return {
      {{"ReduceMax", {Fed({1, 3, 3, 2, 2, 2}, {2, 3}), Ints({1})}}, {{0, 0.5, 0.5, 1.0 / 3, 1.0 / 3, 1.0 / 3}}},
      {{"ReduceMin", {Fed({1, 1, 3, 2, 2, 2}, {2, 3}), Ints({1})}}, {{0.5, 0.5, 0, 1.0 / 3, 1.0 / 3, 1.0 / 3}}},
      {{"ReduceL2", {V({0, 0})}}, {{0, 0}}},
      {{"ReduceL1", {V({0, -1})}}, {{0, -1}}},
      {{"LpPool",
        {Fed({0, -2, 3, 0, 0, 0}, {1, 1, 6})},
        {{"p", int64_t{1}}, {"kernel_shape", std::vector<int64_t>{2}}, {"strides", std::vector<int64_t>{2}}}},
       {{0, -1, 1, 0, 0, 0}}},
      {{"GlobalLpPool", {Fed({0, -2, 3, 0}, {1, 2, 2})}, {{"p", int64_t{1}}}}, {{0, -1, 1, 0}}},
      {{"ReduceProd", {V({0, 2, 3})}}, {{6, 0, 0}}},
      {{"ReduceLogSumExp", {V({-kInf, 0, 0})}}, {{0, 0.5, 0.5}}},
      {{"CumProd", {V({2, 0, 3, 0}), Int(0)}}, {{1, 8, 0, 0}}},
      {{"ScatterElements", {V({1, 5}), Fed(Tensor::From<int64_t>({0, 0, 1}, {3})), V({1, 1, 5})}, {{"reduction", std::string("max")}}},
       {{1.0 / 3, 0.5}, {1.0 / 3, 1.0 / 3, 0.5}}},
      // Of equal elements the first ones are chosen here. No standard prescribes which.
      {{"TopK", {V({2, 2, 1, 2}), Ints({2})}, {}, "", 2}, {{1, 1, 0, 0}}, false},
  };
}

}  // namespace

std::vector<GradientEdge> GradientEdges() {
  std::vector<GradientEdge> all;
  for (std::vector<Edge> edges : {PointwiseEdges(), BinaryEdges(), OtherEdges()}) all.insert(all.end(), edges.begin(), edges.end());
  return all;
}

}  // namespace gradloom

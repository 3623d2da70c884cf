// Resize: values recorded with ONNX Runtime, gradients against finite differences in float64.
#include <cmath>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/gradient/differentiate.h"
#include "gtest/gtest.h"

namespace gradloom {
namespace {

// Element k is 0.6 sin(0.7 (k + 1) + seed).
Tensor Wave(const Shape& shape, int seed, DType dtype) {
  Tensor tensor(DType::kFloat64, shape);
  const auto values = tensor.as<double>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.6 * std::sin(0.7 * static_cast<double>(i + 1) + seed);
  return Converted(tensor.view(), dtype);
}

std::string Text(const char* text) { return text; }

// X [1, 1, 3, 4] resized by `scales`, or to `sizes` if there are no scales.
struct Program {
  Graph graph;
  OnnxTypeRules rules;
  GraphBuilder b{graph, rules};
  ValueId x, y;
  Tensor data;

  Program(DType dtype, const Attributes& attributes, const std::vector<float>& roi, const std::vector<float>& scales,
          const std::vector<int64_t>& sizes)
      : data(Wave({1, 1, 3, 4}, 1, dtype)) {
    x = graph.AddValue("x", dtype, data.shape(), Role::kInput);
    graph.inputs.push_back(x);
    const auto floats = [&](const std::vector<float>& values) {
      return values.empty() ? kNoValue : b.Constant(Tensor::From(values, {static_cast<int64_t>(values.size())}));
    };
    y = b.Op("Resize", {x, floats(roi), floats(scales), sizes.empty() ? kNoValue : b.Ints(sizes)}, attributes);
  }

  Tensor Run(ValueId wanted, const Tensor& feed) { return Interpret(graph, {{x, feed}}, std::vector<ValueId>{wanted})[0]; }
};

void ExpectRecorded(const Attributes& attributes, const std::vector<float>& expected, const std::vector<float>& roi = {}) {
  Program p(DType::kFloat32, attributes, roi, {}, {1, 1, 2, 6});
  const Tensor y = p.Run(p.y, p.data);
  ASSERT_EQ(y.shape(), (Shape{1, 1, 2, 6}));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(y.as<float>()[i], expected[i], 2e-6) << "element " << i;
}

TEST(Resize, MatchesRecording) {
  ExpectRecorded({{"mode", Text("nearest")}, {"coordinate_transformation_mode", Text("asymmetric")}, {"nearest_mode", Text("floor")}},
                 {0.594999f, 0.594999f, 0.405278f, 0.024948f, 0.024948f, -0.367115f, -0.586518f, -0.586518f, -0.530073f, -0.224326f,
                  -0.224326f, 0.186925f});
  ExpectRecorded({{"mode", Text("linear")}}, {0.299620f, 0.235530f, 0.136638f, -0.002568f, -0.132988f, -0.228605f, 0.236067f, 0.274380f,
                                              0.300953f, 0.253994f, 0.150067f, 0.057880f});
  ExpectRecorded({{"mode", Text("linear")}, {"coordinate_transformation_mode", Text("align_corners")}},
                 {0.594999f, 0.481166f, 0.329212f, 0.101014f, -0.131877f, -0.367115f, 0.510262f, 0.560274f, 0.554448f, 0.436948f, 0.244615f,
                  0.014865f});
  ExpectRecorded({{"mode", Text("cubic")}}, {0.300463f, 0.240736f, 0.115565f, -0.010185f, -0.163900f, -0.251352f, 0.212778f, 0.268635f,
                                             0.308303f, 0.273067f, 0.155254f, 0.058157f});
  ExpectRecorded({{"mode", Text("linear")}, {"antialias", int64_t{1}}},
                 {0.201160f, 0.147327f, 0.068221f, -0.032870f, -0.120289f, -0.182435f, 0.144669f, 0.181860f, 0.214279f, 0.195186f,
                  0.131315f, 0.072218f});
  ExpectRecorded({{"mode", Text("linear")}, {"coordinate_transformation_mode", Text("tf_crop_and_resize")}, {"extrapolation_value", 2.5}},
                 {2.500000f, 0.324978f, 0.198759f, -0.005457f, -0.200771f, 2.500000f, 2.500000f, 0.309619f, 0.361236f, 0.281001f, 0.103057f,
                  2.500000f},
                 {0, 0, 0.1f, -0.2f, 1, 1, 0.9f, 1.2f});
}

// The elements that PyTorch's interpolate and onnxruntime select, which compute positions in float32: [n] resized by a float32 scale, or to
// a size.
TEST(Resize, NearestElementIsComputedInFloat32) {
  const auto chosen = [](int64_t n, const std::vector<float>& scales, const std::vector<int64_t>& sizes, const char* place = "asymmetric",
                         const char* nearest = "floor") {
    Graph graph;
    OnnxTypeRules rules;
    GraphBuilder b(graph, rules);
    const ValueId x = graph.AddValue("x", DType::kFloat32, {n}, Role::kInput);
    graph.inputs.push_back(x);
    const ValueId y =
        b.Op("Resize",
             {x, kNoValue, scales.empty() ? kNoValue : b.Constant(Tensor::From(scales, {1})), sizes.empty() ? kNoValue : b.Ints(sizes)},
             {{"mode", Text("nearest")}, {"coordinate_transformation_mode", Text(place)}, {"nearest_mode", Text(nearest)}});
    std::vector<float> numbers;
    for (int64_t i = 0; i < n; ++i) numbers.push_back(static_cast<float>(i));
    const Tensor made = Interpret(graph, {{x, Tensor::From(numbers, {n})}}, std::vector<ValueId>{y})[0];
    return std::vector<float>(made.as<float>().begin(), made.as<float>().end());
  };
  EXPECT_EQ(chosen(10, {1.2f}, {}), (std::vector<float>{0, 0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9}));
  EXPECT_EQ(chosen(14, {0.3f}, {}), (std::vector<float>{0, 3, 6, 10}));
  EXPECT_EQ(chosen(14, {}, {18}), (std::vector<float>{0, 0, 1, 2, 3, 3, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11, 12, 13}));
  // Here onnxruntime and ONNX's own evaluator agree.
  EXPECT_EQ(chosen(5, {0.7f}, {}, "half_pixel_symmetric"), (std::vector<float>{0, 2, 3}));
  EXPECT_EQ(chosen(5, {}, {7}, "half_pixel_symmetric"), (std::vector<float>{0, 0, 1, 2, 2, 3, 4}));
  EXPECT_EQ(chosen(5, {}, {9}, "half_pixel_symmetric"), (std::vector<float>{0, 0, 0, 1, 2, 2, 3, 3, 4}));
  EXPECT_EQ(chosen(5, {0.6f}, {}, "half_pixel_symmetric", "ceil"), (std::vector<float>{1, 2, 4}));
  EXPECT_EQ(chosen(5, {2.3f}, {}, "half_pixel_symmetric", "ceil"), (std::vector<float>{0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4}));
}

// PyTorch and onnxruntime compute an extent of 7 from 5 by 1.4 and from 10 by 0.7; the exact products with the float32 scales are less than
// 7.
TEST(Resize, ExtentsAreFloat32Products) {
  Graph graph;
  OnnxTypeRules rules;
  GraphBuilder b(graph, rules);
  const ValueId x = graph.AddValue("x", DType::kFloat32, {1, 5, 10, 3}, Role::kInput);
  const auto resized = [&](const std::vector<float>& scales, const Attributes& attributes = {}) {
    return b.shape(b.Op("Resize", {x, kNoValue, b.Constant(Tensor::From(scales, {static_cast<int64_t>(scales.size())}))}, attributes));
  };
  EXPECT_EQ(resized({1, 1.4f, 0.7f, 2.5f}), (Shape{1, 7, 7, 7}));
  EXPECT_EQ(resized({0.7f, 1.4f}, {{"axes", std::vector<int64_t>{-2, 1}}}), (Shape{1, 7, 7, 3}));
}

void ExpectGradient(const Attributes& attributes, const std::vector<float>& scales, const std::vector<int64_t>& sizes) {
  Program p(DType::kFloat64, attributes, {}, scales, sizes);
  const ValueId weights = p.b.Constant(Wave(p.b.shape(p.y), 3, DType::kFloat64));
  const ValueId loss = p.b.ReduceSum(p.b.Mul(p.y, weights), {}, false);
  const auto gradients = Differentiate(p.b, loss, std::vector<ValueId>{p.x});
  const Tensor gradient = p.Run(gradients.at(p.x), p.data);
  for (size_t i = 0; i < 12; ++i) {
    double difference = 0;
    for (double step : {1e-4, -1e-4}) {
      Tensor feed = p.data.Clone();
      feed.as<double>()[i] += step;
      difference += p.Run(loss, feed).as<double>()[0] / (2 * step);
    }
    EXPECT_NEAR(gradient.as<double>()[i], difference, 1e-9) << "element " << i;
  }
}

TEST(Resize, Gradients) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* place : {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"}) {
      for (int64_t antialias : {0, 1}) {
        const Attributes attributes{{"mode", Text(mode)},
                                    {"coordinate_transformation_mode", Text(place)},
                                    {"antialias", mode == Text("nearest") ? 0 : antialias},
                                    {"exclude_outside", mode == Text("cubic") ? antialias : 0},
                                    {"axes", std::vector<int64_t>{3, 2}}};
        ExpectGradient(attributes, {0.6f, 2.3f}, {});
        ExpectGradient(attributes, {}, {7, 2});
      }
    }
  }
}

TEST(Resize, RejectsInvalidOperands) {
  const auto code = [](const Attributes& attributes) {
    try {
      Program p(DType::kFloat32, attributes, {}, {1, 1, 2, 2}, {});
      p.Run(p.y, p.data);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code({{"mode", Text("quintic")}}), ErrorCode::kAttr);
  EXPECT_EQ(code({{"nearest_mode", Text("up")}}), ErrorCode::kAttr);
  EXPECT_EQ(code({{"coordinate_transformation_mode", Text("elsewhere")}}), ErrorCode::kAttr);
}

}  // namespace
}  // namespace gradloom

#include "compiler/passes/patterns/fixed_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/passes/patterns/written_norms.h"
#include "compiler/passes/update/choose_trainable.h"

namespace gradloom {
namespace {

Tensor Filled(const Shape& shape, const std::function<double(int64_t)>& f) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<float>(f(i)));
  return Tensor::From<float>(values, shape);
}

Tensor Random(const Shape& shape) {
  std::mt19937 bits(7);
  std::normal_distribution<double> normal;
  return Filled(shape, [&](int64_t) { return normal(bits); });
}

double Angle(int64_t position, int64_t k) { return static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(k) / 4); }

TEST(FixedTensorsTest, PositionsAsSinesAndCosines) {
  const auto halves = [](int64_t i) { return i % 8 < 4 ? std::sin(Angle(i / 8, i % 8)) : std::cos(Angle(i / 8, i % 8 - 4)); };
  const auto turns = [](int64_t i) { return i % 2 == 0 ? std::sin(Angle(i / 8, i % 8 / 2)) : std::cos(Angle(i / 8, i % 8 / 2)); };
  EXPECT_TRUE(IsSinusoidTable(Filled(Shape{6, 8}, halves)));
  EXPECT_TRUE(IsSinusoidTable(Filled(Shape{1, 6, 8}, turns)));
  // Rows and columns of an image, each in one half.
  const auto both = [&](int64_t i) { return halves(8 * (i % 16 < 8 ? i / 64 : i / 16 % 4) + i % 8); };
  EXPECT_TRUE(IsSinusoidTable(Filled(Shape{16, 16}, both)));
  EXPECT_FALSE(IsSinusoidTable(Filled(Shape{16, 16}, [&](int64_t i) { return both(i) + (i == 200 ? 0.1 : 0); })));
  // A row for padding.
  EXPECT_TRUE(IsSinusoidTable(Filled(Shape{6, 8}, [&](int64_t i) { return i < 8 ? 0 : halves(i); })));
  EXPECT_FALSE(IsSinusoidTable(Filled(Shape{6, 8}, [&](int64_t i) { return halves(i) + (i == 47 ? 0.1 : 0); })));
  EXPECT_FALSE(IsSinusoidTable(Random(Shape{6, 8})));
  // One row per sample, which lies on a circle by chance.
  const double row[] = {-0.5, -1.0 / 6, 1.0 / 6, 0.5};
  EXPECT_FALSE(IsSinusoidTable(Filled(Shape{1, 4, 4}, [&](int64_t i) { return row[i % 4]; })));
  EXPECT_FALSE(IsSinusoidTable(Filled(Shape{6, 8}, [](int64_t) { return 1.0; })));
  EXPECT_FALSE(IsSinusoidTable(Filled(Shape{6, 8}, [](int64_t) { return 0.0; })));
}

// Weights that are initialized to +-c, or to +-c and 0, are no tables.
TEST(FixedTensorsTest, SignsOfOneNumber) {
  std::mt19937 bits(7);
  const Tensor signs = Filled(Shape{8, 4}, [&](int64_t) { return bits() % 2 == 0 ? 0.5 : -0.5; });
  EXPECT_FALSE(IsSinusoidTable(signs));
  EXPECT_FALSE(IsRotation(signs, Filled(Shape{8, 4}, [&](int64_t) { return bits() % 2 == 0 ? 0.5 : -0.5; })));
  const auto either = [&](int64_t i) { return (i % 2 == 0) == (i / 4 % 2 == 0) ? 0 : bits() % 2 == 0 ? 0.5 : -0.5; };
  EXPECT_FALSE(IsSinusoidTable(Filled(Shape{8, 4}, either)));
}

TEST(FixedTensorsTest, RotationsInTwoTables) {
  const Tensor cosines = Filled(Shape{1, 1, 6, 8}, [](int64_t i) { return 1.3 * std::cos(Angle(i / 8, i % 4)); });
  const Tensor sines = Filled(Shape{1, 1, 6, 8}, [](int64_t i) { return 1.3 * std::sin(Angle(i / 8, i % 4)); });
  EXPECT_TRUE(IsRotation(cosines, sines));
  EXPECT_TRUE(IsRotation(sines, cosines));
  EXPECT_FALSE(IsRotation(cosines, cosines));
  EXPECT_FALSE(IsRotation(cosines, Random(cosines.shape())));
  // Two scales that have not been trained yet.
  const Tensor ones = Filled(Shape{64}, [](int64_t) { return 1.0; });
  EXPECT_FALSE(IsRotation(ones, ones));
}

TEST(FixedTensorsTest, RotationsAmongManyTables) {
  const Tensor cosines = Filled(Shape{6, 8}, [](int64_t i) { return 1.3 * std::cos(Angle(i / 8, i % 4)); });
  const Tensor sines = Filled(Shape{6, 8}, [](int64_t i) { return 1.3 * std::sin(Angle(i / 8, i % 4)); });
  const Tensor others[] = {Random(Shape{6, 8}), Random(Shape{48}), Filled(Shape{6, 8}, [](int64_t) { return 1.0; }),
                           Filled(Shape{6, 8}, [](int64_t i) { return i == 0 ? NAN : 1.0; }), Tensor(DType::kFloat32, Shape{0})};
  RotationTables tables;
  for (const Tensor& other : others) tables.Add(other);
  tables.Add(cosines);
  EXPECT_TRUE(tables.HasOtherHalf(sines));
  EXPECT_FALSE(tables.HasOtherHalf(cosines));
  tables.Add(sines);
  EXPECT_TRUE(tables.HasOtherHalf(cosines));
  for (const Tensor& other : others) EXPECT_FALSE(tables.HasOtherHalf(other));
}

TEST(FixedTensorsTest, Masks) {
  const auto made = [](std::vector<float> values) { return Tensor::From<float>(values, Shape{static_cast<int64_t>(values.size())}); };
  EXPECT_TRUE(LooksLikeMask(made({1, 0, 1}), true));
  EXPECT_FALSE(LooksLikeMask(made({1, 1, 1}), true));
  EXPECT_FALSE(LooksLikeMask(made({0, 0, 0}), true));
  EXPECT_FALSE(LooksLikeMask(made({1, 0, 0.5}), true));
  EXPECT_TRUE(LooksLikeMask(made({0, -1e9F, -INFINITY}), false));
  EXPECT_TRUE(LooksLikeMask(made({0, -100, 0}), false));
  EXPECT_FALSE(LooksLikeMask(made({0, -100, -101}), false));
  EXPECT_FALSE(LooksLikeMask(made({0, -2, 0}), false));
  EXPECT_FALSE(LooksLikeMask(made({0, 0, 0}), false));
  // Beside distances, as constant folding leaves a mask and ALiBi's slopes.
  EXPECT_TRUE(LooksLikeMask(made({0, -0.25F, -INFINITY}), false));
  EXPECT_TRUE(LooksLikeMask(made({0, 0.25F, INFINITY}), false));
  EXPECT_TRUE(LooksLikeMask(made({0, -0.25F, -3.4e38F}), false));
  EXPECT_TRUE(LooksLikeMask(made({0, -0.25F, -1e9F, -1e9F}), false));
  EXPECT_FALSE(LooksLikeMask(made({0, -0.25F, -1e9F}), false));
  EXPECT_FALSE(LooksLikeMask(made({0.5F, -20000, -20000, -15000}), false));
  EXPECT_FALSE(LooksLikeMask(made({0, -0.25F, NAN}), false));
}

TEST(FixedTensorsTest, Names) {
  EXPECT_TRUE(IsModulePath("model.logit_scale"));
  EXPECT_TRUE(IsModulePath("layers.0.gate"));
  EXPECT_TRUE(IsModulePath("net/attention/Mul/ReadVariableOp:0"));
  for (const char* name : {"val_3", "layers.0", "/Constant_1_output_0", "onnx::Mul_12", ".x", "x.", "model/add/y:0", "const.a-b",
                           "arith.constant8", "tfl.pseudo_const3"}) {
    EXPECT_FALSE(IsModulePath(name)) << name;
  }
  for (const char* name : {"logit_scale", "alphas.0", "0.alpha", "model.logit_scale"}) EXPECT_TRUE(IsAttribute(name)) << name;
  for (const char* name : {"/Constant_1_output_0", "onnx::Mul_12", "123"}) EXPECT_FALSE(IsAttribute(name)) << name;
  EXPECT_NE(FixedByName("backbone.bn1.running_var"), "");
  EXPECT_NE(FixedByName("inner.lifted_tensor_0"), "");
  EXPECT_NE(FixedByName("scalar_tensor_default_2"), "");
  for (const char* name : {"ones_like", "new_zeros_1", "full_12", "arange"}) EXPECT_NE(FixedByName(name), "") << name;
  for (const char* name : {"head.ones", "ones_like_", "ones_a", "full_head", "arange2", "zeros_1_a", "_1"})
    EXPECT_EQ(FixedByName(name), "") << name;
  EXPECT_NE(FixedByName("helper.constant.12"), "");
  EXPECT_NE(FixedByName("p2o.pd_op.full_int_array.3.0"), "");
  EXPECT_EQ(FixedByName("helper.concat.12"), "");
  EXPECT_NE(FixedByName("net/rescaling_1/Cast/x:0"), "");
  EXPECT_NE(FixedByName("net/rescaling_1/add/y:0"), "");
  EXPECT_EQ(FixedByName("net/dense/ReadVariableOp:0"), "");
  EXPECT_EQ(FixedByName("encoder/x"), "");
  EXPECT_NE(FixedByName("Mu_Mulcst"), "");
  EXPECT_NE(FixedByName("pref_Powcst1"), "");
  EXPECT_EQ(FixedByName("intercepts1"), "");
  EXPECT_EQ(FixedByName("backbone.bn1.weight"), "");
}

TEST(FixedTensorsTest, NamesOfConstantNodes) {
  for (const char* name :
       {"/Constant_output_0", "/body/body.1/Constant_12_output_0", "/ConstantOfShape_2_output_0", "net//a/Range_output_0"})
    EXPECT_TRUE(IsCalledConstant(name)) << name;
  for (const char* name : {"/fc/Transpose_output_0", "/ConstantScale_output_0", "Constant_output_0", "/Constant_1", "/Constant_x_output_0",
                           "/Constant__output_0", "", "/", "_output_0"})
    EXPECT_FALSE(IsCalledConstant(name)) << name;
}

// The names of the trained initializers, in the order of the file.
std::string Trained(const std::string& graph, const std::string& producer = "hand", int opset = 17) {
  const std::string header =
      "<ir_version: 10, opset_import: [\"\" : " + std::to_string(opset) + "], producer_name: \"" + producer + "\">\n";
  const ImportedGraph imported = Import(Model::FromText(header + graph), {.batch = 2, .shapes = {}});
  TrainableOptions options;
  options.attributes = imported.names_attributes;
  options.node_constants = imported.node_constants;
  std::string names;
  for (const auto& [name, why] : ChooseTrainable(*imported.graph, options).trained) names += (names.empty() ? "" : " ") + name;
  return names;
}

constexpr char kNorm[] =
    R"(<float[2] c = {0, 0}, float[2] v = {1, 1}, float[2] g = {1, 1}, float[2] b = {0, 0}, float e = {0.001}, float one = {1}>
{
  moved = Add (v, e)
  root = Sqrt (moved)
)";

// A tool has turned Constant nodes into initializers. If all weights were such nodes (torch.jit.freeze), they are still weights.
TEST(FixedTensorsTest, ConstantsThatBecameInitializers) {
  const std::string scaled = R"(g (float[2, 2] x) => (float[2, 2] y)
    <float[2, 2] WEIGHT = {1, 2, 3, 4}, float[2] "/bn/Constant_1_output_0" = {1.5, 0.5}>
    { h = MatMul (x, WEIGHT) y = Mul (h, "/bn/Constant_1_output_0") })";
  const auto with = [&](const std::string& weight) {
    std::string graph = scaled;
    for (size_t at; (at = graph.find("WEIGHT")) != std::string::npos;) graph.replace(at, 6, weight);
    return Trained(graph);
  };
  EXPECT_EQ(with("w"), "w");
  EXPECT_EQ(with("\"/fc/Constant_output_0\""), "/fc/Constant_output_0 /bn/Constant_1_output_0");
}

// Operands of the operator act as those of the MatMul and Add that it stands for.
TEST(FixedTensorsTest, OperandsOfAttention) {
  const auto trained = [](const std::string& mask) {
    return Trained(
        "g (float[N, 1, 2, 2] x) => (float[N, 1, 2, 2] y) <float[1, 1, 2, 2] w = {1, 2, 3, 4}, float[1, 1, 2, 2] v = {1, 2, 3, 5}"
        ", float[2, 2] m = {" +
            mask +
            "}, int64[4] s = {2, 1, 2, 2}>\n{ q = Expand (w, s)\n k = Expand (v, s)\n"
            " a = Attention (q, k, x, m)\n y = Attention (x, x, a, m) }",
        "hand", 23);
  };
  EXPECT_EQ(trained("0.5, 1, 2, 3"), "w v m");
  EXPECT_EQ(trained("0, -inf, 0, 0"), "w v");
}

// The older exporter names attributes of a module, and calls numbers in the code after their Constant nodes.
TEST(FixedTensorsTest, BasesAndExponents) {
  EXPECT_EQ(Trained("g (float[N, 2] x) => (float[N, 2] y) <float[2] base = {2, 3}, float[2] power = {2, 3}>\n"
                    "{ [Pow_0] a = Pow (base, x)\n [Abs_1] b = Abs (x)\n [Pow_2] c = Pow (b, power)\n [Add_3] y = Add (a, c) }",
                    "pytorch"),
            "base power");
}

// A sparse layer after pruning.
TEST(FixedTensorsTest, MasksOfWeights) {
  EXPECT_EQ(
      Trained(R"(g (float[N, 2] x) => (float[N, 2] y) <float[2, 2] w = {0.5, 1, 2, 3}, float[2, 2] m = {1, 0, 0, 1}, float[2] s = {1, 1}>
{
  kept = Mul (w, m)
  scaled = Mul (kept, s)
  y = MatMul (x, scaled)
})"),
      "w s");
}

// Keras: x * (g / root) - c * (g / root) + b, and what JAX and TensorFlow turn it into.
TEST(FixedTensorsTest, StatisticsOfExpandedNormalizations) {
  const std::string head = "g (float[N, 2] x) => (float[N, 2] y) ";
  EXPECT_EQ(Trained(head + kNorm + R"(
  inverse = Div (one, root)
  scale = Mul (inverse, g)
  minus = Neg (c)
  shifted = Mul (minus, scale)
  bias = Add (shifted, b)
  scaled = Mul (x, scale)
  y = Add (scaled, bias)
})"),
            "g b");
  EXPECT_EQ(Trained(head + kNorm + R"(
  h = Tanh (x)
  centred = Sub (h, c)
  normal = Div (centred, root)
  scaled = Mul (normal, g)
  y = Add (scaled, b)
})"),
            "g b");
  // The variance folded into the scale.
  const std::string folded = R"(
{
  h = Tanh (x)
  centred = Sub (h, c)
  scaled = Mul (centred, g)
  y = Add (scaled, b)
})";
  EXPECT_EQ(Trained(head + "<float[2] c = {0, 0}, float[2] g = {1, 1}, float[2] b = {0, 0}>" + folded), "g b");
  EXPECT_EQ(Trained(head + "<float[2] c = {0, 0}, float[2] g = {1, 1}, float[1] b = {0}>" + folded), "c g");
  // A variance that is trained directly would become negative. A bias and a scale before a square root are trained.
  EXPECT_EQ(Trained(head + R"(<float[2] v = {1, 1}, float e = {0.001}>
{
  square = Mul (x, x)
  sum = Add (square, v)
  y = Sqrt (sum)
})"),
            "v");
}

// Caffe models and similar ones take pixels from 0 to 255 minus the mean per channel or per pixel. A learned shift is small.
TEST(FixedTensorsTest, MeansOfPixels) {
  const auto trained = [](const std::string& mean, const std::string& nodes, const std::string& rest = "") {
    return Trained("g (float[N, 3, 2, 2] x) => (float[N, 3, 2, 2] y) <float[3, 1, 1] m = {" + mean +
                   "}, float[3, 1, 1] s = {1, 2, 3}, int64[3] r = {2, 1, 0}" + rest + "> {" + nodes + "}");
  };
  EXPECT_EQ(trained("103.9, 116.8, 123.7", "c = Sub (x, m) y = Mul (c, s)"), "");  // mean and deviation, as before
  EXPECT_EQ(trained("103.9, 116.8, 123.7", "c = Sub (x, m) t = Tanh (c) y = Mul (t, s)"), "s");
  EXPECT_EQ(trained("-103.9, -116.8, -123.7", "c = Add (m, x) t = Tanh (c) y = Mul (t, s)"), "s");
  EXPECT_EQ(trained("103.9, 116.8, 123.7", "k = Gather <axis = 1> (x, r) c = Sub (k, m) t = Tanh (c) y = Mul (t, s)"), "s");
  EXPECT_EQ(trained("0.3, 116.8, 123.7", "c = Sub (x, m) t = Tanh (c) y = Mul (t, s)"), "m s");
  EXPECT_EQ(trained("103.9, 116.8, 123.7", "c = Add (x, m) t = Tanh (c) y = Mul (t, s)"), "m s");
  EXPECT_EQ(trained("103.9, 116.8, 123.7", "h = Tanh (x) c = Sub (h, m) t = Tanh (c) y = Mul (t, s)"), "m s");
  // Added again after the layer, as in sparse autoencoders.
  EXPECT_EQ(trained("103.9, 116.8, 123.7", "c = Sub (x, m) t = Tanh (c) z = Mul (t, s) y = Add (z, m)"), "m s");
}

TEST(FixedTensorsTest, CountsExpandedNormalizations) {
  const std::string graph = "g (float[N, 2] x) => (float[N, 2] y) " + std::string(kNorm) + R"(
  centred = Sub (x, c)
  normal = Div (centred, root)
  scaled = Mul (normal, g)
  y = Add (scaled, b)
})";
  const ImportedGraph imported =
      Import(Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\n" + graph), {.batch = 2, .shapes = {}});
  EXPECT_EQ(CountWrittenNorms(*imported.graph), 1);
  ChooseTrainable(*imported.graph, {});
  EXPECT_EQ(CountWrittenNorms(*imported.graph), 1);
}

TEST(FixedTensorsTest, MeanAndDeviationOfTheData) {
  const std::string weights = "<float[1, 2] mean = {5, 6}, float[1, 2] deviation = {2, 3}, float[2, 1] w = {1, 2}>";
  EXPECT_EQ(Trained("g (float[N, 2] x) => (float[N, 1] y) " + weights + R"(
{
  centred = Sub (x, mean)
  normal = Div (centred, deviation)
  y = MatMul (normal, w)
})"),
            "w");
  // The same applied to an intermediate value is a layer.
  EXPECT_EQ(Trained("g (float[N, 2] x) => (float[N, 1] y) " + weights + R"(
{
  h = Tanh (x)
  centred = Sub (h, mean)
  normal = Div (centred, deviation)
  y = MatMul (normal, w)
})"),
            "mean deviation w");
}

TEST(FixedTensorsTest, FiltersOfOnesAreWindows) {
  // As jax2onnx writes a mean over windows of images with channels last.
  EXPECT_EQ(
      Trained(
          R"(g (float[N, 4, 4, 3] x) => (float[N, 3, 3, 3] y) <float[1, 1, 1, 2, 2, 1] window = {1, 1, 1, 1}, int64[2] lead = {0, 1}, float[3] w = {1, 2, 3}>
{
  wide = Unsqueeze (x, lead)
  sum = Conv (wide, window)
  narrow = Squeeze (sum, lead)
  y = Mul (narrow, w)
})"),
      "w");
  const auto graph = [](const std::string& filter, const std::string& values) {
    return "g (float[N, 1, 4] x) => (float[N, 1, 3] y) <float[1, 1, 2] " + filter + " = {" + values + "}> { y = Conv (x, " + filter + ") }";
  };
  EXPECT_EQ(Trained(graph("window", "1, 1")), "");
  EXPECT_EQ(Trained(graph("window", "1, 2")), "window");
}

// Keras crops what a transposed convolution gives, moves channels last and adds the bias.
TEST(FixedTensorsTest, TheBiasBehindACroppedLayer) {
  EXPECT_EQ(Trained(R"(g (float[N, 1, 3, 3] x) => (float[N, 3, 3, 1] y)
<float[1, 1, 2, 2] w = {1, 2, 3, 4}, int64[2] from = {0, 0}, int64[2] to = {3, 3}, int64[2] axes = {2, 3}, float[1, 1, 1, 1] b = {0.5}>
{
  wide = ConvTranspose (x, w)
  cropped = Slice (wide, from, to, axes)
  last = Transpose <perm = [0, 2, 3, 1]> (cropped)
  y = Add (last, b)
})"),
            "w b");
}

TEST(FixedTensorsTest, BiasOfALayerWithOneFeature) {
  const auto graph = [](const std::string& bias, const std::string& extent) {
    return "g (float[N, 2] x) => (float[N, " + extent + "] y) <float[2, " + extent + "] w = {" + (extent == "1" ? "1, 2" : "1, 2, 3, 4") +
           "}, " + bias + ">\n" + "{ product = MatMul (x, w)\n y = Add (product, b) }";
  };
  EXPECT_EQ(Trained(graph("float[1] b = {0.5}", "1")), "w b");
  EXPECT_EQ(Trained(graph("float b = {0.5}", "1")), "w");  // a number in the code
  EXPECT_EQ(Trained(graph("float[1] b = {0.5}", "2")), "w");
}

// TensorFlow Lite's converter calls numbers in the code as nothing in the model is called; a variable of TensorFlow is one of any size.
TEST(FixedTensorsTest, SingleNumbersOfTensorFlow) {
  const auto trained = [](const std::string& name) {
    return Trained("g (float[N, 2] x) => (float[N, 2] y) <float[2] s = {1, 2}, float \"" + name +
                   "\" = {0.001}> { h = Mul (x, s) y = Add (h, \"" + name + "\") }");
  };
  EXPECT_EQ(trained("arith.constant8"), "s");
  EXPECT_EQ(trained("net/add/y:0"), "s");
  EXPECT_EQ(trained("net/shift/add/ReadVariableOp:0"), "s net/shift/add/ReadVariableOp:0");
}

// Paddle's GroupNorm: an InstanceNormalization over the groups, with a scale and a shift that are no parameters, and a scale for each
// channel.
TEST(FixedTensorsTest, NumbersOfPaddle) {
  EXPECT_EQ(Trained(R"(g (float[N, 4, 3] x) => (float[N, 4, 3] y)
<int64[3] "helper.constant.0" = {0, 2, -1}, float[2] "helper.constant.1" = {1, 1}, float[2] "helper.constant.2" = {0, 0}, float[4, 1] w = {1, 1, 1, 1}>
{
  groups = Reshape (x, "helper.constant.0")
  normal = InstanceNormalization (groups, "helper.constant.1", "helper.constant.2")
  shape = Shape (x)
  back = Reshape (normal, shape)
  y = Mul (back, w)
})"),
            "w");
}

// The scales that onnxruntime's quantizers write, however the weight was called.
TEST(FixedTensorsTest, ScalesOfQuantizedWeights) {
  EXPECT_EQ(Trained(R"(g (float[N, 2] x) => (float[N, 2] y)
<int8[2, 2] "fc.weight_quantized" = {1, 2, 3, 4}, float[2] "fc.weight_scale" = {0.1, 0.2}, int8[2] "fc.weight_zero_point" = {0, 0}, float[2] "fc.bias" = {1, 2}>
{
  q, s, z = DynamicQuantizeLinear (x)
  whole = MatMulInteger (q, "fc.weight_quantized", z, "fc.weight_zero_point")
  scales = Mul (s, "fc.weight_scale")
  number = Cast <to = 1> (whole)
  h = Mul (number, scales)
  y = Add (h, "fc.bias")
})"),
            "fc.bias");
  // Integers of a table, dequantized, and quantized and dequantized again with the same scale.
  EXPECT_EQ(Trained(R"(g (int64[N] x) => (float[N, 2] y)
<uint8[3, 2] table = {1, 2, 3, 4, 5, 6}, float "e.weight_scale" = {0.1}, uint8 "e.weight_zero_point" = {0}, float[2] "fc.bias" = {1, 2}>
{
  rows = Gather (table, x)
  h = DequantizeLinear (rows, "e.weight_scale", "e.weight_zero_point")
  q = QuantizeLinear (h, "e.weight_scale", "e.weight_zero_point")
  r = DequantizeLinear (q, "e.weight_scale", "e.weight_zero_point")
  y = Add (r, "fc.bias")
})"),
            "fc.bias");
}

// PyTorch's older exporter writes numbers in the code as Constant nodes, so an initializer that is named like an attribute of the outermost
// module is one.
TEST(FixedTensorsTest, SingleNumbersOfTheOutermostModule) {
  const std::string graph = R"(
g (float[N, 2] x) => (float[N, 2] y) <float temperature = {0.5}, float[1] p = {3}, float[2] token = {1, 2}, float least = {0.1}, float mask = {-10000}, bool[2] hidden = {0, 1}>
{
  [Div_0] scaled = Div (x, temperature)
  [Max_1] bounded = Max (scaled, least)
  [Pow_2] powered = Pow (bounded, p)
  [Where_3] masked = Where (hidden, token, powered)
  [Where_4] filled = Where (hidden, masked, mask)
  half = Constant <value = float {0.5}> ()
  [Mul_5] y = Mul (filled, half)
})";
  EXPECT_EQ(Trained(graph, "pytorch"), "temperature p token");
  EXPECT_EQ(Trained(graph), "");
}

// The numbers over which distributions are summed, as a filter (YOLO's head) and in a product.
TEST(FixedTensorsTest, NumbersInOrder) {
  EXPECT_TRUE(IsCounting(Filled(Shape{1, 16, 1, 1}, [](int64_t i) { return i; })));
  EXPECT_FALSE(IsCounting(Filled(Shape{16}, [](int64_t i) { return i + 1; })));
  const std::string graph = R"(
g (float[N, 16, 3, 3] x) => (float[N, 1, 3, 3] y)
<float[1, 16, 1, 1] w = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}>
{
  [Conv_0] y = Conv (x, w)
})";
  EXPECT_EQ(Trained(graph, "pytorch"), "");
  EXPECT_EQ(Trained(graph), "w");
}

}  // namespace
}  // namespace gradloom

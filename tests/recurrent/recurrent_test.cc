// LSTM, GRU and RNN: values recorded with ONNX Runtime, gradients against finite differences in float64.
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

struct Case {
  std::string op;
  Attributes attributes;
  std::string operands;  // B, L (sequence_lens), h, c and P, those that are given
  int64_t directions = 1;
};

constexpr int64_t kSteps = 3, kBatch = 2, kInput = 2, kHidden = 2;

struct Program {
  Graph graph;
  std::map<ValueId, Tensor> feeds;
  std::vector<ValueId> wanted, outputs;
};

void Build(const Case& c, DType dtype, Program& p) {
  const int64_t gates = c.op == "LSTM" ? 4 : c.op == "GRU" ? 3 : 1, width = gates * kHidden, d = c.directions;
  const bool batch_first = c.attributes.Int("layout", 0) == 1;
  std::vector<ValueId> inputs;
  const auto feed = [&](bool present, Tensor tensor, bool differentiate = true) {
    inputs.push_back(present ? p.graph.AddValue("input", tensor.dtype(), tensor.shape(), Role::kInput) : kNoValue);
    if (!present) return;
    p.graph.inputs.push_back(inputs.back());
    p.feeds.emplace(inputs.back(), std::move(tensor));
    if (differentiate) p.wanted.push_back(inputs.back());
  };
  const auto has = [&](char name) { return c.operands.find(name) != std::string::npos; };
  const Shape state = batch_first ? Shape{kBatch, d, kHidden} : Shape{d, kBatch, kHidden};
  feed(true, Wave(batch_first ? Shape{kBatch, kSteps, kInput} : Shape{kSteps, kBatch, kInput}, 1, dtype));
  feed(true, Wave({d, width, kInput}, 2, dtype));
  feed(true, Wave({d, width, kHidden}, 3, dtype));
  feed(has('B'), Wave({d, 2 * width}, 4, dtype));
  feed(has('L'), Tensor::From<int32_t>({3, 2}, {kBatch}), false);
  feed(has('h'), Wave(state, 6, dtype));
  if (c.op == "LSTM") {
    feed(has('c'), Wave(state, 7, dtype));
    feed(has('P'), Wave({d, 3 * kHidden}, 8, dtype));
  }
  const OnnxTypeRules rules;
  GraphBuilder b(p.graph, rules);
  Attributes attributes = c.attributes;
  attributes.set("hidden_size", kHidden);
  p.outputs = b.Ops(c.op, "", inputs, c.op == "LSTM" ? 3 : 2, attributes);
}

void ExpectRecorded(const Case& c, const std::vector<float>& expected) {
  Program p;
  Build(c, DType::kFloat32, p);
  const Tensor y = Interpret(p.graph, p.feeds, std::vector<ValueId>{p.outputs[0]})[0];
  ASSERT_EQ(y.shape(), (Shape{kSteps, 2, kBatch, kHidden}));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(y.as<float>()[i], expected[i], 2e-6) << c.op << " element " << i;
}

const Attributes kBoth{{"direction", std::string("bidirectional")}};

TEST(Recurrent, LstmMatchesRecording) {
  ExpectRecorded({"LSTM", kBoth, "BLhcP", 2}, {0.148149f, 0.248434f, 0.106768f, -0.028093f, 0.089553f, 0.072162f,  0.156237f, 0.154276f,
                                               0.185250f, 0.148598f, 0.122615f, 0.021480f,  0.162228f, 0.055109f,  0.115553f, 0.091866f,
                                               0.117680f, 0.196920f, 0.000000f, 0.000000f,  0.033905f, -0.043036f, 0.000000f, 0.000000f});
}

TEST(Recurrent, GruMatchesRecording) {
  ExpectRecorded({"GRU", kBoth, "BLh", 2}, {0.344349f,  0.051170f, 0.196432f, 0.374518f, -0.059254f, -0.068900f, 0.352482f, -0.096313f,
                                            -0.073576f, 0.359968f, 0.050554f, 0.289739f, 0.327521f,  -0.024025f, 0.056155f, -0.227473f,
                                            0.232126f,  0.070254f, 0.000000f, 0.000000f, -0.055058f, -0.350312f, 0.000000f, 0.000000f});
  Attributes linear = kBoth;
  linear.set("linear_before_reset", int64_t{1});
  ExpectRecorded({"GRU", linear, "BLh", 2}, {0.499674f, 0.051494f, 0.370741f, 0.388233f, -0.133694f, -0.249653f, 0.216597f,  -0.248466f,
                                             0.130233f, 0.385753f, 0.282340f, 0.272902f, 0.208345f,  -0.159836f, -0.055928f, -0.325038f,
                                             0.459688f, 0.038415f, 0.000000f, 0.000000f, -0.156059f, -0.420432f, 0.000000f,  0.000000f});
}

TEST(Recurrent, RnnMatchesRecording) {
  ExpectRecorded({"RNN", kBoth, "BLh", 2}, {-0.763233f, -0.755994f, -0.774686f, -0.363666f, 0.723855f, 0.926905f, 0.717960f, 0.504441f,
                                            -0.103727f, 0.790327f,  -0.328835f, 0.347790f,  0.904505f, 0.435993f, 0.562763f, -0.084772f,
                                            -0.796035f, -0.733013f, 0.000000f,  0.000000f,  0.390190f, 0.646707f, 0.000000f, 0.000000f});
}

// The loss is the weighted sum of all elements of the outputs `used`.
void ExpectGradients(const Case& c, const std::vector<size_t>& used) {
  Program p;
  Build(c, DType::kFloat64, p);
  const OnnxTypeRules rules;
  GraphBuilder b(p.graph, rules);
  ValueId loss = kNoValue;
  for (size_t i : used) {
    const ValueId weights = b.Constant(Wave(b.shape(p.outputs[i]), 10 + static_cast<int>(i), DType::kFloat64));
    const ValueId sum = b.ReduceSum(b.Mul(p.outputs[i], weights), {}, false);
    loss = loss == kNoValue ? sum : b.Add(loss, sum);
  }
  const auto gradients = Differentiate(b, loss, p.wanted);
  for (ValueId input : p.wanted) {
    const Tensor gradient = Interpret(p.graph, p.feeds, std::vector<ValueId>{gradients.at(input)})[0];
    for (int64_t i = 0; i < gradient.elements(); ++i) {
      double difference = 0;
      for (double step : {1e-5, -1e-5}) {
        auto feeds = p.feeds;
        feeds[input] = p.feeds[input].Clone();
        feeds[input].as<double>()[static_cast<size_t>(i)] += step;
        difference += Interpret(p.graph, feeds, std::vector<ValueId>{loss})[0].as<double>()[0] / (2 * step);
      }
      EXPECT_NEAR(gradient.as<double>()[static_cast<size_t>(i)], difference, 1e-8)
          << c.op << " " << c.operands << " input " << input << " element " << i;
    }
  }
}

TEST(Recurrent, Gradients) {
  Attributes layout = kBoth, clip, linear = kBoth;
  layout.set("layout", int64_t{1});
  clip.set("clip", 0.4);
  linear.set("linear_before_reset", int64_t{1});
  for (const std::string op : {"LSTM", "GRU", "RNN"}) {
    ExpectGradients({op, {}, ""}, {0});
    ExpectGradients({op, {}, "Bhc"}, {1});
    ExpectGradients({op, kBoth, "BLhcP", 2}, {0, 1});
    ExpectGradients({op, layout, "BLhcP", 2}, {0, 1});
    ExpectGradients({op, clip, "BhcP"}, {0, 1});
  }
  ExpectGradients({"LSTM", {{"input_forget", int64_t{1}}}, "BhcP"}, {0, 2});
  ExpectGradients({"LSTM", {{"direction", std::string("reverse")}}, "BLhc"}, {2});
  ExpectGradients({"GRU", linear, "BLh", 2}, {0, 1});
}

TEST(Recurrent, GradientsThroughEveryActivation) {
  for (const std::string name :
       {"Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"}) {
    Attributes attributes{{"activations", std::vector<std::string>{name}},
                          {"activation_alpha", std::vector<double>{0.4}},
                          {"activation_beta", std::vector<double>{0.3}}};
    ExpectGradients({"RNN", attributes, "Bh"}, {0});
  }
}

ErrorCode CodeOf(const Case& c) {
  try {
    Program p;
    Build(c, DType::kFloat32, p);
    Interpret(p.graph, p.feeds, p.outputs);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

TEST(Recurrent, RejectsInvalidOperands) {
  EXPECT_EQ(CodeOf({"LSTM", {{"direction", std::string("sideways")}}, ""}), ErrorCode::kAttr);
  EXPECT_EQ(CodeOf({"LSTM", {{"activations", std::vector<std::string>{"Tanh"}}}, ""}), ErrorCode::kAttr);
  EXPECT_EQ(CodeOf({"RNN", {{"activations", std::vector<std::string>{"Gelu"}}}, ""}), ErrorCode::kAttr);
  EXPECT_EQ(CodeOf({"GRU", kBoth, "", 1}), ErrorCode::kShape);  // weights of one direction for a bidirectional layer
}

}  // namespace
}  // namespace gradloom

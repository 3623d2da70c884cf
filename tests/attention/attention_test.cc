// Tests of attention: values from ONNX's reference implementation, gradients against finite differences in float64.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
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
Tensor Wave(const Shape& shape, int seed) {
  Tensor tensor(DType::kFloat64, shape);
  const auto values = tensor.as<double>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.6 * std::sin(0.7 * static_cast<double>(i + 1) + seed);
  return tensor;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

struct Case {
  std::vector<Tensor> operands;  // an undefined tensor is an absent operand
  Attributes attributes = {};
  int outputs = 1;
};

struct Program {
  Graph graph;
  OnnxTypeRules rules;
  GraphBuilder b{graph, rules};
  std::map<ValueId, Tensor> feeds;
  std::vector<ValueId> wanted, outputs;

  explicit Program(const Case& c) {
    std::vector<ValueId> inputs;
    for (const Tensor& tensor : c.operands) {
      inputs.push_back(tensor.defined() ? graph.AddValue("input", tensor.dtype(), tensor.shape(), Role::kInput) : kNoValue);
      if (!tensor.defined()) continue;
      graph.inputs.push_back(inputs.back());
      feeds.emplace(inputs.back(), tensor);
      if (tensor.dtype() == DType::kFloat64) wanted.push_back(inputs.back());
    }
    outputs = b.Ops("Attention", "", inputs, c.outputs, c.attributes);
  }
  Tensor Run(ValueId value, const std::map<ValueId, Tensor>& fed) { return Interpret(graph, fed, std::vector<ValueId>{value})[0]; }
};

// Two heads of Q share one head of K and V.
std::vector<Tensor> Shared(const Tensor& mask, bool past) {
  return {Wave({1, 2, 3, 2}, 1),
          Wave({1, 1, 2, 2}, 2),
          Wave({1, 1, 2, 2}, 3),
          mask,
          past ? Wave({1, 1, 1, 2}, 5) : Tensor(),
          past ? Wave({1, 1, 1, 2}, 6) : Tensor()};
}

const int64_t kOn = 1;

void ExpectOutput(const Case& c, const std::vector<double>& expected) {
  Program p(c);
  const Tensor y = p.Run(p.outputs[0], p.feeds);
  ASSERT_EQ(y.elements(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(y.as<double>()[i], expected[i], 1e-6) << "element " << i;
}

TEST(Attention, MatchesTheReference) {
  ExpectOutput(
      {Shared(Wave({3, 3}, 4), true), {{"is_causal", kOn}, {"softcap", 0.5}}},
      {-0.081527, -0.103033, -0.268684, -0.174807, -0.123625, 0.022609, -0.039502, -0.019840, -0.225613, -0.166809, -0.113613, -0.014390});
  // A row that may attend to no key is zero.
  const Tensor mask = Tensor::From<bool>({true, false, true, false, false, false, true, true, true}, {3, 3});
  ExpectOutput({Shared(mask, true)}, {-0.104905, 0.182877, 0, 0, -0.245142, -0.102362, -0.143763, 0.143065, 0, 0, -0.210634, -0.127074});
}

TEST(Attention, AWindowWiderThanAnySequenceHidesNothing) {
  const auto output = [](const Attributes& attributes) {
    Program p(Case{Shared(Tensor(), true), attributes});
    const Tensor y = p.Run(p.outputs[0], p.feeds);
    return std::vector<double>(y.as<double>().begin(), y.as<double>().end());
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(output({{"left_window_size", kMost}, {"right_window_size", kMost}}), output({}));
}

// Not the zero of a query that sees no key.
TEST(Attention, NanIsNoHiddenKey) {
  Case c{Shared(Tensor(), false), {{"is_causal", kOn}}};
  c.operands[0].as<double>()[0] = std::numeric_limits<double>::quiet_NaN();
  Program p(c);
  EXPECT_TRUE(std::isnan(p.Run(p.outputs[0], p.feeds).as<double>()[0]));
}

void ExpectGradients(const Case& c) {
  Program p(c);
  ValueId loss = kNoValue;
  for (int i = 0; i < std::min(c.outputs, 3); ++i) {
    const ValueId output = p.outputs[static_cast<size_t>(i)];
    const ValueId sum = p.b.ReduceSum(p.b.Mul(output, p.b.Constant(Wave(p.b.shape(output), 10 + i))), {}, false);
    loss = loss == kNoValue ? sum : p.b.Add(loss, sum);
  }
  const auto gradients = Differentiate(p.b, loss, p.wanted);
  for (ValueId input : p.wanted) {
    const Tensor gradient = p.Run(gradients.at(input), p.feeds);
    for (size_t i = 0; i < static_cast<size_t>(gradient.elements()); ++i) {
      double difference = 0;
      for (double step : {1e-5, -1e-5}) {
        auto fed = p.feeds;
        fed[input] = p.feeds[input].Clone();
        fed[input].as<double>()[i] += step;
        difference += p.Run(loss, fed).as<double>()[0] / (2 * step);
      }
      EXPECT_NEAR(gradient.as<double>()[i], difference, 1e-8) << "input " << input << " element " << i;
    }
  }
}

TEST(Attention, Gradients) {
  ExpectGradients({Shared(Tensor(), false)});
  ExpectGradients({Shared(Wave({3, 3}, 4), true), {{"is_causal", kOn}, {"softcap", 0.5}}, 3});
  ExpectGradients({Shared(Wave({2, 1, 2}, 4), false), {{"scale", 0.8}}});
  ExpectGradients({Shared(Wave({3, 1}, 4), false)});  // a mask that is too short hides the keys past its end
  ExpectGradients({Shared(Tensor(), true), {{"left_window_size", kOn}, {"right_window_size", int64_t{0}}}});
  const Attributes heads{{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}};
  ExpectGradients({{Wave({2, 3, 8}, 1), Wave({2, 4, 4}, 2), Wave({2, 4, 6}, 3)}, heads});
  ExpectGradients({{Wave({2, 1, 3, 2}, 1), Wave({2, 1, 4, 2}, 2), Wave({2, 1, 4, 2}, 3), Tensor(), Tensor(), Tensor(),
                    Tensor::From<int64_t>({4, 3}, {2})},
                   {{"is_causal", kOn}}});
}

// The training form also returns the log-sum-exp of each query's scores, infinity if the query sees no key.
TEST(Attention, TrainingFormReturnsLogSums) {
  const Tensor blind = Tensor::From<bool>({true, false, true, false, false, false, true, true, true}, {3, 3});
  for (const Tensor& mask : {Tensor(), Wave({3, 3}, 4), blind}) {
    const Attributes attributes{{"softcap", 0.5}, {"scale", 0.8}, {"qk_matmul_output_mode", int64_t{2}}};
    Program p({Shared(mask, true), attributes, 4});
    std::vector<ValueId> operands = p.graph.nodes.back().inputs;
    const std::vector<ValueId> training = p.b.Ops("AttentionTraining", "gradloom", operands, 5, attributes);
    const Tensor scores = p.Run(p.outputs[3], p.feeds), log_sums = p.Run(training[4], p.feeds);
    EXPECT_EQ(log_sums.shape(), (Shape{1, 2, 3}));
    for (size_t i = 0; i < 6; ++i) {
      double sum = 0;
      for (size_t j = 0; j < 3; ++j) sum += std::exp(scores.as<double>()[3 * i + j]);
      const double expected = sum > 0 ? std::log(sum) : std::numeric_limits<double>::infinity(), got = log_sums.as<double>()[i];
      EXPECT_TRUE(got == expected || std::fabs(got - expected) < 1e-12) << got << " instead of " << expected;
    }
    for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(SameBits(p.Run(training[i], p.feeds), p.Run(p.outputs[i], p.feeds))) << "output " << i;
  }
}

// A gradient is given both Y and the log-sum-exps, of the types that the training form returns, or neither.
TEST(Attention, RejectsOtherKeptValues) {
  Program p({Shared(Tensor(), false)});
  std::vector<ValueId> operands = p.graph.nodes.back().inputs;
  operands.resize(7, kNoValue);
  const std::vector<ValueId> kept = p.b.Ops("AttentionTraining", "gradloom", operands, 5, {});
  operands.insert(operands.end(), {p.outputs[0], kNoValue, kNoValue});
  const auto code = [&](const std::vector<ValueId>& more) {
    std::vector<ValueId> all = operands;
    all.insert(all.end(), more.begin(), more.end());
    try {
      p.b.Ops("AttentionGrad", "gradloom", all, 1, {{"wanted", std::vector<int64_t>{0}}});
    } catch (const Error& error) {
      return std::optional(error.code());
    }
    return std::optional<ErrorCode>();
  };
  EXPECT_EQ(code({}), std::nullopt);
  EXPECT_EQ(code({kept[0], kept[4]}), std::nullopt);
  EXPECT_EQ(code({kept[0]}), ErrorCode::kArity);
  EXPECT_EQ(code({kNoValue, kept[4]}), ErrorCode::kArity);
  EXPECT_EQ(code({kept[1], kept[4]}), ErrorCode::kShape);
  EXPECT_EQ(code({kept[0], kept[0]}), ErrorCode::kShape);
}

TEST(Attention, RejectsInvalidOperands) {
  const auto code = [](const Case& c) {
    try {
      Program p(c);
      p.Run(p.outputs[0], p.feeds);
    } catch (const Error& error) {
      return std::optional(error.code());
    }
    return std::optional<ErrorCode>();
  };
  const Tensor q = Wave({1, 3, 2, 4}, 1), k = Wave({1, 2, 2, 4}, 1), flat = Wave({2, 3, 8}, 1);
  EXPECT_EQ(code({{q, k, k}}), ErrorCode::kShape);  // three heads of Q for two of K
  EXPECT_EQ(code({{flat, flat, flat}}), ErrorCode::kAttr);
  EXPECT_EQ(code({{flat, flat, flat}, {{"q_num_heads", int64_t{3}}, {"kv_num_heads", int64_t{2}}}}), ErrorCode::kAttr);
  EXPECT_EQ(code({Shared(Wave({3, 4}, 1), true)}), ErrorCode::kShape);  // a mask of four keys where there are three
}

}  // namespace
}  // namespace gradloom

// A cross entropy that computes its own gradient: the same losses and gradients, in no more memory, wherever the gradient does not depend
// on the loss.
#include "compiler/passes/loss/fuse_loss_gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/graph/verify_graph.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/devices/expose_sums.h"
#include "compiler/passes/gradient/differentiate.h"
#include "compiler/passes/precision/fuse_casts.h"
#include "compiler/passes/precision/lower_precision.h"
#include "compiler/passes/simplify.h"
#include "tests/passes/small_training.h"
#include "tests/seed/test_seed.h"
#include "tests/testing/graphs.h"

namespace gradloom {
namespace {

using B = GraphBuilder;

constexpr int64_t kRows = 6, kClasses = 7;

// Scores and the results of their cross entropy, with ignored rows.
struct Scores {
  ValueId x, w, values, target;
  std::vector<ValueId> sums;
};

// Turns the results into a scalar loss.
using Form = std::function<ValueId(B&, const Scores&)>;

ValueId Mean(B& b, const Scores& s) { return b.Div(s.sums[0], s.sums[1]); }

struct Variant {
  std::string name;
  Form loss;
  bool fused;
};

const Variant kVariants[] = {
    {"mean", Mean, true},
    {"sum", [](B&, const Scores& s) { return s.sums[0]; }, true},
    {"half the mean", [](B& b, const Scores& s) { return b.Scale(Mean(b, s), 0.5); }, true},
    {"times what the model computes", [](B& b, const Scores& s) { return b.Mul(Mean(b, s), b.ReduceSum(s.x, {}, false)); }, true},
    {"times the scores",
     [](B& b, const Scores& s) { return b.Mul(Mean(b, s), b.ReduceSum(b.Op("Sigmoid", {b.Cast(s.values, DType::kFloat32)}), {}, false)); },
     true},
    {"squared", [](B& b, const Scores& s) { return b.Mul(Mean(b, s), Mean(b, s)); }, false},
    {"its logarithm", [](B& b, const Scores& s) { return b.Op("Log", {Mean(b, s)}); }, false},
    {"log-probabilities", [](B& b, const Scores& s) { return b.Add(Mean(b, s), b.ReduceSum(b.Op("Exp", {s.sums[2]}), {}, false)); }, false},
};

// Losses and gradients before and after the pass.
void Check(const Variant& variant, bool weighted, double smoothing, bool narrow, bool counted_first, std::mt19937& random) {
  SCOPED_TRACE(variant.name + (weighted ? ", weighted, " : ", ") + std::to_string(smoothing) + (narrow ? ", 16 bits" : "") +
               (counted_first ? ", counted first" : ""));
  const OnnxTypeRules rules;
  Graph graph;
  B b(graph, rules);
  Scores s;
  s.x = graph.AddValue("x", DType::kFloat32, {kRows, 4}, Role::kInput);
  s.target = graph.AddValue("t", DType::kInt64, {kRows}, Role::kInput);
  graph.inputs = {s.x, s.target};
  s.w = graph.AddData("w", Random(random, {4, kClasses}), Role::kParam);
  s.values = b.Op("MatMul", {s.x, s.w});
  const NodeId first_loss_node = graph.next_node_id();
  Tensor classes = Random(random, {kClasses});
  for (float& weight : classes.as<float>()) weight = std::fabs(weight);
  const ValueId weights = weighted ? graph.AddData("weights", classes, Role::kConst) : kNoValue;
  s.sums = b.Ops("CrossEntropy", kGradloomDomain, {s.values, s.target, weights}, 3,
                 {{"label_smoothing", smoothing}, {"ignore_index", int64_t{2}}});
  const ValueId loss = variant.loss(b, s);
  graph.outputs = {loss};
  if (counted_first) ExposeLossSums(b, /*divided=*/true);
  if (narrow) LowerPrecision(b, DType::kBfloat16, LossNodes(first_loss_node));
  const ValueId scale = graph.AddData("scale", Tensor::Scalar(8.0F), Role::kState);
  const ValueId parameters[] = {s.w};
  for (const auto& [of, gradient] : Differentiate(b, loss, parameters, scale)) graph.outputs.push_back(b.Op("Identity", {gradient}));
  Simplify(graph);
  FuseCasts(b, false);
  const std::map<ValueId, Tensor> feeds = {{s.x, Random(random, {kRows, 4})},
                                           {s.target, Tensor::From<int64_t>({0, 6, 2, 3, 3, 1}, {kRows})}};
  const std::vector<ValueId> wanted = graph.outputs;
  const std::vector<Tensor> before = Interpret(graph, feeds, wanted);
  FuseLossGradient(b);
  VerifyGraph(graph);
  // With scores in 16 bits that something else reads, the loss keeps its float32 form.
  EXPECT_EQ(Count(graph, "CrossEntropyTraining"), variant.fused ? 1 : 0);
  EXPECT_EQ(Count(graph, "CrossEntropyGrad") + Count(graph, "CrossEntropyLogSumGrad"), variant.fused ? 0 : 1);
  EXPECT_EQ(Count(graph, "CrossEntropy") + Count(graph, "CrossEntropyLogSum"), variant.fused ? 0 : 1);
  const std::vector<Tensor> after = Interpret(graph, feeds, wanted);
  for (size_t k = 0; k < wanted.size(); ++k) {
    double largest = 0;
    for (int64_t i = 0; i < before[k].elements(); ++i) largest = std::max(largest, std::fabs(ElementAsDouble(before[k].view(), i)));
    for (int64_t i = 0; i < before[k].elements(); ++i) {
      EXPECT_NEAR(ElementAsDouble(before[k].view(), i), ElementAsDouble(after[k].view(), i), (narrow && k > 0 ? 0.02 : 1e-5) * largest)
          << "output " << k << " element " << i;
    }
  }
}

TEST(FuseLossGradient, KeepsLossesAndGradients) {
  std::mt19937 random(static_cast<unsigned>(TestSeed()));
  for (const Variant& variant : kVariants) {
    for (bool weighted : {false, true}) {
      for (double smoothing : {0.0, 0.1}) {
        for (bool narrow : {false, true}) {
          for (bool counted_first : {false, true}) Check(variant, weighted, smoothing, narrow, counted_first, random);
        }
      }
    }
  }
}

// An evaluation has no gradient.
TEST(FuseLossGradient, WithoutAGradientNoLogProbabilitiesAreWritten) {
  std::mt19937 random(static_cast<unsigned>(TestSeed()));
  const OnnxTypeRules rules;
  for (const bool read : {false, true}) {
    Graph graph;
    B b(graph, rules);
    const ValueId scores = graph.AddValue("scores", DType::kFloat32, {kRows, kClasses}, Role::kInput);
    const ValueId target = graph.AddValue("target", DType::kInt64, {kRows}, Role::kInput);
    graph.inputs = {scores, target};
    const std::vector<ValueId> sums =
        b.Ops("CrossEntropy", kGradloomDomain, {scores, target, kNoValue}, 3, {{"label_smoothing", 0.1}, {"ignore_index", int64_t{2}}});
    graph.outputs = {sums[0], sums[1], scores};
    if (read) graph.outputs.push_back(sums[2]);
    const std::map<ValueId, Tensor> feeds = {{scores, Random(random, {kRows, kClasses})},
                                             {target, Tensor::From<int64_t>({0, 6, 2, 3, 3, 1}, {kRows})}};
    const std::vector<Tensor> before = Interpret(graph, feeds, graph.outputs);
    FuseLossGradient(b);
    VerifyGraph(graph);
    EXPECT_EQ(Count(graph, "CrossEntropyLogSum"), read ? 0 : 1);
    const std::vector<Tensor> after = Interpret(graph, feeds, graph.outputs);
    for (size_t k = 0; k < 2; ++k) EXPECT_NEAR(before[k].as<float>()[0], after[k].as<float>()[0], 1e-5F * before[k].as<float>()[0]);
  }
}

// The gradient of the operator agrees with finite differences of its loss, in float64.
TEST(FuseLossGradient, OperatorAgreesWithFiniteDifferences) {
  std::mt19937 random(static_cast<unsigned>(TestSeed()));
  const OnnxTypeRules rules;
  for (bool weighted : {false, true}) {
    for (double smoothing : {0.0, 0.2}) {
      Graph graph;
      B b(graph, rules);
      const ValueId scores = graph.AddValue("scores", DType::kFloat64, {kRows, kClasses}, Role::kInput);
      const ValueId target = graph.AddValue("target", DType::kInt64, {kRows}, Role::kInput);
      graph.inputs = {scores, target};
      const Tensor classes = Converted(Random(random, {kClasses}).view(), DType::kFloat64);
      const ValueId weights = weighted ? graph.AddData("weights", classes, Role::kConst) : kNoValue;
      const std::vector<ValueId> made =
          b.Ops("CrossEntropyTraining", kGradloomDomain, {scores, target, weights, b.Scalar(0.75, DType::kFloat64)}, 2,
                {{"label_smoothing", smoothing}, {"ignore_index", int64_t{2}}});
      Tensor x = Converted(Random(random, {kRows, kClasses}).view(), DType::kFloat64);
      const Tensor labels = Tensor::From<int64_t>({0, 6, 2, 3, 3, 1}, {kRows});
      const auto run = [&] { return Interpret(graph, {{scores, x}, {target, labels}}, made); };
      const Tensor gradient = run()[1];
      constexpr double kStep = 1e-5;
      for (int64_t i = 0; i < x.elements(); ++i) {
        double& element = x.as<double>()[static_cast<size_t>(i)];
        const double at = element;
        element = at + kStep;
        const double above = ElementAsDouble(run()[0].view(), 0);
        element = at - kStep;
        const double below = ElementAsDouble(run()[0].view(), 0);
        element = at;
        EXPECT_NEAR(0.75 * (above - below) / (2 * kStep), ElementAsDouble(gradient.view(), i), 1e-8) << i;
      }
    }
  }
}

// What another device sends after the loss may depend on it.
TEST(FuseLossGradient, WaitsForNoCollectiveAfterTheLoss) {
  const OnnxTypeRules rules;
  for (bool after : {false, true}) {
    Graph graph;
    B b(graph, rules);
    const ValueId scores = graph.AddValue("scores", DType::kFloat32, {kRows, kClasses}, Role::kInput);
    const ValueId target = graph.AddValue("target", DType::kInt64, {kRows}, Role::kInput);
    const ValueId sent = graph.AddValue("sent", DType::kFloat32, {}, Role::kInput),
                  received = graph.AddValue("received", DType::kFloat32, {}, Role::kActivation);
    graph.inputs = {scores, target, sent};
    const auto receive = [&] {
      graph.AddNode(
          {.op = "AllReduce", .domain = std::string(kGradloomDomain), .inputs = {sent}, .outputs = {received}, .phase = Phase::kBackward});
    };
    if (!after) receive();
    const std::vector<ValueId> sums = b.Ops("CrossEntropy", kGradloomDomain, {scores, target, kNoValue}, 3);
    if (after) receive();
    graph.outputs = {sums[0], b.Own("CrossEntropyGrad", {sums[2], target, kNoValue, received})};
    FuseLossGradient(b);
    EXPECT_EQ(Count(graph, "CrossEntropyTraining"), after ? 0 : 1);
  }
}

// Two layers and a second output, whose loss has another form.
constexpr int64_t kBatch = 7;

Model Net(std::mt19937& random) {
  return ModelOf("net (float[N, 5] x) => (float[N, 9] z, float[N, 3] side) <" + Weights(random, "a", {5, 8}) + ", " +
                 Weights(random, "b", {8, 9}) + ", " + Weights(random, "c", {8, 3}) + R"(> {
    h = MatMul (x, a)
    t = Tanh (h)
    z = MatMul (t, b)
    side = MatMul (t, c)
  })");
}

std::vector<Batch> Batches(std::mt19937& random, int count) {
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) {
    batches.push_back({{"x", Random(random, {kBatch, 5})}, {"target", Classes(random, kBatch, 9)}, {"other", Classes(random, kBatch, 3)}});
  }
  return batches;
}

TEST(FuseLossGradient, TrainsLikeSeparateOperators) {
  std::mt19937 random(static_cast<unsigned>(TestSeed()));
  const Model model = Net(random);
  const std::vector<Batch> batches = Batches(random, 4);
  const LossTerm plain{.type = "cross_entropy", .output = "z", .target = "target"};
  LossTerm sum = plain, smooth = plain, ignoring = plain, weighted = plain,
           side{.type = "cross_entropy", .output = "side", .target = "other"};
  sum.reduction = side.reduction = "sum";
  smooth.label_smoothing = 0.1;
  ignoring.ignore_index = 4;
  weighted.class_weight = {1, 2, 0.5, 1, 1, 0.25, 1, 3, 1};
  side.weight = 0.5;
  const std::vector<LossTerm> losses[] = {{plain}, {sum}, {smooth}, {ignoring}, {weighted}, {weighted, side}};
  for (const auto& terms : losses) {
    for (int devices : {1, 2, 3}) {
      for (const int accumulate : {1, 2}) {
        SCOPED_TRACE(terms[0].ToString() + ", " + std::to_string(devices) + " devices, accumulates " + std::to_string(accumulate));
        CompileOptions options = OptionsFor(terms, devices, {kBatch});
        options.recipe.optimizer.type = "sgd";
        options.recipe.accumulate = accumulate;
        if (accumulate > 1) {
          options.recipe.fetch_gradients = false;
          options.recipe.loss_scale = {.initial = 1024, .dynamic = true, .growth_interval = 2};
        }
        const Plan plan = Compile(model, options);
        EXPECT_GT(Count(plan, "CrossEntropyTraining"), 0);
        EXPECT_EQ(Count(plan, "CrossEntropyGrad"), 0);
        const auto with = Train(model, options, batches);
        ExpectSameBits(with, Train(model, options, batches, 5));
        options.control.disabled = {"fuse_loss_gradient"};
        EXPECT_EQ(Count(Compile(model, options), "CrossEntropyTraining"), 0);
        ExpectNear(Train(model, options, batches), with, 2e-5);
      }
    }
  }
}

TEST(FuseLossGradient, TrainsIn16Bits) {
  std::mt19937 random(static_cast<unsigned>(TestSeed()));
  const Model model = Net(random);
  const std::vector<Batch> batches = Batches(random, 3);
  for (int devices : {1, 2}) {
    for (const bool fetched : {false, true}) {
      CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {kBatch});
      options.recipe.precision = Precision::kBfloat16;
      options.recipe.optimizer.type = "sgd";
      options.recipe.fetch_outputs = fetched;
      EXPECT_GT(Count(Compile(model, options), "CrossEntropyTraining"), 0);
      const auto with = Train(model, options, batches);
      options.control.disabled = {"fuse_loss_gradient"};
      ExpectNear(Train(model, options, batches), with, 0.02);
    }
  }
}

// An evaluation has no gradient.
TEST(FuseLossGradient, EvaluationsKeepNothing) {
  std::mt19937 random(static_cast<unsigned>(TestSeed()));
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {});
  options.entries = {{EntryKind::kEval, kBatch}};
  const Plan plan = Compile(Net(random), options);
  EXPECT_EQ(Count(plan, "CrossEntropyLogSum"), 1);
  EXPECT_EQ(Count(plan, "CrossEntropy") + Count(plan, "CrossEntropyTraining"), 0);
}

// The gradient takes the place of the scores, and is not computed again to save memory.
TEST(FuseLossGradient, NeedsNoMoreMemory) {
  std::mt19937 random(static_cast<unsigned>(TestSeed()));
  const Model model =
      ModelOf("net (float[N, 8] x) => (float[N, 512] z) <" + Weights(random, "a", {8, 16}) + ", " + Weights(random, "b", {16, 512}) + R"(> {
    h = MatMul (x, a)
    t = Tanh (h)
    z = MatMul (t, b)
  })");
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {64});
      options.recipe.fetch_gradients = options.recipe.fetch_outputs = false;
      options.recipe.precision = precision;
      options.recipe.device = device;
      CompileReport with, without;
      Compile(model, options, &with);
      options.control.disabled = {"fuse_loss_gradient"};
      Compile(model, options, &without);
      EXPECT_LE(with.transient_bytes, without.transient_bytes);
      options.control.disabled.clear();
      options.recipe.recompute = RecomputeMode::kFull;
      EXPECT_EQ(Count(Compile(model, options), "CrossEntropyTraining"), 1);
    }
  }
}

}  // namespace
}  // namespace gradloom

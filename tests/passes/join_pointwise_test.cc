// Updates of running statistics that are joined for GPUs compute what they computed before.
#include "compiler/passes/fusion/join_pointwise.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "compiler/graph/verify_graph.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/fusion/fuse_pointwise.h"
#include "tests/testing/graphs.h"

namespace gradloom {
namespace {

using B = GraphBuilder;

// A running statistic and an observation of it.
struct Statistic {
  ValueId running, batch;
};

// A graph with a statistic of each of these shapes. `next` computes the next value of the statistic of that number.
struct Statistics {
  Statistics(const std::vector<Shape>& shapes, const std::function<ValueId(B&, const Statistic&, size_t)>& next) : b(graph, rules) {
    std::mt19937 random(4);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const ValueId running = graph.AddData("r" + std::to_string(i), RandomTensor(random, shapes[i]), Role::kState);
      const ValueId batch = graph.AddValue("b" + std::to_string(i), DType::kFloat32, shapes[i], Role::kInput);
      graph.inputs.push_back(batch);
      feeds.emplace(batch, RandomTensor(random, shapes[i]));
      all.push_back({running, batch});
    }
    for (size_t i = 0; i < all.size(); ++i) {
      made.push_back(next(b, all[i], i));
      graph.value(made.back()).next_of = all[i].running;
    }
  }

  // Joins nodes and returns the number of joined ones. The values must stay the same.
  int Join() {
    const std::vector<Tensor> before = Interpret(graph, feeds, made);
    ProgramPlan plan;
    plan.device = DeviceKind::kCuda;
    JoinPointwise(graph, plan);
    VerifyGraph(graph);
    const std::vector<Tensor> after = Interpret(graph, feeds, made);
    for (size_t k = 0; k < made.size(); ++k)
      EXPECT_EQ(std::memcmp(before[k].data(), after[k].data(), static_cast<size_t>(before[k].bytes())), 0) << graph.value(made[k]).name;
    return Count(graph, "FusedTensors");
  }

  const OnnxTypeRules rules;
  Graph graph;
  B b;
  std::vector<Statistic> all;
  std::vector<ValueId> made;
  std::map<ValueId, Tensor> feeds;
};

ValueId Average(B& b, const Statistic& s) { return b.Add(b.Scale(s.running, 0.9), b.Scale(s.batch, 0.1)); }

std::vector<Shape> Shapes(int count) {
  std::vector<Shape> shapes;
  for (int i = 0; i < count; ++i) shapes.push_back(i % 3 == 0 ? Shape{2, i + 2} : Shape{i + 2});
  return shapes;
}

TEST(JoinPointwise, ChangesNoBit) {
  Statistics s(Shapes(150), [](B& b, const Statistic& of, size_t) { return Average(b, of); });
  FusePointwise(s.graph);
  EXPECT_EQ(s.graph.nodes.size(), 150U);
  EXPECT_EQ(s.Join(), 3);  // 64 each
  EXPECT_EQ(s.graph.nodes.size(), 3U);
}

// Also single operators, and conditions that all elements share. Each program has its own launch.
TEST(JoinPointwise, JoinsEqualPrograms) {
  Statistics s(Shapes(12), [](B& b, const Statistic& of, size_t i) {
    return i % 3 == 0 ? b.Add(of.running, of.batch) : i % 3 == 1 ? b.Mul(of.running, of.batch) : b.Op("Max", {of.running, of.batch});
  });
  EXPECT_EQ(s.Join(), 3);
  Statistics shared(Shapes(6), [](B& b, const Statistic& of, size_t) {
    const ValueId any = b.Op("Greater", {b.ReduceSum(of.batch, {}, false), b.Scalar(0, DType::kFloat32)});
    return b.Where(any, Average(b, of), of.running);
  });
  FusePointwise(shared.graph);
  EXPECT_EQ(shared.Join(), 1);
  EXPECT_EQ(shared.graph.nodes.back().attributes.Int("tensors", 0), 6);
}

// State is written in place only behind the last node that may refuse the batch: here an index that may be out of range.
TEST(JoinPointwise, RunsBehindNodesThatMayRefuse) {
  Statistics s(Shapes(5), [](B& b, const Statistic& of, size_t) { return Average(b, of); });
  FusePointwise(s.graph);
  const ValueId index = s.graph.AddValue("index", DType::kInt64, {1}, Role::kInput);
  s.graph.inputs.push_back(index);
  s.feeds.emplace(index, Tensor::From(std::vector<int64_t>{1}, {1}));
  const ValueId read = s.b.Op("Gather", {s.all[0].batch, index});
  s.graph.outputs = {s.b.Op("Exp", {read})};
  EXPECT_EQ(s.Join(), 1);
  std::vector<std::string> order;
  for (const Node& node : s.graph.nodes) order.push_back(node.op);
  EXPECT_EQ(order, (std::vector<std::string>{"Gather", "FusedTensors", "Exp"}));
}

TEST(JoinPointwise, LeavesOthers) {
  // Large ones.
  Statistics large({{300, 300}, {300, 301}}, [](B& b, const Statistic& of, size_t) { return Average(b, of); });
  FusePointwise(large.graph);
  EXPECT_EQ(large.Join(), 0);
  // A result that is fetched, and one that another node reads.
  Statistics read(Shapes(2), [](B& b, const Statistic& of, size_t) { return b.Add(of.running, of.batch); });
  read.graph.outputs = {read.made[0], read.b.Op("Exp", {read.made[1]})};
  EXPECT_EQ(read.Join(), 0);
  // Operands that are broadcast along an axis.
  Statistics broadcast({{4, 3}, {4, 3}},
                       [](B& b, const Statistic& of, size_t) { return b.Add(of.running, b.ReduceSum(of.batch, {1}, true)); });
  EXPECT_EQ(broadcast.Join(), 0);
  // An input that both read could be overwritten for one while the other reads it.
  ValueId common = kNoValue;
  Statistics together({{7}, {7}}, [&](B& b, const Statistic& of, size_t i) {
    if (i == 0) common = of.batch;
    return b.Add(of.running, common);
  });
  EXPECT_EQ(together.Join(), 0);
  // The old value of another state, which may be overwritten before the joined node runs.
  ValueId first = kNoValue;
  Statistics old({{7}, {7}, {7}}, [&](B& b, const Statistic& of, size_t i) {
    if (i == 0) first = of.running;
    return b.Add(of.running, i == 1 ? first : of.batch);
  });
  EXPECT_EQ(old.Join(), 1);
  EXPECT_EQ(old.graph.nodes.size(), 2U);
}

}  // namespace
}  // namespace gradloom

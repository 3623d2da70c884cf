// Compares path covers, transitive reductions and events with brute force on small random orders.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <set>
#include <vector>

#include "compiler/passes/schedule/assign_streams.h"
#include "compiler/passes/schedule/events.h"
#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/schedule/path_cover.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

using Dependencies = std::vector<std::vector<int>>;

Dependencies RandomOrder(std::mt19937_64& random, size_t n) {
  Dependencies dependencies(n);
  const uint64_t rare = 2 + random() % 5;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (random() % rare == 0) dependencies[i].push_back(static_cast<int>(j));
    }
  }
  return dependencies;
}

// before[i][j]: j must have ended before i begins.
std::vector<std::vector<bool>> Closure(const Dependencies& dependencies) {
  const size_t n = dependencies.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n));
  for (size_t i = 0; i < n; ++i) {
    for (int j : dependencies[i]) {
      before[i][static_cast<size_t>(j)] = true;
      for (size_t k = 0; k < n; ++k) before[i][k] = before[i][k] || before[static_cast<size_t>(j)][k];
    }
  }
  return before;
}

// Compares the reduction with the definition.
void CheckReduction(const Dependencies& dependencies) {
  const auto before = Closure(dependencies);
  const Dependencies reduced = TransitiveReduction(dependencies);
  for (size_t i = 0; i < dependencies.size(); ++i) {
    std::vector<int> wanted;
    for (int j : dependencies[i]) {
      const bool implied = std::any_of(dependencies[i].begin(), dependencies[i].end(),
                                       [&](int k) { return before[static_cast<size_t>(k)][static_cast<size_t>(j)]; });
      if (!implied) wanted.push_back(j);
    }
    ASSERT_EQ(reduced[i], wanted);
  }
}

TEST(TransitiveReduction, IsMinimalAndEquivalent) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 300; ++round) CheckReduction(RandomOrder(random, 1 + random() % 90));
}

// Orders in which another path is far longer than what is searched near a dependency.
TEST(TransitiveReduction, FollowsLongPaths) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 10; ++round) {
    Dependencies dependencies(1200);
    for (size_t i = 1; i < dependencies.size(); ++i) {
      std::set<int> before;
      for (uint64_t k = 0; k < 1 + random() % 3; ++k) {
        const uint64_t most = round % 2 == 0 ? i : std::min<uint64_t>(i, 40);
        before.insert(static_cast<int>(i - 1 - random() % most));
      }
      dependencies[i].assign(before.begin(), before.end());
    }
    CheckReduction(dependencies);
  }
}

// A pair of nodes for each of many dependencies of one node would take hours.
TEST(TransitiveReduction, TakesManyDependenciesOfOneNode) {
  constexpr int kMany = 300'000;
  Dependencies dependencies(kMany + 2);
  for (int i = 1; i <= kMany; ++i) {
    dependencies[static_cast<size_t>(i)] = {0};
    dependencies.back().push_back(i);
  }
  const Dependencies wanted = dependencies;
  dependencies.back().insert(dependencies.back().begin(), 0);
  EXPECT_EQ(TransitiveReduction(dependencies), wanted);
}

// The largest number of nodes that can each have a separate predecessor, by exhaustive search.
size_t LargestMatching(const Dependencies& dependencies, size_t node, std::set<int>& taken) {
  if (node == dependencies.size()) return 0;
  size_t most = LargestMatching(dependencies, node + 1, taken);
  for (int before : dependencies[node]) {
    if (!taken.insert(before).second) continue;
    most = std::max(most, 1 + LargestMatching(dependencies, node + 1, taken));
    taken.erase(before);
  }
  return most;
}

TEST(PathCover, IsMinimal) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 300; ++round) {
    const Dependencies dependencies = RandomOrder(random, 1 + random() % 9);
    const std::vector<int> predecessor = MinimumPathCover(dependencies);
    std::set<int> taken;
    for (size_t i = 0; i < predecessor.size(); ++i) {
      if (predecessor[i] < 0) continue;
      ASSERT_TRUE(std::count(dependencies[i].begin(), dependencies[i].end(), predecessor[i]));
      ASSERT_TRUE(taken.insert(predecessor[i]).second);
    }
    std::set<int> none;
    ASSERT_EQ(taken.size(), LargestMatching(dependencies, 0, none));
  }
}

// A graph of additions with these dependencies.
Graph GraphOf(const Dependencies& dependencies) {
  Graph graph;
  const ValueId x = graph.AddValue("x", DType::kFloat32, {4}, Role::kInput);
  graph.inputs = {x};
  std::vector<ValueId> values;
  for (const std::vector<int>& before : dependencies) {
    Node node{.op = "Sum", .inputs = {x}};
    for (int j : before) node.inputs.push_back(values[static_cast<size_t>(j)]);
    values.push_back(graph.AddValue("v", DType::kFloat32, {4}, Role::kActivation));
    node.outputs = {values.back()};
    graph.AddNode(std::move(node));
  }
  return graph;
}

TEST(Events, RemainingEventsAreNecessaryAndSufficient) {
  std::mt19937_64 random(TestSeed());
  int64_t inserted = 0, kept = 0;
  for (int round = 0; round < 300; ++round) {
    const Dependencies dependencies = RandomOrder(random, 1 + random() % 40);
    const Graph graph = GraphOf(dependencies);
    ASSERT_EQ(DependenciesOf(graph), dependencies);
    ProgramPlan plan;
    plan.streams = 1 + static_cast<int>(random() % 5);
    if (round % 2 == 0) {
      AssignStreams(graph, plan);
    } else {
      for (size_t i = 0; i < dependencies.size(); ++i)
        plan.stream.push_back(static_cast<int>(random() % static_cast<uint64_t>(plan.streams)));
    }
    const auto in_order = [&] {
      const NodeOrder order(graph, plan);
      for (size_t i = 0; i < dependencies.size(); ++i) {
        for (int j : dependencies[i]) {
          if (!order.Before(j, static_cast<int>(i))) return false;
        }
      }
      return true;
    };
    InsertEvents(graph, plan);
    ASSERT_TRUE(in_order());
    inserted += static_cast<int64_t>(plan.waits.size());
    ElideEvents(graph, plan);
    ASSERT_TRUE(in_order());
    kept += static_cast<int64_t>(plan.waits.size());
    const std::vector<Wait> all = plan.waits;
    for (size_t w = 0; w < all.size(); ++w) {
      plan.waits = all;
      plan.waits.erase(plan.waits.begin() + static_cast<int64_t>(w));
      ASSERT_FALSE(in_order()) << "wait " << w << " is not needed";
    }
  }
  std::cout << inserted << " waits inserted, " << kept << " kept" << std::endl;
  EXPECT_LT(kept, inserted);
}

}  // namespace
}  // namespace gradloom

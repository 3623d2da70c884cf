// Compares the executor with the oracle on random training graphs: forward, backward and update.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "compiler/onnx/type_rules.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/gradient/differentiate.h"
#include "compiler/passes/memory/place_state.h"
#include "compiler/passes/memory/plan_memory.h"
#include "compiler/passes/schedule/assign_streams.h"
#include "compiler/passes/schedule/choose_kernels.h"
#include "compiler/passes/schedule/emit_program.h"
#include "compiler/passes/schedule/events.h"
#include "compiler/passes/schedule/order_nodes.h"
#include "compiler/passes/simplify.h"
#include "gtest/gtest.h"
#include "runtime/exec/host_executor.h"
#include "runtime/plan/verify_plan.h"
#include "tests/oracle/random_graph.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

constexpr int kGraphs = 150;
// The factor by which a kernel's order of summation may exceed the float32 rounding error that the oracle shows.
constexpr double kFactor = 64;

uint64_t FirstSeed() { return SeedFromEnvironment().value_or(20261121); }

// Adds p' = p - 0.1 * gradient for every parameter, and makes every gradient a fetch.
void AddUpdates(GraphBuilder& b, const std::map<ValueId, ValueId>& gradients) {
  Graph& graph = b.graph();
  b.set_phase(Phase::kUpdate);
  for (const auto& [parameter, gradient] : gradients) {
    const ValueId next = b.Sub(parameter, b.Scale(gradient, 0.1));
    graph.value(next).next_of = parameter;
    graph.outputs.push_back(gradient);
  }
}

struct Prepared {
  RandomGraph random;
  std::map<ValueId, ValueId> gradients;
};

Prepared Prepare(uint64_t seed, const TypeRules& rules) {
  Prepared made{MakeRandomGraph(seed, 5 + static_cast<int>(seed % 60), rules), {}};
  GraphBuilder b(*made.random.graph, rules);
  made.gradients = Differentiate(b, made.random.loss, made.random.parameters);
  AddUpdates(b, made.gradients);
  return made;
}

// |a - o64| <= factor * max(|o32 - o64|, eps * max|value|), element by element.
void ExpectClose(const TensorView& got, const Tensor& single, const Tensor& reference, const std::string& what) {
  ASSERT_EQ(got.shape, reference.shape()) << what;
  double largest = 0;
  for (int64_t i = 0; i < reference.elements(); ++i) largest = std::max(largest, std::abs(ElementAsDouble(reference.view(), i)));
  for (int64_t i = 0; i < reference.elements(); ++i) {
    const double exact = ElementAsDouble(reference.view(), i);
    const double rounding = std::abs(ElementAsDouble(single.view(), i) - exact);
    const double bound = kFactor * std::max(rounding, static_cast<double>(std::numeric_limits<float>::epsilon()) * largest);
    ASSERT_LE(std::abs(ElementAsDouble(got, i) - exact), bound) << what << " element " << i;
  }
}

void RunOne(uint64_t seed, int threads, int streams, bool simplify) {
  const OnnxTypeRules rules;
  Prepared made = Prepare(seed, rules);
  Graph& graph = *made.random.graph;

  std::vector<ValueId> wanted = graph.outputs;
  std::vector<ValueId> next_values;
  for (const Value& value : graph.values()) {
    if (value.next_of != kNoValue) wanted.push_back(value.id);
  }
  const std::vector<Tensor> single = Interpret(graph, made.random.feeds, wanted);
  std::map<ValueId, Tensor> feeds64;
  for (const auto& [id, tensor] : made.random.feeds) feeds64.emplace(id, Converted(tensor.view(), DType::kFloat64));
  const std::vector<Tensor> reference = Interpret(*InDouble(graph), feeds64, wanted);

  if (simplify) Simplify(graph);
  OrderNodes(graph, DeviceKind::kCpu, 1);
  auto plan = std::make_shared<Plan>();
  ProgramPlan scheduled;
  ChooseStreams(graph, streams, threads, scheduled);
  ChooseKernels(graph, scheduled);
  AssignStreams(graph, scheduled);
  InsertEvents(graph, scheduled);
  const size_t needed = scheduled.waits.size();
  if (seed % 4 != 0) ElideEvents(graph, scheduled);
  EXPECT_LE(scheduled.waits.size(), needed);
  PlaceStateAndConstants(graph, scheduled, {}, *plan);
  PlanMemory(graph, *plan, scheduled);
  EXPECT_GE(scheduled.transient_bytes, scheduled.live_bytes_bound);
  std::vector<int> buffers;
  plan->programs.push_back(EmitProgram(graph, scheduled, buffers));
  plan->targets.push_back({DeviceKind::kCpu, "any", threads});
  Entry entry{.kind = EntryKind::kStep, .batch = 1};
  for (ValueId id : FeedsOf(graph)) entry.feeds.push_back({graph.value(id).name, graph.value(id).dtype, graph.value(id).shape});
  for (size_t i = 0; i < buffers.size(); ++i) entry.fetches.push_back({graph.value(graph.outputs[i]).name, buffers[i]});
  entry.ranks.push_back({.program = 0, .shard_start = 0, .shard_length = 1});
  plan->entries.push_back(entry);
  VerifyOrThrow(*plan);

  HostExecutor executor(plan);
  std::vector<TensorView> bound;
  for (ValueId id : FeedsOf(graph)) bound.push_back(made.random.feeds.at(id).view());
  if (streams > 1) executor.SetChaos(seed);
  executor.Run(0, bound, {});
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    ExpectClose(executor.Fetched(0, static_cast<int>(i)), single[i], reference[i], "output " + graph.value(graph.outputs[i]).name);
  }
  for (size_t i = graph.outputs.size(); i < wanted.size(); ++i) {
    const std::string& name = graph.value(graph.value(wanted[i]).next_of).name;
    const Tensor updated = executor.state().Get(plan->state[static_cast<size_t>(plan->FindState(name))]);
    ExpectClose(updated.view(), single[i], reference[i], "updated " + name);
  }
}

struct Division {
  int threads, streams;
};

class ExecutorAgainstOracle : public testing::TestWithParam<Division> {};

TEST_P(ExecutorAgainstOracle, MatchesOnRandomGraphs) {
  const uint64_t first = FirstSeed();
  std::printf("seeds %llu to %llu (GRADLOOM_SEED sets the first)\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + kGraphs - 1));
  for (int i = 0; i < kGraphs; ++i) {
    SCOPED_TRACE("seed " + std::to_string(first + static_cast<uint64_t>(i)));
    RunOne(first + static_cast<uint64_t>(i), GetParam().threads, GetParam().streams, /*simplify=*/i % 2 == 0);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ExecutorAgainstOracle, testing::Values(Division{1, 1}, Division{2, 1}, Division{1, 2}, Division{1, 4}),
                         [](const auto& info) {
                           return std::to_string(info.param.threads) + "ThreadsOn" + std::to_string(info.param.streams) + "Streams";
                         });

}  // namespace
}  // namespace gradloom

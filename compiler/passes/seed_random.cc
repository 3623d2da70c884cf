#include "compiler/passes/seed_random.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "compiler/passes/region_bodies.h"
#include "compiler/passes/schedule/program_plan.h"
#include "compiler/passes/update/step_params.h"
#include "runtime/base/philox.h"

namespace gradloom {
namespace {

bool Draws(const Node& node) {
  if (!node.domain.empty()) return false;
  for (const char* op : {"RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Bernoulli", "Multinomial"}) {
    if (node.op == op) return true;
  }
  return false;
}

}  // namespace

int64_t OriginKey(const std::string& origin) {
  // FNV-1a, because std::hash may differ between machines.
  uint64_t hash = 0xCBF29CE484222325;
  for (unsigned char c : origin) hash = (hash ^ c) * 0x100000001B3;
  return static_cast<int64_t>(hash >> 1);
}

namespace {

bool AnyDraws(Graph& graph, const NodePredicate& draws) {
  bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(), draws);
  ForEachBody(graph, [&](Graph& body) { any = any || std::any_of(body.nodes.begin(), body.nodes.end(), draws); });
  return any;
}

// Returns how much each iteration of a loop at nesting depth `loops` adds to the seed, chosen so that nested iterations get different
// seeds.
int64_t SeedStep(int loops) {
  constexpr int kBits = 20;
  return int64_t{1} << std::max(2 * kBits - loops * kBits, 0);
}

bool IsInput(const Graph& body, ValueId id) { return std::find(body.inputs.begin(), body.inputs.end(), id) != body.inputs.end(); }

ValueId AddInput(Graph& body, std::string_view name, size_t place) {
  // Reuses a value of that name that is not an input.
  ValueId id = body.Find(name);
  if (id == kNoValue) id = body.AddValue(std::string(name), DType::kInt64, Shape{}, Role::kInput);
  body.inputs.insert(body.inputs.begin() + static_cast<std::ptrdiff_t>(place), id);
  return id;
}

void Seed(GraphBuilder& builder, int loops) {
  Graph& graph = builder.graph();
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!graph.nodes[i].regions.empty()) {
      Node node = std::move(graph.nodes[i]);
      SeedBodies(builder, node, Draws, loops);
      for (Region& region : node.regions) {
        GraphBuilder inner(*region.body, builder.rules());
        Seed(inner, loops + (node.op == "Loop" ? 1 : 0));
      }
      graph.nodes[i] = std::move(node);
    }
    if (!Draws(graph.nodes[i])) continue;
    // Before taking the reference, since StepParam may add values; it adds no nodes.
    const ValueId seed = StepParam(graph, kStepSeed), batch = StepParam(graph, kStepBatch);
    Node& node = graph.nodes[i];
    const Value& output = graph.value(node.outputs[0]);
    int64_t key = OriginKey(node.origin.empty() ? output.name : node.origin);
    if (node.attributes.has("seed")) key ^= static_cast<int64_t>(Mix64(std::bit_cast<uint64_t>(node.attributes.Float("seed", 0))) >> 1);
    node.attributes.erase("seed");
    node.attributes.set("origin", key);
    node.attributes.set("dtype", static_cast<int64_t>(output.dtype));
    if (node.op.starts_with("Random")) {
      node.op = node.op.starts_with("RandomUniform") ? "RandomUniform" : "RandomNormal";
      node.attributes.set("shape", output.shape.dims());
      node.inputs.clear();
    }
    node.domain = kGradloomDomain;
    node.inputs.insert(node.inputs.end(), {seed, batch});
  }
}

}  // namespace

void SeedBodies(GraphBuilder& builder, Node& node, const NodePredicate& draws, int loops) {
  const bool any = std::any_of(node.regions.begin(), node.regions.end(), [&](Region& region) { return AnyDraws(*region.body, draws); });
  if (!any) return;
  const Graph& first = *node.regions[0].body;
  Graph& graph = builder.graph();
  const ValueId seed = StepParam(graph, kStepSeed), batch = StepParam(graph, kStepBatch);
  if (!IsInput(first, first.Find(kStepBatch))) {
    node.inputs.push_back(batch);
    for (Region& region : node.regions) AddInput(*region.body, kStepBatch, region.body->inputs.size());
  }
  if (IsInput(first, first.Find(kStepSeed))) return;
  const auto carried = static_cast<size_t>(node.attributes.Int("carried", 0));
  node.inputs.insert(node.inputs.begin() + 1 + static_cast<std::ptrdiff_t>(carried), seed);
  for (Region& region : node.regions) {
    const ValueId inner = AddInput(*region.body, kStepSeed, carried);
    if (node.op != "Loop") continue;
    GraphBuilder b(*region.body, builder.rules());
    b.set_origin(node.origin);
    region.body->outputs.push_back(b.Add(inner, b.Constant(Tensor::Scalar<int64_t>(SeedStep(loops)))));
  }
  if (node.op != "Loop") return;
  node.attributes.set("carried", static_cast<int64_t>(carried) + 1);
  node.outputs.push_back(graph.AddValue(node.origin + "/seed", DType::kInt64, Shape{}, Role::kActivation));
}

void SeedRandom(GraphBuilder& builder) { Seed(builder, 0); }

}  // namespace gradloom

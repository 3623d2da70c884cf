#include "compiler/passes/seed_random.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "compiler/passes/program_plan.h"
#include "compiler/passes/region_bodies.h"
#include "compiler/passes/step_params.h"
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
  // FNV-1a: std::hash may differ between machines.
  uint64_t hash = 0xCBF29CE484222325;
  for (unsigned char c : origin) hash = (hash ^ c) * 0x100000001B3;
  return static_cast<int64_t>(hash >> 1);
}

void SeedRandom(GraphBuilder& builder) {
  Graph& graph = builder.graph();
  ForEachBody(graph, [](const Graph& body) {
    const auto drawing = std::find_if(body.nodes.begin(), body.nodes.end(), Draws);
    if (drawing == body.nodes.end()) return;
    throw Error(ErrorCode::kUnsupported, "random numbers are not supported in a branch or a loop that is decided during a step",
                Describe(*drawing));
  });
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!Draws(graph.nodes[i])) continue;
    // Read before the reference: the step parameters are new values, not nodes.
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

}  // namespace gradloom

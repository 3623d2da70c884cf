// TensorScatter, and gradloom.TensorGather(cache, places) {axis, mode, shape}, which reads the elements that TensorScatter would write.
#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"

namespace gradloom {
namespace {

Attributes Placing(const GradientContext& c) {
  return {{"axis", c.attributes().Int("axis", -2)}, {"mode", c.attributes().String("mode", "linear")}};
}

void ScatterGradient(GradientContext& c) {
  GraphBuilder& b = c.b;
  const ValueType update = b.graph().type(c.in(1));
  if (c.needs(0)) c.set(0, b.Op("TensorScatter", {c.grad(0), b.Zeros({b.dtype(c.grad(0)), update.shape}), c.in(2)}, Placing(c)));
  if (!c.needs(1)) return;
  Attributes attributes = Placing(c);
  attributes.set("shape", update.shape.dims());
  c.set(1, b.Own("TensorGather", {c.grad(0), c.in(2)}, attributes));
}

void GatherGradient(GradientContext& c) {
  if (!c.needs(0)) return;
  c.set(0, c.b.Op("TensorScatter", {c.b.Zeros(c.b.graph().type(c.in(0))), c.grad(0), c.in(1)}, Placing(c)));
}

const Op kOps[] = {
    {.name = "TensorScatter", .domain = "", .since_version = 24, .gradient = ScatterGradient, .samples = "000>0"},
    {.name = "TensorGather", .domain = kGradloomDomain, .gradient = GatherGradient, .infer = InferFromShapeAttribute<0>, .samples = "00>0"},
};

}  // namespace

std::span<const Op> TensorScatterOps() { return kOps; }

}  // namespace gradloom

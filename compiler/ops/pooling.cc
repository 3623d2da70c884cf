// Pooling, and its gradients as operators of our own. All have the attributes of the pooling, with explicit pads:
//
//   gradloom.MaxPoolGrad(x, dy) -> dx: the gradient goes to the first maximum of each window, which is searched again, so that no index
//     tensor is kept from the forward pass
//   gradloom.AveragePoolGrad(dy) {shape, count_include_pad} -> dx of `shape`
//   gradloom.LpPoolGrad(x, y, dy) {p} -> dx
#include <algorithm>

#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"
#include "runtime/base/windows.h"

namespace gradloom {
namespace {

Attributes GeometryOf(GradientContext& c) {
  return WindowsOf(c.attributes(), c.b.shape(c.in(0)), c.attributes().Ints("kernel_shape")).ToAttributes();
}

void MaxPoolGradient(GradientContext& c) {
  if (c.needs(0) && c.grad(0) != kNoValue) c.set(0, c.b.Own("MaxPoolGrad", {c.in(0), c.grad(0)}, GeometryOf(c)));
}

void AveragePoolGradient(GradientContext& c) {
  Attributes attributes = GeometryOf(c);
  attributes.set("count_include_pad", c.attributes().Int("count_include_pad", 0));
  attributes.set("ceil_mode", c.attributes().Int("ceil_mode", 0));
  attributes.set("shape", c.b.shape(c.in(0)).dims());
  if (c.needs(0)) c.set(0, c.b.Own("AveragePoolGrad", {c.grad(0)}, std::move(attributes)));
}

// It is linear, and its gradient is the pooling itself.
void AveragePoolGradGradient(GradientContext& c) {
  Attributes attributes = c.attributes();
  attributes.erase("shape");
  if (c.needs(0)) c.set(0, c.b.Op("AveragePool", {c.grad(0)}, std::move(attributes)));
}

void LpPoolGradient(GradientContext& c) {
  Attributes attributes = GeometryOf(c);
  attributes.set("p", c.attributes().Int("p", 2));
  if (c.needs(0)) c.set(0, c.b.Own("LpPoolGrad", {c.in(0), c.out(0), c.grad(0)}, std::move(attributes)));
}

void GlobalAveragePoolGradient(GradientContext& c) {
  const Shape x = c.b.shape(c.in(0));
  const double points = static_cast<double>(x.elements()) / static_cast<double>(std::max<int64_t>(x[0] * x[1], 1));
  if (c.needs(0)) c.set(0, c.b.Expand(DividedByCount(c.b, c.grad(0), points), x));
}

// Returns the attributes of a pooling with a single window over the whole plane.
Attributes WholePlane(const Shape& x) { return {{"kernel_shape", std::vector<int64_t>(x.begin() + 2, x.end())}}; }

void GlobalMaxPoolGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Own("MaxPoolGrad", {c.in(0), c.grad(0)}, WholePlane(c.b.shape(c.in(0)))));
}

void GlobalLpPoolGradient(GradientContext& c) {
  Attributes attributes = WholePlane(c.b.shape(c.in(0)));
  attributes.set("p", c.attributes().Int("p", 2));
  if (c.needs(0)) c.set(0, c.b.Own("LpPoolGrad", {c.in(0), c.out(0), c.grad(0)}, std::move(attributes)));
}

// The indices of the maxima count through all samples.
void ShardMaxPool(ShardQuery& query) {
  ShardSamples(query, "0>0");
  if (query.num_outputs() < 2 || !query.outputs()[1].split()) return;
  Shard places = query.outputs()[1];
  places.steps = {query.shape(0).elements() / query.batch()};
  query.set(1, places);
}

const Op kOps[] = {
    {.name = "MaxPool", .domain = "", .gradient = MaxPoolGradient, .shard = ShardMaxPool},
    {.name = "MaxPoolGrad", .domain = kGradloomDomain, .infer = InferLikeFirst, .samples = "0>0"},
    {.name = "AveragePool", .domain = "", .gradient = AveragePoolGradient, .samples = "0>0"},
    {.name = "AveragePoolGrad",
     .domain = kGradloomDomain,
     .gradient = AveragePoolGradGradient,
     .infer = InferFromShapeAttribute<0>,
     .samples = "0>0"},
    {.name = "LpPool", .domain = "", .gradient = LpPoolGradient, .samples = "0>0"},
    {.name = "LpPoolGrad", .domain = kGradloomDomain, .infer = InferLikeFirst, .samples = "0>0"},
    {.name = "GlobalAveragePool", .domain = "", .gradient = GlobalAveragePoolGradient, .samples = "0>0"},
    {.name = "GlobalMaxPool", .domain = "", .gradient = GlobalMaxPoolGradient, .samples = "0>0"},
    {.name = "GlobalLpPool", .domain = "", .gradient = GlobalLpPoolGradient, .samples = "0>0"},
};

}  // namespace

std::span<const Op> PoolingOps() { return kOps; }

}  // namespace gradloom

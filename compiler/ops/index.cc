// Elements by index.
//
//   gradloom.GatherGrad(indices, g) {axis, shape} -> rows of g summed into the rows of `shape` they came from
//   gradloom.GatherNDGrad(indices, g) {batch_dims, shape} -> the same for index tuples
// Both sum in the order of the indices, so that every run gives the same bits.
#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"

namespace gradloom {
namespace {

using B = GraphBuilder;

void Gather(GradientContext& c) {
  if (!c.needs(0)) return;
  c.set(0, c.b.Own("GatherGrad", {c.in(1), c.grad(0)}, {{"axis", c.attributes().Int("axis", 0)}, {"shape", c.b.shape(c.in(0)).dims()}}));
}

void GatherGradGradient(GradientContext& c) {
  if (c.needs(1)) c.set(1, c.b.Op("Gather", {c.grad(0), c.in(0)}, {{"axis", c.attributes().Int("axis", 0)}}));
}

void GatherNd(GradientContext& c) {
  if (!c.needs(0)) return;
  c.set(0, c.b.Own("GatherNDGrad", {c.in(1), c.grad(0)},
                   {{"batch_dims", c.attributes().Int("batch_dims", 0)}, {"shape", c.b.shape(c.in(0)).dims()}}));
}

void GatherNdGradGradient(GradientContext& c) {
  if (c.needs(1)) c.set(1, c.b.Op("GatherND", {c.grad(0), c.in(0)}, {{"batch_dims", c.attributes().Int("batch_dims", 0)}}));
}

void GatherElements(GradientContext& c) {
  if (!c.needs(0)) return;
  const ValueId zeros = c.b.Zeros(c.b.graph().type(c.in(0)));
  c.set(0, c.b.Op("ScatterElements", {zeros, c.in(1), c.grad(0)},
                  {{"axis", c.attributes().Int("axis", 0)}, {"reduction", std::string("add")}}));
}

// ScatterElements and ScatterND alike: how to scatter into a tensor by the node's indices, and to gather.
struct Scattering {
  GradientContext& c;
  B& b = c.b;
  bool nd = c.node().op == "ScatterND";

  ValueId Scatter(ValueId data, ValueId updates, const std::string& reduction) const {
    Attributes attributes{{"reduction", reduction}};
    if (!nd) attributes.set("axis", c.attributes().Int("axis", 0));
    return b.Op(c.node().op, {data, c.in(1), updates}, attributes);
  }
  ValueId Gather(ValueId data) const {
    if (nd) return b.Op("GatherND", {data, c.in(1)});
    return b.Op("GatherElements", {data, c.in(1)}, {{"axis", c.attributes().Int("axis", 0)}});
  }
  ValueId ZerosLike(ValueId like) const { return b.Zeros(b.graph().type(like)); }
  ValueId Equal(ValueId x, ValueId y) const { return b.Op("Equal", {x, y}); }
  ValueId IsZero(ValueId x) const { return Equal(x, ScalarLike(b, 0.0, x)); }
  ValueId One() const { return ScalarLike(b, 1.0, c.grad(0)); }
  ValueId Count(ValueId truth) const { return b.Cast(truth, b.dtype(c.grad(0))); }
};

// The product of the other factors of an element. A factor is divided out of the result unless it is the
// only zero of its element: then the product is made again with 1 in its place.
void ScatterMul(const Scattering& s) {
  GradientContext& c = s.c;
  B& b = s.b;
  const ValueId data = c.in(0), updates = c.in(2), g = c.grad(0);
  if (c.needs(0)) {
    const ValueId others = s.Scatter(b.Fill(b.graph().type(data), 1.0), updates, "mul");
    c.set(0, b.Mul(g, others));
  }
  if (!c.needs(2)) return;
  const ValueId zero = s.IsZero(updates);
  const ValueId zeros = s.Gather(s.Scatter(s.ZerosLike(g), s.Count(zero), "add"));
  const ValueId only = b.Op("And", {zero, s.Equal(zeros, s.One())});
  const ValueId without = s.Scatter(data, b.Where(only, s.One(), updates), "mul");
  const ValueId divided = b.Div(s.Gather(b.Mul(g, c.out(0))), b.Where(zero, s.One(), updates));
  c.set(2, b.Where(only, s.Gather(b.Mul(g, without)), divided));
}

// Equal shares to all that equal the extreme, the datum among them.
void ScatterExtreme(const Scattering& s) {
  GradientContext& c = s.c;
  B& b = s.b;
  const ValueId data_wins = s.Count(s.Equal(c.in(0), c.out(0)));
  const ValueId update_wins = s.Count(s.Equal(c.in(2), s.Gather(c.out(0))));
  const ValueId winners = s.Scatter(data_wins, update_wins, "add");
  const ValueId share = b.Div(c.grad(0), winners);
  if (c.needs(0)) c.set(0, b.Mul(data_wins, share));
  if (c.needs(2)) c.set(2, b.Mul(update_wins, s.Gather(share)));
}

void Scatter(GradientContext& c) {
  const Scattering s{c};
  const std::string reduction = c.attributes().String("reduction", "none");
  if (reduction == "mul") return ScatterMul(s);
  if (reduction == "max" || reduction == "min") return ScatterExtreme(s);
  const ValueId g = c.grad(0);
  if (c.needs(0)) c.set(0, reduction == "add" ? g : s.Scatter(g, s.ZerosLike(c.in(2)), "none"));
  if (c.needs(2)) c.set(2, s.Gather(g));
}

void TopK(GradientContext& c) {
  if (!c.needs(0)) return;
  B& b = c.b;
  ValueId indices = c.out(1);
  if (indices == kNoValue) indices = b.Ops("TopK", "", c.node().inputs, 2, c.attributes())[1];
  c.set(0, b.Op("ScatterElements", {b.Zeros(b.graph().type(c.in(0))), indices, c.grad(0)}, {{"axis", c.attributes().Int("axis", -1)}}));
}

const Op kOps[] = {
    {.name = "Gather", .domain = "", .since_version = 13, .gradient = Gather},
    {.name = "GatherElements", .domain = "", .since_version = 13, .gradient = GatherElements},
    {.name = "GatherGrad", .domain = kGradloomDomain, .gradient = GatherGradGradient, .infer = InferFromShapeAttribute<1>},
    {.name = "GatherND", .domain = "", .since_version = 13, .gradient = GatherNd},
    {.name = "GatherNDGrad", .domain = kGradloomDomain, .gradient = GatherNdGradGradient, .infer = InferFromShapeAttribute<1>},
    {.name = "OneHot", .domain = "", .since_version = 28, .traits = kNoGradient},
    {.name = "ScatterElements", .domain = "", .since_version = 18, .gradient = Scatter},
    {.name = "ScatterND", .domain = "", .since_version = 18, .gradient = Scatter},
    {.name = "TopK", .domain = "", .since_version = 24, .gradient = TopK},
};

}  // namespace

std::span<const Op> IndexOps() { return kOps; }

}  // namespace gradloom

// Views, joins, splits and other moves of whole elements.
//
//   gradloom.SliceGrad(g, starts, ends, axes, steps) {shape} -> g at the places that the Slice read, else 0
//   gradloom.PadGrad(g, pads, axes) {mode, shape} -> for each element the sum of g where Pad put it
#include <algorithm>

#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"

namespace gradloom {
namespace {

using B = GraphBuilder;

void Transpose(GradientContext& c) {
  if (!c.needs(0)) return;
  const int rank = c.b.shape(c.in(0)).rank();
  std::vector<int64_t> perm = c.attributes().Ints("perm"), inverse(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t from = perm.empty() ? rank - 1 - i : perm[static_cast<size_t>(i)];
    inverse[static_cast<size_t>(NormalAxis(from, rank).value())] = i;
  }
  c.set(0, c.b.Transpose(c.grad(0), inverse));
}

void Expand(GradientContext& c) {
  if (c.needs(0)) c.set_reduced(0, c.grad(0));
}

// One Split for all operands; a Slice where a single one wants its gradient.
void Concat(GradientContext& c) {
  B& b = c.b;
  const int64_t axis = NormalAxis(c.attributes().Int("axis", 0), b.shape(c.out(0)).rank()).value();
  std::vector<int64_t> sizes;
  int wanted = 0, last = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    sizes.push_back(b.shape(c.in(i))[static_cast<int>(axis)]);
    if (!c.needs(i)) continue;
    ++wanted;
    last = i;
  }
  if (wanted == 1) {
    int64_t start = 0;
    for (int i = 0; i < last; ++i) start += sizes[static_cast<size_t>(i)];
    const int64_t end = start + sizes[static_cast<size_t>(last)];
    return c.set(last, b.Op("Slice", {c.grad(0), b.Ints({start}), b.Ints({end}), b.Ints({axis})}));
  }
  const std::vector<ValueId> parts = b.Ops("Split", "", {c.grad(0), b.Ints(sizes)}, c.num_inputs(), {{"axis", axis}});
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.needs(i)) c.set(i, parts[static_cast<size_t>(i)]);
  }
}

void Split(GradientContext& c) {
  if (!c.needs(0)) return;
  B& b = c.b;
  const int rank = b.shape(c.in(0)).rank();
  const int axis = NormalAxis(c.attributes().Int("axis", 0), rank).value();
  // An output that nobody wanted has no value; its extent follows from the operand or the attribute.
  const int64_t extent = b.shape(c.in(0))[axis], count = c.attributes().Int("num_outputs", c.num_outputs());
  const std::vector<int64_t> sizes = ConstantInts(c, 1);
  std::vector<ValueId> parts;
  for (int i = 0; i < c.num_outputs(); ++i) {
    ValueType part{b.dtype(c.in(0)), b.shape(c.in(0))};
    const int64_t even = (extent + count - 1) / std::max<int64_t>(count, 1);
    part.shape[axis] = sizes.empty() ? std::clamp<int64_t>(extent - even * i, 0, even) : sizes.at(static_cast<size_t>(i));
    parts.push_back(c.grad(i) != kNoValue ? c.grad(i) : b.Zeros(part));
  }
  c.set(0, b.Op("Concat", parts, {{"axis", static_cast<int64_t>(axis)}}));
}

void Slice(GradientContext& c) {
  if (!c.needs(0)) return;
  c.set(0, c.b.Own("SliceGrad", {c.grad(0), c.in(1), c.in(2), c.in(3), c.in(4)}, {{"shape", c.b.shape(c.in(0)).dims()}}));
}

void SliceGradGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Op("Slice", {c.grad(0), c.in(1), c.in(2), c.in(3), c.in(4)}));
}

// A constant border is cut off by the opposite padding, and what was cut off comes back as zeros.
ValueId PadBack(GradientContext& c) {
  B& b = c.b;
  const std::string mode = c.attributes().String("mode", "constant");
  if (mode != "constant") {
    return b.Own("PadGrad", {c.grad(0), c.in(1), c.in(3)}, {{"mode", mode}, {"shape", b.shape(c.in(0)).dims()}});
  }
  std::vector<int64_t> pads = ConstantInts(c, 1);
  for (int64_t& pad : pads) pad = -pad;
  std::vector<ValueId> operands{c.grad(0), b.Ints(pads)};
  if (c.in(3) != kNoValue) operands.insert(operands.end(), {kNoValue, c.in(3)});
  return b.Op("Pad", operands);
}

void Pad(GradientContext& c) {
  if (!c.needs(0) && !c.needs(2)) return;
  const ValueId inner = PadBack(c);
  if (c.needs(0)) c.set(0, inner);
  // The border's share is the rest of the sum.
  if (c.needs(2)) {
    const ValueId border = c.b.Sub(c.b.ReduceSum(c.grad(0), {}, false), c.b.ReduceSum(inner, {}, false));
    c.set(2, c.b.Reshape(border, Shape(c.b.shape(c.in(2)))));
  }
}

void PadGradGradient(GradientContext& c) {
  if (!c.needs(0)) return;
  std::vector<ValueId> operands{c.grad(0), c.in(1)};
  if (c.in(2) != kNoValue) operands.insert(operands.end(), {kNoValue, c.in(2)});
  c.set(0, c.b.Op("Pad", operands, {{"mode", c.attributes().String("mode", "constant")}}));
}

void Tile(GradientContext& c) {
  if (!c.needs(0)) return;
  const Shape from = c.b.shape(c.in(0)), to = c.b.shape(c.out(0));
  const std::vector<int64_t> repeats = ConstantInts(c, 1);
  Shape split;
  std::vector<int64_t> axes;
  for (int axis = 0; axis < from.rank(); ++axis) {
    axes.push_back(split.rank());
    split.push_back(repeats.at(static_cast<size_t>(axis)));
    split.push_back(from[axis]);
  }
  if (axes.empty()) return c.set(0, c.grad(0));
  c.set(0, c.b.ReduceSum(c.b.Reshape(c.grad(0), split), axes, /*keepdims=*/false));
}

template <bool kToSpace>
void Blocks(GradientContext& c) {
  if (!c.needs(0)) return;
  c.set(0, c.b.Op(kToSpace ? "SpaceToDepth" : "DepthToSpace", {c.grad(0)},
                  {{"blocksize", c.attributes().Int("blocksize", 1)}, {"mode", c.attributes().String("mode", "DCR")}}));
}

// Operators that are their own adjoint in input 0.
void SelfAdjoint(GradientContext& c) {
  if (!c.needs(0)) return;
  std::vector<ValueId> operands = c.node().inputs;
  operands[0] = c.grad(0);
  c.set(0, c.b.Op(c.node().op, operands, c.attributes()));
}

constexpr Op View(std::string_view name) {
  return {.name = name, .domain = "", .since_version = 25, .traits = kView, .gradient = ReshapeGradient};
}

constexpr Op Made(std::string_view name, int version) {
  return {.name = name, .domain = "", .since_version = version, .traits = kNoGradient};
}

const Op kOps[] = {
    {.name = "Concat", .domain = "", .since_version = 13, .gradient = Concat},
    Made("Constant", 25),
    Made("ConstantOfShape", 25),
    {.name = "DepthToSpace", .domain = "", .since_version = 28, .gradient = Blocks<true>},
    {.name = "Expand", .domain = "", .since_version = 13, .gradient = Expand},
    Made("EyeLike", 22),
    View("Flatten"),
    {.name = "Pad", .domain = "", .since_version = 25, .gradient = Pad},
    {.name = "PadGrad", .domain = kGradloomDomain, .gradient = PadGradGradient, .infer = InferFromShapeAttribute<0>},
    View("Reshape"),
    {.name = "ReverseSequence", .domain = "", .since_version = 28, .gradient = SelfAdjoint},
    Made("Shape", 25),
    Made("Size", 25),
    {.name = "Slice", .domain = "", .since_version = 13, .gradient = Slice},
    {.name = "SliceGrad", .domain = kGradloomDomain, .gradient = SliceGradGradient, .infer = InferFromShapeAttribute<0>},
    {.name = "SpaceToDepth", .domain = "", .since_version = 28, .gradient = Blocks<false>},
    {.name = "Split", .domain = "", .since_version = 18, .gradient = Split},
    View("Squeeze"),
    {.name = "Tile", .domain = "", .since_version = 13, .gradient = Tile},
    {.name = "Transpose", .domain = "", .since_version = 25, .gradient = Transpose},
    {.name = "Trilu", .domain = "", .since_version = 14, .gradient = SelfAdjoint},
    View("Unsqueeze"),
};

}  // namespace

std::span<const Op> ShapeOps() { return kOps; }

}  // namespace gradloom

// Views, concatenations, splits and other data movement.
//
//   gradloom.SliceGrad(g, starts, ends, axes, steps) {shape} -> g at the positions that the Slice read, 0 elsewhere
//   gradloom.PadGrad(g, pads, axes) {mode, shape} -> for each element, the sum of g over the positions to which Pad copied it
#include <algorithm>

#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"

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

// One Split computes all gradients, or a Slice if only one operand needs it.
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
  // An unused output has no value; its extent follows from the operand or the attribute.
  const int64_t extent = b.shape(c.in(0))[axis], count = c.attributes().Int("num_outputs", c.num_outputs());
  const std::vector<int64_t> sizes = ConstantInts(c, 1);
  const int64_t all = sizes.empty() ? count : static_cast<int64_t>(sizes.size());
  std::vector<ValueId> parts;
  // Unused trailing outputs do not exist.
  for (int i = 0; i < all; ++i) {
    ValueType part{b.dtype(c.in(0)), b.shape(c.in(0))};
    const int64_t even = (extent + count - 1) / std::max<int64_t>(count, 1);
    part.shape[axis] = sizes.empty() ? std::clamp<int64_t>(extent - even * i, 0, even) : sizes.at(static_cast<size_t>(i));
    const ValueId gradient = i < c.num_outputs() ? c.grad(i) : kNoValue;
    parts.push_back(gradient != kNoValue ? gradient : b.Zeros(part));
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

// The opposite padding removes a constant border; elements that Pad removed get a gradient of zero.
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
  // The gradient of the border value is the rest of the sum.
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

// For operators that are their own adjoint in input 0.
void SelfAdjoint(GradientContext& c) {
  if (!c.needs(0)) return;
  std::vector<ValueId> operands = c.node().inputs;
  operands[0] = c.grad(0);
  c.set(0, c.b.Op(c.node().op, operands, c.attributes()));
}

// Returns the number of neighbouring positions along the axis that an operator must keep or remove together, so that all samples are
// treated alike.
int64_t Block(const ShardQuery& query, const Shard& shard, int64_t extent) { return query.batch() * shard.InnerOf(extent, query.batch()); }

void ShardConcat(ShardQuery& query) {
  const int axis = query.AxisAttribute("axis", 0, query.out_shape(0).rank());
  bool partial = true, divided = true;
  Shard made;
  for (int i = 0; i < query.num_inputs(); ++i) partial &= query.given(i).partial() || (query.given(i).whole() && query.IsZero(i));
  if (partial) {
    for (int i = 0; i < query.num_inputs(); ++i) made = query.given(i).partial() ? query.given(i) : made;
    return query.set(0, made);
  }
  for (int i = 0; i < query.num_inputs(); ++i) {
    const Shard shard = query.in(i);
    divided &= shard.split();
    made = Joined(query, made, shard);
  }
  if (made.split() && made.axis == axis && !divided) query.Refuse("it concatenates samples with values that all samples share");
  query.set(0, made);
}

void ShardSplit(ShardQuery& query) {
  const Shard shard = query.given(0);
  const int axis = query.AxisAttribute("axis", 0, query.shape(0).rank());
  if (shard.split() && shard.axis == axis) {
    for (int i = 0; i < query.num_outputs(); ++i) {
      if (query.node().outputs[static_cast<size_t>(i)] != kNoValue &&
          query.out_shape(i)[axis] % Block(query, shard, query.shape(0)[axis]) != 0) {
        query.Refuse("it separates samples from each other");
      }
    }
  }
  query.SetAll(shard);
}

// Returns the step of a Slice along the batch axis, 1 if it takes all of it.
int64_t StepAlong(const ShardQuery& query, int axis, int rank) {
  const std::vector<int64_t> axes = query.Ints(3), steps = query.Ints(4);
  for (size_t i = 0; i < steps.size(); ++i) {
    if ((axes.empty() ? static_cast<int>(i) : NormalAxis(axes[i], rank).value()) == axis) return steps[i];
  }
  return 1;
}

// Refuses a Slice along the batch axis, of extent `extent`, that does not take whole blocks or, with a step, the same positions of every
// sample.
void ExpectSameOfEachSample(ShardQuery& query, const Shard& shard, int64_t extent, int rank) {
  const std::vector<int64_t> starts = query.Ints(1), ends = query.Ints(2), axes = query.Ints(3);
  const int64_t step = StepAlong(query, shard.axis, rank), block = Block(query, shard, extent);
  for (size_t i = 0; i < starts.size(); ++i) {
    const int axis = axes.empty() ? static_cast<int>(i) : NormalAxis(axes[i], rank).value();
    if (axis != shard.axis) continue;
    const auto place = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + extent : at, 0, extent); };
    const int64_t start = place(starts[i]), end = place(ends[i]);
    const bool blocks = step == 1 && start % block == 0 && end % block == 0;
    const bool same = step > 1 && shard.InnerOf(extent, query.batch()) % step == 0 && start < step && end > extent - step + start;
    if (!blocks && !same) query.Refuse("it separates samples from each other");
  }
}

void ShardSlice(ShardQuery& query) {
  Shard shard = query.given(0);
  if (shard.split()) {
    const int rank = query.shape(0).rank();
    const int64_t extent = query.shape(0)[shard.axis], step = StepAlong(query, shard.axis, rank);
    ExpectSameOfEachSample(query, shard, extent, rank);
    if (step > 1) shard.inner = shard.InnerOf(extent, query.batch()) / step;
  }
  query.SetAll(shard);
}

void ShardSliceGrad(ShardQuery& query) {
  Shard shard = query.given(0);
  if (shard.split()) {
    const int rank = query.shape(0).rank();
    if (const int64_t step = StepAlong(query, shard.axis, rank); step > 1)
      shard.inner = shard.InnerOf(query.shape(0)[shard.axis], query.batch()) * step;
    ExpectSameOfEachSample(query, shard, query.out_shape(0)[shard.axis], rank);
  }
  query.SetAll(shard);
}

// The batch axis must not be padded.
void ShardPad(ShardQuery& query) {
  const bool zeros = query.attributes().String("mode", "constant") == "constant" && (!query.has(2) || query.IsZero(2));
  const Shard shard = query.given(0).partial() && zeros ? query.given(0) : query.in(0);
  const int rank = query.shape(0).rank();
  const int axes_at = query.node().op == "PadGrad" ? 2 : 3;
  const std::vector<int64_t> pads = query.Ints(1), axes = query.Ints(axes_at);
  if (query.node().op == "Pad" && query.has(2)) query.ExpectWhole(2);
  for (size_t i = 0; shard.split() && i < pads.size() / 2; ++i) {
    const int axis = axes.empty() ? static_cast<int>(i) : NormalAxis(axes[i], rank).value();
    if (axis == shard.axis && (pads[i] != 0 || pads[i + pads.size() / 2] != 0)) query.Refuse("it pads the batch axis");
  }
  query.set(0, shard);
}

void ShardExpand(ShardQuery& query) {
  Shard shard = query.given(0);
  if (shard.local() && query.growing(0) < 0) return query.set(0, shard);
  if (shard.partial() && query.growing(0) < 0) return query.set(0, shard);
  shard = query.in(0);
  if (shard.split()) shard.axis += query.out_shape(0).rank() - query.shape(0).rank();
  query.set(0, !shard.split() && query.growing(0) >= 0 ? Shard::Split(query.growing(0), 0) : shard);
}

void ShardTile(ShardQuery& query) {
  const std::vector<int64_t> repeats = query.Ints(1);
  const Shard shard = query.given(0).partial() && query.growing(0) < 0 ? query.given(0) : query.in(0);
  const int axis = query.growing(0);
  if (!shard.split() && axis >= 0) {
    if (repeats.at(static_cast<size_t>(axis)) % query.batch() != 0) query.Refuse("its repeats are not a multiple of the batch size");
    const int64_t each = query.shape(0)[axis];
    return query.set(0, Shard::Split(axis, each == 1 ? 0 : each));
  }
  if (shard.split() && repeats.at(static_cast<size_t>(shard.axis)) != 1 && shard.inner == 0) query.Refuse("it repeats samples");
  query.set(0, shard);
}

void ShardTranspose(ShardQuery& query) {
  Shard shard = query.given(0);
  const std::vector<int64_t> perm = query.attributes().Ints("perm");
  const int rank = query.shape(0).rank();
  if (shard.split()) {
    const auto at = std::find_if(perm.begin(), perm.end(), [&](int64_t from) { return NormalAxis(from, rank) == shard.axis; });
    shard.axis = perm.empty() ? rank - 1 - shard.axis : static_cast<int>(at - perm.begin());
  }
  query.set(0, shard);
}

void ShardReverseSequence(ShardQuery& query) {
  const int batch = query.AxisAttribute("batch_axis", 1, query.shape(0).rank());
  const char axis = static_cast<char>('0' + batch);
  ShardSamples(query, std::string{axis} + "0>" + axis);
}

void ShardTrilu(ShardQuery& query) {
  const Shard shard = query.given(0);
  if (query.has(1)) query.ExpectWhole(1);
  if (shard.split() && shard.axis + 2 >= query.shape(0).rank()) query.Refuse("it operates along the batch axis");
  query.set(0, shard);
}

constexpr Op View(std::string_view name) { return {.name = name, .domain = "", .since_version = 25, .gradient = ReshapeGradient}; }

constexpr Op Made(std::string_view name, int version) {
  return {.name = name, .domain = "", .since_version = version, .traits = kNoGradient};
}

const Op kOps[] = {
    {.name = "Concat", .domain = "", .since_version = 13, .gradient = Concat, .shard = ShardConcat},
    Made("Constant", 25),
    Made("ConstantOfShape", 25),
    {.name = "DepthToSpace", .domain = "", .since_version = 28, .gradient = Blocks<true>, .samples = "0>0"},
    {.name = "Expand", .domain = "", .since_version = 13, .gradient = Expand, .shard = ShardExpand},
    Made("EyeLike", 22),
    View("Flatten"),
    {.name = "Pad", .domain = "", .since_version = 25, .gradient = Pad, .shard = ShardPad},
    {.name = "PadGrad", .domain = kGradloomDomain, .gradient = PadGradGradient, .infer = InferFromShapeAttribute<0>, .shard = ShardPad},
    View("Reshape"),
    {.name = "ReverseSequence", .domain = "", .since_version = 28, .gradient = SelfAdjoint, .shard = ShardReverseSequence},
    Made("Shape", 25),
    Made("Size", 25),
    {.name = "Slice", .domain = "", .since_version = 13, .gradient = Slice, .shard = ShardSlice},
    {.name = "SliceGrad",
     .domain = kGradloomDomain,
     .gradient = SliceGradGradient,
     .infer = InferFromShapeAttribute<0>,
     .shard = ShardSliceGrad},
    {.name = "SpaceToDepth", .domain = "", .since_version = 28, .gradient = Blocks<false>, .samples = "0>0"},
    {.name = "Split", .domain = "", .since_version = 18, .gradient = Split, .shard = ShardSplit},
    View("Squeeze"),
    {.name = "Tile", .domain = "", .since_version = 13, .gradient = Tile, .shard = ShardTile},
    {.name = "Transpose", .domain = "", .since_version = 25, .gradient = Transpose, .shard = ShardTranspose},
    {.name = "Trilu", .domain = "", .since_version = 14, .gradient = SelfAdjoint, .shard = ShardTrilu},
    View("Unsqueeze"),
};

}  // namespace

std::span<const Op> ShapeOps() { return kOps; }

}  // namespace gradloom

// Quantized numbers: small integers or floating-point numbers times a scale.
#include "compiler/ops/families.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

// Reduces a gradient of the shape of x to that of the scale: sums over all elements that share an element of the scale.
ValueId SumPerScale(GradientContext& c, ValueId gradient) {
  GraphBuilder& b = c.b;
  const Shape scale = b.shape(c.in(1)), x = b.shape(c.in(0));
  if (scale.elements() == 1) return b.Reshape(b.ReduceSum(gradient, {}, /*keepdims=*/false), scale);
  const auto axis = static_cast<int>(*NormalAxis(c.attributes().Int("axis", 1), x.rank()));
  const int64_t block = c.attributes().Int("block_size", 0);
  if (block == 0) {
    std::vector<int64_t> others;
    for (int i = 0; i < x.rank(); ++i) {
      if (i != axis) others.push_back(i);
    }
    return others.empty() ? gradient : b.ReduceSum(gradient, others, /*keepdims=*/false);
  }
  // Pads to whole blocks, because the last one may be shorter.
  std::vector<int64_t> pads(2 * static_cast<size_t>(x.rank()), 0);
  pads[static_cast<size_t>(x.rank() + axis)] = scale[axis] * block - x[axis];
  if (pads[static_cast<size_t>(x.rank() + axis)] > 0) gradient = b.Op("Pad", {gradient, b.Ints(pads)});
  Shape apart;
  for (int i = 0; i < x.rank(); ++i) {
    apart.push_back(scale[i]);
    if (i == axis) apart.push_back(block);
  }
  return b.ReduceSum(b.Reshape(gradient, apart), {axis + 1}, /*keepdims=*/false);
}

// y = (x - zero) * scale; integers have no gradient.
void DequantizeGradient(GradientContext& c) {
  if (!c.needs(1)) return;
  GraphBuilder& b = c.b;
  Attributes attributes = c.attributes();
  std::vector<ValueId> operands{c.in(0), b.Fill(b.graph().type(c.in(1)), 1.0)};
  if (c.in(2) != kNoValue) operands.push_back(c.in(2));
  const ValueId difference = b.Op("DequantizeLinear", operands, attributes);
  const ValueId gradient = SumPerScale(c, b.Mul(c.grad(0), difference));
  c.set(1, b.Cast(gradient, b.dtype(c.in(1))));
}

// Scales along the batch axis would have to be divided with the samples.
void ShardQuantized(ShardQuery& query) {
  const Shard x = query.in(0);
  query.ExpectWhole(1);
  query.ExpectWhole(2);
  if (x.split() && query.shape(1).elements() > 1 && x.axis == query.AxisAttribute("axis", 1, query.shape(0).rank()))
    query.Refuse("its scales are along the batch axis");
  if (x.split() && query.attributes().Int("block_size", 0) != 0) query.Refuse("blocked quantization is not supported");
  query.SetAll(x);
}

constexpr Op kOps[] = {
    {.name = "ConvInteger", .domain = "", .since_version = 10, .traits = kNoGradient, .samples = "0...>0"},
    {.name = "DequantizeLinear", .domain = "", .since_version = 28, .gradient = DequantizeGradient, .shard = ShardQuantized},
    {.name = "QLinearConv", .domain = "", .since_version = 10, .traits = kNoGradient, .samples = "0........>0"},
    {.name = "QLinearMatMul", .domain = "", .since_version = 21, .traits = kNoGradient},
    {.name = "QuantizeLinear", .domain = "", .since_version = 28, .traits = kNoGradient, .shard = ShardQuantized},
};

}  // namespace

std::span<const Op> QuantizedOps() { return kOps; }

}  // namespace gradloom

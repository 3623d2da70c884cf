// Fourier transforms. They are linear, so their gradients are transforms too.
#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"

namespace gradloom {
namespace {

// Returns the first `extent` positions along an axis, padded with zeros if there are fewer.
ValueId Fitted(GraphBuilder& b, ValueId x, int64_t axis, int64_t extent) {
  const Shape shape = b.shape(x);
  const int64_t has = shape[static_cast<int>(axis)];
  if (has > extent) return b.Op("Slice", {x, b.Ints({0}), b.Ints({extent}), b.Ints({axis})});
  if (has == extent) return x;
  std::vector<int64_t> pads(2 * static_cast<size_t>(shape.rank()), 0);
  pads[static_cast<size_t>(shape.rank() + axis)] = extent - has;
  return b.Op("Pad", {x, b.Ints(pads)});
}

// A transform along `axis` of a tensor of shape `from`.
struct Transform {
  Shape from;
  int64_t axis, length;
  bool inverse, onesided;
};

// The first half of a spectrum times a number for each bin: `ends` for the first one and, if the length is even, the last, which have no
// mirror image in the other half; `others` for the others.
ValueId Weighted(GraphBuilder& b, ValueId spectrum, const Transform& t, double ends, double others) {
  const int64_t half = t.length / 2 + 1;
  std::vector<double> weights(static_cast<size_t>(half), others);
  weights[0] = ends;
  if (t.length % 2 == 0) weights.back() = ends;
  Shape along(std::vector<int64_t>(static_cast<size_t>(t.from.rank()), 1));
  along[static_cast<int>(t.axis)] = half;
  return b.Mul(spectrum, b.Constant(Converted(Tensor::From(weights, along).view(), b.dtype(spectrum))));
}

// The adjoint of sum x[t] e^(-i k t) over real and imaginary parts is sum g[k] e^(i k t), the unscaled inverse, and vice versa. If x is
// real, only the real part of that is needed. With half a spectrum it is the inverse for real numbers, where every bin but the ends also
// stands for its mirror image and would count twice.
ValueId Adjoint(GraphBuilder& b, const Transform& t, ValueId gradient) {
  const int rank = t.from.rank(), place = static_cast<int>(t.axis);
  const ValueId axis = b.Constant(Tensor::Scalar<int64_t>(t.axis)), length = b.Constant(Tensor::Scalar<int64_t>(t.length));
  const double scale = static_cast<double>(t.length);
  const bool of_half = t.from[rank - 1] == 1 && b.shape(gradient)[place] == t.length / 2 + 1;
  if (t.inverse && t.onesided) {
    gradient = b.Op("DFT", {gradient, length, axis}, {{"onesided", int64_t{1}}});
    gradient = Weighted(b, gradient, t, 1.0 / scale, 2.0 / scale);
  } else if (t.inverse) {
    gradient = b.Scale(b.Op("DFT", {gradient, length, axis}), 1.0 / scale);
  } else if (of_half) {
    gradient = Weighted(b, gradient, t, scale, scale / 2);
    gradient = b.Op("DFT", {gradient, length, axis}, {{"inverse", int64_t{1}}, {"onesided", int64_t{1}}});
  } else {
    gradient = b.Scale(b.Op("DFT", {Fitted(b, gradient, t.axis, t.length), length, axis}, {{"inverse", int64_t{1}}}), scale);
  }
  return Fitted(b, Fitted(b, gradient, t.axis, t.from[place]), rank - 1, t.from[rank - 1]);
}

void DftGradient(GradientContext& c) {
  if (!c.needs(0)) return;
  const Shape from = c.b.shape(c.in(0)), to = c.b.shape(c.out(0));
  const int axis = *NormalAxis(ConstantInts(c, 2, {-2}).at(0), from.rank());
  const bool inverse = c.attributes().Int("inverse", 0) != 0, onesided = c.attributes().Int("onesided", 0) != 0;
  const int64_t length = ConstantInts(c, 1, {inverse && onesided ? to[axis] : from[axis]}).at(0);
  c.set(0, Adjoint(c.b, {from, axis, length, inverse, onesided}, c.grad(0)));
}

// STFT transforms frames of the signal times the window.
void StftGradient(GradientContext& c) {
  GraphBuilder& b = c.b;
  const Shape signal = b.shape(c.in(0)), to = b.shape(c.out(0));
  const int64_t parts = signal.rank() > 2 ? signal[2] : 1, step = ConstantInts(c, 1).at(0);
  const bool has_window = c.in(2) != kNoValue;
  const int64_t length = has_window ? b.shape(c.in(2)).elements() : ConstantInts(c, 3).at(0);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < to[1] * length; ++i) samples.push_back(i / length * step + i % length);
  const ValueId places = b.Constant(Tensor::From(samples, Shape{to[1], length}));
  const Shape flat{signal[0], signal[1], parts};
  const ValueId frames = Adjoint(b, {{to[0], to[1], length, parts}, 2, length, false, false}, c.grad(0));
  if (c.needs(0)) {
    const ValueId weighted = has_window ? b.Mul(frames, b.Reshape(c.in(2), Shape{length, 1})) : frames;
    c.set(0, b.Reshape(b.Own("GatherGrad", {places, weighted}, {{"axis", int64_t{1}}, {"shape", flat.dims()}}), signal));
  }
  if (!c.needs(2)) return;
  const ValueId taken = b.Op("Gather", {b.Reshape(c.in(0), flat), places}, {{"axis", int64_t{1}}});
  c.set(2, b.Reshape(b.ReduceTo(b.Mul(frames, taken), Shape{length, 1}), Shape{length}));
}

// Returns the known integer of a scalar operand, or `absent` if it is not given.
int64_t KnownInt(const Graph& graph, const Node& node, int i, int64_t absent) {
  if (!HasInput(node, i)) return absent;
  const Tensor* data = graph.data(node.inputs[static_cast<size_t>(i)]);
  if (data == nullptr || data->elements() != 1) {
    throw Error(ErrorCode::kUnsupported, "the shape of output 0 of " + Escaped(node.op) + " is not known at compile time", Describe(node));
  }
  return ElementAsInt(data->view(), 0);
}

// ONNX's type inference takes an absent `onesided` for 0.
std::vector<ValueType> InferStft(const Graph& graph, const Node& node) {
  const ValueType signal = InputType(graph, node, 0);
  if (signal.shape.rank() < 2 || signal.shape.rank() > 3 || (signal.shape.rank() == 3 && (signal.shape[2] < 1 || signal.shape[2] > 2)))
    throw Error(ErrorCode::kShape, "the signal of STFT must be [batch, samples, 1 or 2], got " + signal.ToString(), Describe(node));
  const int64_t window = HasInput(node, 2) ? InputType(graph, node, 2).shape.elements() : 0;
  const int64_t length = KnownInt(graph, node, 3, window), step = KnownInt(graph, node, 1, 0), samples = signal.shape[1];
  if (length <= 0 || length > samples || step <= 0 || (window != 0 && window != length)) {
    throw Error(ErrorCode::kValue,
                "STFT of " + std::to_string(samples) + " samples does not support frame_length " + std::to_string(length) +
                    ", frame_step " + std::to_string(step) + " and a window of length " + std::to_string(window),
                Describe(node));
  }
  const int64_t bins = node.attributes.Int("onesided", 1) != 0 ? length / 2 + 1 : length;
  return {{signal.dtype, Shape{signal.shape[0], (samples - length) / step + 1, bins, 2}}};
}

// Operands: bins, length, rate, low, high, all of which must be known.
std::vector<ValueType> InferMel(const Graph& graph, const Node& node) {
  const int64_t bins = KnownInt(graph, node, 0, -1), length = KnownInt(graph, node, 1, -1);
  if (bins < 0 || length < 0) throw Error(ErrorCode::kValue, "the sizes of MelWeightMatrix must not be negative", Describe(node));
  for (int i = 2; i < 5; ++i) {
    if (const Shape shape = InputType(graph, node, i).shape; shape.elements() != 1)
      throw Error(ErrorCode::kShape, "the operands of MelWeightMatrix must be scalars, got " + shape.ToString(), Describe(node));
  }
  const auto dtype = static_cast<DType>(node.attributes.Int("output_datatype", static_cast<int64_t>(DType::kFloat32)));
  return {{dtype, Shape{length / 2 + 1, bins}}};
}

const Op kOps[] = {
    {.name = "DFT", .domain = "", .since_version = 20, .gradient = DftGradient, .samples = "0..>0"},
    {.name = "MelWeightMatrix", .domain = "", .since_version = 17, .traits = kNoGradient, .infer = InferMel},
    {.name = "STFT", .domain = "", .since_version = 17, .gradient = StftGradient, .infer = InferStft, .samples = "0...>0"},
};

}  // namespace

std::span<const Op> SignalOps() { return kOps; }

}  // namespace gradloom

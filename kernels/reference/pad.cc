// Pad in its four modes, and its gradient.
#include "kernels/reference/axis_maps.h"
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"

namespace gradloom {
using scalar::PadMode;

PadMode PadModeOf(const KernelCall& call) {
  const std::string mode = call.attributes.String("mode", "constant");
  if (mode == "constant") return PadMode::kConstant;
  if (mode == "edge") return PadMode::kEdge;
  if (mode == "reflect") return PadMode::kReflect;
  if (mode == "wrap") return PadMode::kWrap;
  throw Error(ErrorCode::kAttr, "Pad: mode '" + Escaped(mode) + "' is none of constant, edge, reflect, wrap");
}

std::vector<AxisMap> PadMaps(const KernelCall& call, const void* const* inputs, const Shape& from, const Shape& to, size_t axes_operand) {
  const PadMode mode = PadModeOf(call);
  const std::vector<int64_t> pads = InputInts(call, inputs, 1), axes = InputInts(call, inputs, axes_operand);
  std::vector<int64_t> before(static_cast<size_t>(from.rank()), 0);
  const size_t count = pads.size() / 2;
  for (size_t i = 0; i < count; ++i) {
    before[static_cast<size_t>(AxisOf(call, axes.empty() ? static_cast<int64_t>(i) : axes.at(i), from.rank()))] = pads[i];
  }
  std::vector<AxisMap> maps;
  for (int axis = 0; axis < to.rank(); ++axis) {
    AxisMap map{.in = from[axis], .out = to[axis], .identity = false, .starts = {0}, .indices = {}, .weights = {}, .outside = {}};
    for (int64_t i = 0; i < to[axis]; ++i) {
      if (const int64_t source = scalar::PadSource(mode, i - before[static_cast<size_t>(axis)], from[axis]); source >= 0) {
        map.indices.push_back(source);
        map.weights.push_back(1);
      }
      map.starts.push_back(map.indices.size());
    }
    maps.push_back(std::move(map));
  }
  return maps;
}

namespace {

// Calls f(i, source) for each element i of the padded tensor; source -1 is the constant.
template <typename F>
void ForEachPadded(const std::vector<AxisMap>& maps, const Shape& from, const Shape& to, F&& f) {
  const std::vector<int64_t> strides = from.strides();
  const int64_t n = to.elements();
  const int rank = to.rank();
  for (int64_t i = 0; i < n; ++i) {
    int64_t source = 0;
    for (int64_t axis = rank, rest = i; axis-- > 0;) {
      const AxisMap& map = maps[static_cast<size_t>(axis)];
      const auto at = static_cast<size_t>(rest % map.out);
      rest /= map.out;
      if (map.starts[at] == map.starts[at + 1]) {
        source = -1;
        break;
      }
      source += map.indices[map.starts[at]] * strides[static_cast<size_t>(axis)];
    }
    f(i, source);
  }
}

void Pad(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  const std::vector<AxisMap> maps = PadMaps(call, in, from, to, 3);
  WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T constant = Has(call.inputs, 2) ? In<T>(in, 2)[0] : T{0};
    ForEachPadded(maps, from, to, [&](int64_t i, int64_t source) { Out<T>(out, 0)[i] = source < 0 ? constant : In<T>(in, 0)[source]; });
  });
}

// gradloom.PadGrad(grad, pads, axes) {mode, shape}: sums grad over all places to which an element was copied.
void PadGrad(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape &from = call.outputs[0].shape, &to = call.inputs[0].shape;
  const std::vector<AxisMap> maps = PadMaps(call, in, from, to, 2);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    std::vector<double> sums(static_cast<size_t>(from.elements()), 0.0);
    ForEachPadded(maps, from, to, [&](int64_t i, int64_t source) {
      if (source >= 0) sums[static_cast<size_t>(source)] += static_cast<double>(In<T>(in, 0)[i]);
    });
    for (size_t i = 0; i < sums.size(); ++i) Out<T>(out, 0)[i] = static_cast<T>(static_cast<Arithmetic<T>>(sums[i]));
  });
}

constexpr ReferenceKernel kKernels[] = {{"Pad", "", Pad}, {"PadGrad", "gradloom", PadGrad}};

}  // namespace

std::span<const ReferenceKernel> ReferencePad() { return kKernels; }

}  // namespace gradloom

// Pad in its four modes, and its gradient.
#include <algorithm>

#include "kernels/reference/axis_maps.h"
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

// The source of element `i` of a padded axis, or -1 for the constant.
int64_t Source(const std::string& mode, int64_t i, int64_t extent) {
  if (i >= 0 && i < extent) return i;
  if (mode == "constant" || extent == 0) return -1;
  if (mode == "edge") return i < 0 ? 0 : extent - 1;
  const auto modulo = [](int64_t a, int64_t b) { return (a % b + b) % b; };
  if (mode == "wrap") return modulo(i, extent);
  // The reflected axis has a period of 2 (extent - 1).
  if (extent == 1) return 0;
  const int64_t period = 2 * (extent - 1), at = modulo(i, period);
  return at < extent ? at : period - at;
}

}  // namespace

std::vector<AxisMap> PadMaps(const KernelCall& call, const void* const* inputs, const Shape& from, const Shape& to, size_t axes_operand) {
  const std::string mode = call.attributes.String("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap") {
    throw Error(ErrorCode::kAttr, "Pad: mode '" + Escaped(mode) + "' is none of constant, edge, reflect, wrap");
  }
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
      if (const int64_t source = Source(mode, i - before[static_cast<size_t>(axis)], from[axis]); source >= 0) {
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

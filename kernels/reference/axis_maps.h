// Operators that map one axis after the other: along each axis, an output element is a weighted sum of input elements.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/scalar/pad.h"
#include "kernels/scalar/resize.h"

namespace gradloom {

// Output element o of an axis is the sum of weights[k] * input[indices[k]] for k in [starts[o], starts[o + 1]).
struct AxisMap {
  int64_t in = 0, out = 0;
  bool identity = true;  // the axis is unchanged, and the lists below are empty
  std::vector<size_t> starts{0};
  std::vector<int64_t> indices;  // ascending within each output element
  std::vector<double> weights;
  std::vector<bool> outside;  // output elements that take the extrapolation value

  // The map of the gradient, from `out` elements to `in`: the same products, grouped by input element.
  AxisMap Transposed() const;
};

// The attributes of Resize and its gradient. Throws Error(kAttr) for unknown modes.
scalar::ResizeRules ResizeRulesOf(const KernelCall& call);
// The scale that `sizes` gives all axes, if keep_aspect_ratio_policy is not "stretch". `from` has the extents of X. Throws Error(kShape)
// unless there is one size per axis.
double CommonResizeScale(const KernelCall& call, const std::vector<int64_t>& axes, const std::vector<int64_t>& sizes, const Shape& from);
// The maps of Resize, one per axis of X. `from` has the extents of X, `to` those of Y; inputs 1, 2 and 3 of the call are roi, scales and
// sizes. Throws Error(kAttr) for unknown modes, Error(kShape) for extents that do not match.
std::vector<AxisMap> ResizeMaps(const KernelCall& call, const void* const* inputs, const Shape& from, const Shape& to);

// The attribute `mode` of Pad and its gradient. Throws Error(kAttr) for an unknown mode.
scalar::PadMode PadModeOf(const KernelCall& call);

// The maps of Pad, with weights of 1: an output element has one tap, or none if it is the constant. Input `axes_operand` has the axes,
// input 1 the pads. Throws Error(kAttr) for an unknown mode.
std::vector<AxisMap> PadMaps(const KernelCall& call, const void* const* inputs, const Shape& from, const Shape& to, size_t axes_operand);

}  // namespace gradloom

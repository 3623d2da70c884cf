// The geometry of convolution and pooling: windows over the spatial dimensions of [N, C, D1, D2, ...].
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/attributes.h"
#include "runtime/base/shape.h"

namespace gradloom {

// One entry per spatial dimension. Window o covers inputs o * stride - pad_begin + k * dilation, k < kernel.
struct Windows {
  std::vector<int64_t> kernel, strides, dilations, pads_begin, pads_end;

  int rank() const { return static_cast<int>(kernel.size()); }

  // The number of windows of an input extent along a dimension. With `ceil_mode`, a last partial window counts if it starts within the
  // input or the padding before it.
  int64_t Count(int dim, int64_t input, bool ceil_mode = false) const;

  // As ONNX attributes: kernel_shape, strides, dilations, pads.
  Attributes ToAttributes() const;
};

// From ONNX's attributes (strides, dilations, pads, auto_pad), for an input [N, C, ...] and kernel extents. Throws Error(kAttr) for lists
// of another length, extents and steps below 1, negative pads; Error(kShape) if a window does not fit.
Windows WindowsOf(const Attributes& attributes, const Shape& input, std::vector<int64_t> kernel);

// The spatial extents of the result of a transposed convolution: those of output_shape, or strides times the input with auto_pad SAME, or
// what the pads leave. Throws like WindowsOf.
std::vector<int64_t> TransposedExtents(const Attributes& attributes, const Shape& input, std::vector<int64_t> kernel);

// The same for a transposed convolution from `input` to `output`: the windows of the convolution in the opposite direction. ONNX's
// output_shape and output_padding are resolved.
Windows TransposedWindowsOf(const Attributes& attributes, const Shape& input, const Shape& output, std::vector<int64_t> kernel);

}  // namespace gradloom

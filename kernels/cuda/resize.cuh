// The tables of each axis for Resize and its gradient. They are made on the device, because scales and the region of interest are data.
#pragma once

#include <cmath>

#include "kernels/cuda/float_operand.cuh"
#include "kernels/cuda/rows/sample_scratch.h"
#include "kernels/cuda/sample.cuh"
#include "kernels/reference/axis_maps.h"

namespace gradloom::cuda {

using scalar::ResizeMode;

// The attributes, and the operands that are data.
struct ResizeSampling {
  scalar::ResizeRules rules;
  int64_t operands = 0;      // number of elements of scales
  FloatOperand roi, scales;  // null if absent
};

// An axis that is resized.
struct ResizeAxis {
  int64_t in = 0, out = 0;  // extents of X and Y
  int64_t in_stride = 0, out_stride = 0;
  int64_t entry = 0, range = 0;  // offsets of its tables
  int64_t operand = 0;           // its index in scales and roi
  double scale = 1;              // if scales are absent
};

// What output coordinate x of an axis reads. The taps are the elements left + i, -reach < i <= reach, of which `count` from left + begin on
// are used, clamped to the axis. Tap k has weight norm * f(shrink * (base + k)), where f is the mode's function of the distance.
template <typename A>
struct ResizeEntry {
  int64_t left = 0;
  int32_t begin = 0, count = 1, reach = 1;
  bool outside = false;  // takes the extrapolation value
  A base = 0, shrink = 0, norm = 1;

  GRADLOOM_DEVICE int64_t first() const { return left + begin; }
};
static_assert(sizeof(ResizeEntry<double>) <= kResizeEntryBytes);

// The range [begin, end) of outputs that may read an input coordinate.
struct ResizeReaders {
  int64_t begin, end;
};
static_assert(sizeof(ResizeReaders) <= kResizeRangeBytes);

// The unnormalized weight at a distance, for linear and cubic; nearest has a single tap.
template <typename A>
struct ResizeFalloff {
  bool cubic;
  A a;

  GRADLOOM_DEVICE A operator()(A distance) const {
    const A d = ::fabs(distance);
    if (!cubic) return d < 1 ? 1 - d : A(0);
    if (d <= 1) return CubicNear(a, d);
    return d < 2 ? CubicFar(a, d - 1) : A(0);
  }
};

struct ResizePlan {
  ResizeSampling sampling;
  int count = 0;  // number of axes
  ResizeAxis axes[kMaxAxes];
  int64_t entries = 0, ranges = 0;  // of all axes
  bool reads_roi, reads_scales;

  // `from` and `to` are the shapes of X and Y. Inputs 1, 2 and 3 are roi, scales and sizes.
  ResizePlan(const KernelCall& call, const Shape& from, const Shape& to);

  // The plan with the operands of a launch.
  ResizePlan For(const Launch& l) const {
    ResizePlan plan = *this;
    if (reads_roi) plan.sampling.roi.data = l.inputs[1];
    if (reads_scales) plan.sampling.scales.data = l.inputs[2];
    return plan;
  }
};

// `index` clamped to the axis.
GRADLOOM_DEVICE int64_t ClampIndex(int64_t index, int64_t extent) { return index < 0 ? 0 : index >= extent ? extent - 1 : index; }

// Compute the tables of all axes, for sums in float or double. Defined in resize_tables.cu.
template <typename A>
void MakeEntries(const ResizePlan& plan, ResizeEntry<A>* entries, cudaStream_t stream);
template <typename A>
void FindReaders(const ResizePlan& plan, const ResizeEntry<A>* entries, ResizeReaders* readers, cudaStream_t stream);

}  // namespace gradloom::cuda

// The tables of Resize: the elements that an output coordinate reads along an axis, with their weights, and the outputs that read an input
// coordinate.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/resize.cuh"

namespace gradloom::cuda {
namespace {

// Converts a name from a list to an enumerator with the same index.
template <typename E, size_t kCount>
E Named(const KernelCall& call, const char* attribute, const char* absent, const char* const (&names)[kCount]) {
  const std::string name = call.attributes.String(attribute, absent);
  for (size_t i = 0; i < kCount; ++i) {
    if (name == names[i]) return static_cast<E>(i);
  }
  throw Error(ErrorCode::kAttr, "Resize: " + std::string(attribute) + " '" + Escaped(name) + "' is not known");
}

Error Refused(const std::string& what) { return Error(ErrorCode::kShape, "Resize: " + what); }

bool HasElements(const KernelCall& call, size_t i) { return Has(call.inputs, i) && call.inputs[i].shape.elements() > 0; }

// The common scale that `sizes` gives all axes, or 0 if each axis has its own.
double CommonScale(const KernelCall& call, const std::vector<int64_t>& axes, const Shape& from) {
  const std::string policy = call.attributes.String("keep_aspect_ratio_policy", "stretch");
  if (HasElements(call, 2) || policy == "stretch") return 0;
  const std::vector<int64_t> sizes = call.ConstantInts(3);
  if (sizes.size() != axes.size()) throw Refused(std::to_string(sizes.size()) + " sizes for " + std::to_string(axes.size()) + " axes");
  double common = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const double ratio = static_cast<double>(sizes[i]) / static_cast<double>(from[AxisOf(call, axes[i], from.rank())]);
    common = i == 0 ? ratio : policy == "not_larger" ? std::min(common, ratio) : std::max(common, ratio);
  }
  return common;
}

// A coordinate of the output, scaled to the input. For nearest mode it is rounded to float32, as in the reference
// (kernels/reference/resize_maps.cc).
GRADLOOM_DEVICE double Scaled(const ResizeSampling& s, double coordinate, double scale) {
  const double divided = coordinate / scale;
  return s.mode == ResizeMode::kNearest ? static_cast<double>(static_cast<float>(divided)) : divided;
}

// The nearest element's coordinate with half_pixel_symmetric, in float32 throughout as in the reference: the compiler may not make one
// operation of a product and a sum.
GRADLOOM_DEVICE double SymmetricCoordinate(const ResizeAxis& axis, double given, int64_t x) {
  const float scale = static_cast<float>(given), extent = static_cast<float>(axis.in);
  const float adjustment = static_cast<float>(axis.out) / (scale * extent);
#ifdef __CUDA_ARCH__
  const float offset = __fmul_rn(extent / 2, 1 - adjustment);
#else
  const float offset = extent / 2 * (1 - adjustment);
#endif
  const float divided = (static_cast<float>(x) + 0.5F) / scale;
  return static_cast<double>(offset + divided - 0.5F);
}

// The coordinate in the input of output coordinate x, by the formulas of the operator's documentation.
GRADLOOM_DEVICE double InputCoordinate(const ResizeSampling& s, const ResizeAxis& axis, double scale, int64_t x) {
  const double resized = static_cast<double>(x), length = static_cast<double>(axis.in);
  switch (s.coordinates) {
    case ResizeCoordinates::kHalfPixel: return Scaled(s, resized + 0.5, scale) - 0.5;
    case ResizeCoordinates::kPytorchHalfPixel: return axis.out > 1 ? Scaled(s, resized + 0.5, scale) - 0.5 : 0;
    case ResizeCoordinates::kAsymmetric: return Scaled(s, resized, scale);
    case ResizeCoordinates::kAlignCorners: return axis.out > 1 ? resized * (length - 1) / static_cast<double>(axis.out - 1) : 0;
    case ResizeCoordinates::kHalfPixelSymmetric: {
      if (s.mode == ResizeMode::kNearest) return SymmetricCoordinate(axis, scale, x);
      const double adjustment = static_cast<double>(axis.out) / (scale * length);
      return length / 2 * (1 - adjustment) + Scaled(s, resized + 0.5, scale) - 0.5;
    }
    case ResizeCoordinates::kCrop: {
      const bool given = s.roi.data != nullptr;
      const double start = given ? s.roi[axis.operand] : 0, end = given ? s.roi[axis.operand + s.operands] : 1;
      if (axis.out <= 1) return 0.5 * (start + end) * (length - 1);
      return start * (length - 1) + resized * (end - start) * (length - 1) / static_cast<double>(axis.out - 1);
    }
  }
  return 0;
}

GRADLOOM_DEVICE bool RoundsUp(ResizeRounding rounding, double ratio) {
  switch (rounding) {
    case ResizeRounding::kPreferFloor: return ratio > 0.5;
    case ResizeRounding::kPreferCeil: return ratio >= 0.5;
    case ResizeRounding::kFloor: return ratio == 1;
    case ResizeRounding::kCeil: break;
  }
  return true;
}

// The weights of the elements around `left` for the coordinate left + ratio, 0 < ratio <= 1. Omits zero weights at the ends, so that an
// axis with scale 1 takes one read.
template <typename A>
GRADLOOM_DEVICE ResizeEntry<A> Weighted(const ResizeSampling& s, const ResizeAxis& axis, double scale, int64_t left, double ratio) {
  const bool cubic = s.mode == ResizeMode::kCubic;
  const ResizeFalloff<double> falloff{cubic, s.cubic_a};
  const double shrink = s.antialias && scale < 1 ? scale : 1;
  const auto reach = static_cast<int64_t>(::ceil((cubic ? 2 : 1) / shrink));
  int64_t first = 1 - reach, last = reach;
  if (s.exclude_outside) {
    if (first < -left) first = -left;
    if (last > axis.in - 1 - left) last = axis.in - 1 - left;
  }
  double sum = 0;
  int64_t begin = last + 1, end = last + 1;
  for (int64_t i = first; i <= last; ++i) {
    const double weight = falloff(shrink * (static_cast<double>(i) - ratio));
    sum += weight;
    if (weight == 0) continue;
    if (begin > last) begin = i;
    end = i + 1;
  }
  ResizeEntry<A> entry;
  entry.left = left;
  entry.begin = static_cast<int32_t>(begin);
  entry.count = static_cast<int32_t>(end - begin);
  entry.reach = static_cast<int32_t>(reach);
  entry.base = static_cast<A>(static_cast<double>(begin) - ratio);
  entry.shrink = static_cast<A>(shrink);
  entry.norm = static_cast<A>(sum == 0 ? 0 : 1 / sum);
  return entry;
}

template <typename A>
GRADLOOM_DEVICE ResizeEntry<A> EntryOf(const ResizeSampling& s, const ResizeAxis& axis, int64_t x) {
  const double scale = s.scales.data == nullptr ? axis.scale : s.scales[axis.operand], last = static_cast<double>(axis.in - 1);
  double coordinate = InputCoordinate(s, axis, scale, x);
  const bool outside = s.coordinates == ResizeCoordinates::kCrop && (coordinate < 0 || coordinate > last);
  // Far outside, all reads are clamped to the edge; the bound keeps indices small for any scale.
  coordinate = ::fmin(::fmax(coordinate, -1e9), 1e9 + last);
  const double floor = ::ceil(coordinate) - 1, ratio = coordinate - floor;
  const auto left = static_cast<int64_t>(floor);
  ResizeEntry<A> entry;
  if (s.mode != ResizeMode::kNearest) {
    entry = Weighted<A>(s, axis, scale, left, ratio);
  } else {
    entry.left = left;
    entry.begin = RoundsUp(s.rounding, ratio) ? 1 : 0;
    if (s.exclude_outside && (entry.first() < 0 || entry.first() >= axis.in)) entry.count = 0;
  }
  entry.outside = outside;
  return entry;
}

// The outputs that may read input coordinate x. Input coordinates increase with the output coordinate, or decrease if the region of
// interest is reversed, and so do the elements read.
template <typename A>
GRADLOOM_DEVICE ResizeReaders ReadersOf(const ResizeAxis& axis, const ResizeEntry<A>* entries, int64_t x) {
  const bool falls = axis.out > 0 && entries[0].left > entries[axis.out - 1].left;
  const auto first_where = [&](auto&& is_true_from) {
    int64_t low = 0, high = axis.out;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      const ResizeEntry<A>& e = entries[middle];
      if (is_true_from(ClampIndex(e.left + 1 - e.reach, axis.in), ClampIndex(e.left + e.reach, axis.in))) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  };
  if (falls) {
    return {first_where([&](int64_t first, int64_t) { return first <= x; }), first_where([&](int64_t, int64_t last) { return last < x; })};
  }
  return {first_where([&](int64_t, int64_t last) { return last >= x; }), first_where([&](int64_t first, int64_t) { return first > x; })};
}

}  // namespace

ResizeSampling::ResizeSampling(const KernelCall& call)
    : mode(Named<ResizeMode>(call, "mode", "nearest", {"nearest", "linear", "cubic"})),
      coordinates(Named<ResizeCoordinates>(
          call, "coordinate_transformation_mode", "half_pixel",
          {"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric", "tf_crop_and_resize"})),
      rounding(
          Named<ResizeRounding>(call, "nearest_mode", "round_prefer_floor", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})),
      antialias(call.attributes.Int("antialias", 0) != 0),
      exclude_outside(call.attributes.Int("exclude_outside", 0) != 0),
      cubic_a(call.attributes.Float("cubic_coeff_a", -0.75)) {}

ResizePlan::ResizePlan(const KernelCall& call, const Shape& from, const Shape& to) : sampling(call), reads_scales(HasElements(call, 2)) {
  std::vector<int64_t> given = call.attributes.Ints("axes");
  if (given.empty()) {
    for (int i = 0; i < from.rank(); ++i) given.push_back(i);
  }
  const auto n = static_cast<int64_t>(given.size());
  reads_roi = sampling.coordinates == ResizeCoordinates::kCrop && HasElements(call, 1);
  if (n > from.rank() || (reads_roi && call.inputs[1].shape.elements() != 2 * n) ||
      (reads_scales && call.inputs[2].shape.elements() != n)) {
    throw Refused("roi or scales for another number of axes than " + std::to_string(n));
  }
  sampling.operands = n;
  if (reads_roi) sampling.roi.dtype = call.inputs[1].dtype;
  if (reads_scales) sampling.scales.dtype = call.inputs[2].dtype;
  const double common = CommonScale(call, given, from);
  std::vector<bool> resized(static_cast<size_t>(from.rank()), false);
  for (int64_t i = 0; i < n; ++i) {
    const int number = AxisOf(call, given[static_cast<size_t>(i)], from.rank());
    const auto at = static_cast<size_t>(number);
    const double own = static_cast<double>(to[number]) / static_cast<double>(from[number]);
    if (to[number] > 0 && from[number] == 0) throw Refused("axis " + std::to_string(number) + " has no elements to scale");
    axes[count++] = {from[number], to[number], from.strides()[at], to.strides()[at], entries, ranges, i, common != 0 ? common : own};
    entries += to[number];
    ranges += from[number];
    resized[at] = true;
  }
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (!resized[static_cast<size_t>(axis)] && from[axis] != to[axis]) throw Refused("an axis that is not resized changes its extent");
  }
}

template <typename A>
void MakeEntries(const ResizePlan& plan, ResizeEntry<A>* entries, cudaStream_t stream) {
  ForEachElement(
      plan.entries, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        int axis = plan.count - 1;
        while (i < plan.axes[axis].entry) --axis;
        entries[i] = EntryOf<A>(plan.sampling, plan.axes[axis], i - plan.axes[axis].entry);
      });
}

template <typename A>
void FindReaders(const ResizePlan& plan, const ResizeEntry<A>* entries, ResizeReaders* readers, cudaStream_t stream) {
  ForEachElement(
      plan.ranges, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        int number = plan.count - 1;
        while (i < plan.axes[number].range) --number;
        const ResizeAxis& axis = plan.axes[number];
        readers[i] = ReadersOf(axis, entries + axis.entry, i - axis.range);
      });
}

template void MakeEntries(const ResizePlan&, ResizeEntry<float>*, cudaStream_t);
template void MakeEntries(const ResizePlan&, ResizeEntry<double>*, cudaStream_t);
template void FindReaders(const ResizePlan&, const ResizeEntry<float>*, ResizeReaders*, cudaStream_t);
template void FindReaders(const ResizePlan&, const ResizeEntry<double>*, ResizeReaders*, cudaStream_t);

}  // namespace gradloom::cuda

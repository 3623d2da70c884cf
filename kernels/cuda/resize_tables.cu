// The tables of Resize: the elements that an output coordinate reads along an axis, with their weights, and the outputs that read an input
// coordinate.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/resize.cuh"

namespace gradloom::cuda {
namespace {

Error Refused(const std::string& what) { return Error(ErrorCode::kShape, "Resize: " + what); }

bool HasElements(const KernelCall& call, size_t i) { return Has(call.inputs, i) && call.inputs[i].shape.elements() > 0; }

// The weights of the elements around `left` for the coordinate left + ratio, 0 < ratio <= 1. Omits zero weights at the ends, so that an
// axis with scale 1 takes one read.
template <typename A>
GRADLOOM_DEVICE ResizeEntry<A> Weighted(const scalar::ResizeRules& rules, const ResizeAxis& axis, double scale, int64_t left,
                                        double ratio) {
  const ResizeFalloff<double> falloff{rules.mode == ResizeMode::kCubic, rules.cubic_a};
  const double shrink = scalar::Shrink(rules, scale);
  const int64_t reach = scalar::Reach(rules, shrink);
  int64_t first = 1 - reach, last = reach;
  if (rules.exclude_outside) {
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
  const scalar::ResizeRules& rules = s.rules;
  scalar::ResizeScale own{axis.in, axis.out, s.scales.data == nullptr ? axis.scale : s.scales[axis.operand]};
  if (s.roi.data != nullptr) {
    own.roi_start = s.roi[axis.operand];
    own.roi_end = s.roi[axis.operand + s.operands];
  }
  const double coordinate = scalar::InputCoordinate(rules, own, x);
  const auto [left, ratio] = scalar::PlaceOf(coordinate, axis.in);
  ResizeEntry<A> entry;
  if (rules.mode != ResizeMode::kNearest) {
    entry = Weighted<A>(rules, axis, own.scale, left, ratio);
  } else {
    entry.left = left;
    entry.begin = scalar::RoundsUp(rules.rounding, ratio) ? 1 : 0;
    if (rules.exclude_outside && (entry.first() < 0 || entry.first() >= axis.in)) entry.count = 0;
  }
  entry.outside = scalar::IsExtrapolated(rules, coordinate, axis.in);
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

ResizePlan::ResizePlan(const KernelCall& call, const Shape& from, const Shape& to) : reads_scales(HasElements(call, 2)) {
  sampling.rules = ResizeRulesOf(call);
  std::vector<int64_t> given = call.attributes.Ints("axes");
  if (given.empty()) {
    for (int i = 0; i < from.rank(); ++i) given.push_back(i);
  }
  const auto n = static_cast<int64_t>(given.size());
  reads_roi = sampling.rules.coordinates == scalar::ResizeCoordinates::kCrop && HasElements(call, 1);
  if (n > from.rank() || (reads_roi && call.inputs[1].shape.elements() != 2 * n) ||
      (reads_scales && call.inputs[2].shape.elements() != n)) {
    throw Refused("roi or scales for another number of axes than " + std::to_string(n));
  }
  sampling.operands = n;
  if (reads_roi) sampling.roi.dtype = call.inputs[1].dtype;
  if (reads_scales) sampling.scales.dtype = call.inputs[2].dtype;
  const bool stretches = reads_scales || call.attributes.String("keep_aspect_ratio_policy", "stretch") == "stretch";
  const double common = stretches ? 0 : CommonResizeScale(call, given, call.ConstantInts(3), from);
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

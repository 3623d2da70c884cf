// The maps of Resize.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/reference/axis_maps.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

using scalar::ResizeMode;
using scalar::ResizeRules;
using scalar::ResizeScale;

// Converts a name from a list to an enumerator with the same index.
template <typename E, size_t kCount>
E Named(const KernelCall& call, const char* attribute, const char* absent, const char* const (&names)[kCount]) {
  const std::string name = call.attributes.String(attribute, absent);
  for (size_t i = 0; i < kCount; ++i) {
    if (name == names[i]) return static_cast<E>(i);
  }
  throw Error(ErrorCode::kAttr, "Resize: " + std::string(attribute) + " '" + Escaped(name) + "' is not known");
}

// The weights of elements left + first, left + first + 1, ... for the coordinate left + ratio, 0 < ratio <= 1.
std::vector<double> Taps(const ResizeRules& rules, double scale, double ratio, int64_t* first) {
  if (rules.mode == ResizeMode::kNearest) {
    *first = 0;
    return scalar::RoundsUp(rules.rounding, ratio) ? std::vector<double>{0, 1} : std::vector<double>{1, 0};
  }
  const double shrink = scalar::Shrink(rules, scale);
  const int64_t reach = scalar::Reach(rules, shrink);
  *first = 1 - reach;
  std::vector<double> taps;
  double sum = 0;
  for (int64_t i = *first; i <= reach; ++i) {
    const double d = std::abs(shrink * (static_cast<double>(i) - ratio)), a = rules.cubic_a;
    double weight = 0;
    if (rules.mode == ResizeMode::kLinear) {
      weight = std::max(0.0, 1 - d);
    } else if (d <= 1) {
      weight = ((a + 2) * d - (a + 3)) * d * d + 1;
    } else if (d < 2) {
      weight = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
    taps.push_back(weight);
    sum += weight;
  }
  for (double& tap : taps) tap /= sum;
  return taps;
}

AxisMap MapOf(const ResizeRules& rules, const ResizeScale& axis) {
  const int64_t in = axis.in;
  AxisMap map{.in = in, .out = axis.out, .identity = false, .starts = {0}, .indices = {}, .weights = {}, .outside = {}};
  for (int64_t x = 0; x < axis.out; ++x) {
    const double coordinate = scalar::InputCoordinate(rules, axis, x);
    const bool outside = scalar::IsExtrapolated(rules, coordinate, in);
    map.outside.push_back(outside);
    if (!outside) {
      const auto [left, ratio] = scalar::PlaceOf(coordinate, in);
      int64_t first = 0;
      std::vector<double> taps = Taps(rules, axis.scale, ratio, &first);
      double kept = 0;
      for (size_t i = 0; i < taps.size(); ++i) {
        const int64_t index = left + first + static_cast<int64_t>(i);
        if (rules.exclude_outside && (index < 0 || index >= in)) taps[i] = 0;
        kept += taps[i];
      }
      for (size_t i = 0; i < taps.size(); ++i) {
        if (taps[i] == 0) continue;
        const int64_t index = left + first + static_cast<int64_t>(i);
        map.indices.push_back(std::clamp<int64_t>(index, 0, in - 1));
        map.weights.push_back(rules.exclude_outside ? taps[i] / kept : taps[i]);
      }
    }
    map.starts.push_back(map.indices.size());
  }
  return map;
}

Error Refused(const std::string& what) { return Error(ErrorCode::kShape, "Resize: " + what); }

}  // namespace

ResizeRules ResizeRulesOf(const KernelCall& call) {
  ResizeRules rules{.mode = Named<ResizeMode>(call, "mode", "nearest", {"nearest", "linear", "cubic"}),
                    .coordinates = Named<scalar::ResizeCoordinates>(
                        call, "coordinate_transformation_mode", "half_pixel",
                        {"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric", "tf_crop_and_resize"}),
                    .antialias = call.attributes.Int("antialias", 0) != 0,
                    .exclude_outside = call.attributes.Int("exclude_outside", 0) != 0,
                    .cubic_a = call.attributes.Float("cubic_coeff_a", -0.75)};
  if (rules.mode == ResizeMode::kNearest) {
    rules.rounding = Named<scalar::ResizeRounding>(call, "nearest_mode", "round_prefer_floor",
                                                   {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  }
  return rules;
}

double CommonResizeScale(const KernelCall& call, const std::vector<int64_t>& axes, const std::vector<int64_t>& sizes, const Shape& from) {
  if (sizes.size() != axes.size()) throw Refused(std::to_string(sizes.size()) + " sizes for " + std::to_string(axes.size()) + " axes");
  const bool smallest = call.attributes.String("keep_aspect_ratio_policy", "stretch") == "not_larger";
  double common = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const double ratio = static_cast<double>(sizes[i]) / static_cast<double>(from[AxisOf(call, axes[i], from.rank())]);
    common = i == 0 ? ratio : smallest ? std::min(common, ratio) : std::max(common, ratio);
  }
  return common;
}

std::vector<AxisMap> ResizeMaps(const KernelCall& call, const void* const* inputs, const Shape& from, const Shape& to) {
  const Attributes& a = call.attributes;
  const ResizeRules rules = ResizeRulesOf(call);
  std::vector<int64_t> axes = a.Ints("axes");
  if (axes.empty()) {
    for (int i = 0; i < from.rank(); ++i) axes.push_back(i);
  }
  const auto given = [&](size_t i) { return Has(call.inputs, i) && call.inputs[i].shape.elements() > 0; };
  const size_t n = axes.size();
  const auto check = [&](size_t i, size_t count) {
    if (static_cast<size_t>(call.inputs[i].shape.elements()) != count) {
      throw Refused("input " + std::to_string(i) + " has " + std::to_string(call.inputs[i].shape.elements()) + " elements for " +
                    std::to_string(n) + " axes");
    }
  };
  if (given(1) && rules.coordinates == scalar::ResizeCoordinates::kCrop) check(1, 2 * n);
  if (given(2)) check(2, n);
  double common = 0;
  if (!given(2) && a.String("keep_aspect_ratio_policy", "stretch") != "stretch") {
    if (!given(3)) throw Refused("neither scales nor sizes");
    common = CommonResizeScale(call, axes, InputInts(call, inputs, 3), from);
  }
  std::vector<AxisMap> maps(static_cast<size_t>(from.rank()));
  for (size_t i = 0; i < n; ++i) {
    const int axis = AxisOf(call, axes[i], from.rank());
    ResizeScale scale{.in = from[axis], .out = to[axis]};
    const int64_t at = static_cast<int64_t>(i);
    scale.scale = given(2)      ? ElementAsDouble(InputView(call, inputs, 2), at)
                  : common != 0 ? common
                                : static_cast<double>(to[axis]) / static_cast<double>(from[axis]);
    if (to[axis] > 0 && (from[axis] == 0 || !(scale.scale > 0)))
      throw Refused("axis " + std::to_string(axis) + " has no elements to scale");
    if (given(1) && rules.coordinates == scalar::ResizeCoordinates::kCrop) {
      scale.roi_start = ElementAsDouble(InputView(call, inputs, 1), at);
      scale.roi_end = ElementAsDouble(InputView(call, inputs, 1), at + static_cast<int64_t>(n));
    }
    maps[static_cast<size_t>(axis)] = MapOf(rules, scale);
  }
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (maps[static_cast<size_t>(axis)].identity && from[axis] != to[axis]) throw Refused("an axis that is not resized changes its extent");
  }
  return maps;
}

}  // namespace gradloom

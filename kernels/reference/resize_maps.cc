// The maps of Resize.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/reference/axis_maps.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

// The attributes.
struct Sampling {
  std::string mode, coordinates, nearest;
  bool antialias, exclude_outside;
  double cubic_a;
};

struct AxisScale {
  double scale = 1;
  double roi_start = 0, roi_end = 1;
};

// The coordinate in the input of output element x, by the formulas of the operator's documentation. For the nearest element, the quotient
// by the scale is rounded to float32, as in other implementations: 6 / 1.2f gives the fifth element, not the fourth because of the rounding
// of 1.2.
double InputCoordinate(const Sampling& sampling, const AxisScale& axis, int64_t in, int64_t out, int64_t x) {
  const double resized = static_cast<double>(x), length = static_cast<double>(in);
  const std::string& mode = sampling.coordinates;
  const auto scaled = [&](double coordinate) {
    const double divided = coordinate / axis.scale;
    return sampling.mode == "nearest" ? static_cast<double>(static_cast<float>(divided)) : divided;
  };
  if (mode == "half_pixel") return scaled(resized + 0.5) - 0.5;
  if (mode == "pytorch_half_pixel") return out > 1 ? scaled(resized + 0.5) - 0.5 : 0;
  if (mode == "asymmetric") return scaled(resized);
  if (mode == "align_corners") return out > 1 ? resized * (length - 1) / static_cast<double>(out - 1) : 0;
  if (mode == "half_pixel_symmetric" && sampling.mode == "nearest") {
    // This mode keeps the center of the image, and many coordinates are whole numbers up to rounding, which is that of float32 throughout.
    const auto scale = static_cast<float>(axis.scale), extent = static_cast<float>(in);
    const float adjustment = static_cast<float>(out) / (scale * extent), offset = extent / 2 * (1 - adjustment);
    const float divided = (static_cast<float>(x) + 0.5F) / scale;
    return static_cast<double>(offset + divided - 0.5F);
  }
  if (mode == "half_pixel_symmetric") {
    const double adjustment = static_cast<double>(out) / (axis.scale * length);
    return length / 2 * (1 - adjustment) + scaled(resized + 0.5) - 0.5;
  }
  if (mode == "tf_crop_and_resize") {
    if (out <= 1) return 0.5 * (axis.roi_start + axis.roi_end) * (length - 1);
    return axis.roi_start * (length - 1) + resized * (axis.roi_end - axis.roi_start) * (length - 1) / static_cast<double>(out - 1);
  }
  throw Error(ErrorCode::kAttr, "Resize: coordinate_transformation_mode '" + Escaped(mode) + "' is not known");
}

// The weights of elements left + first, left + first + 1, ... for the coordinate left + ratio, 0 < ratio <= 1.
std::vector<double> Taps(const Sampling& s, double scale, double ratio, int64_t* first) {
  if (s.mode == "nearest") {
    *first = 0;
    bool right;
    if (s.nearest == "round_prefer_floor") {
      right = ratio > 0.5;
    } else if (s.nearest == "round_prefer_ceil") {
      right = ratio >= 0.5;
    } else if (s.nearest == "floor") {
      right = ratio == 1;
    } else if (s.nearest == "ceil") {
      right = true;
    } else {
      throw Error(ErrorCode::kAttr, "Resize: nearest_mode '" + Escaped(s.nearest) + "' is not known");
    }
    return right ? std::vector<double>{0, 1} : std::vector<double>{1, 0};
  }
  const bool cubic = s.mode == "cubic";
  if (!cubic && s.mode != "linear") throw Error(ErrorCode::kAttr, "Resize: mode '" + Escaped(s.mode) + "' is not known");
  const double shrink = s.antialias ? std::min(scale, 1.0) : 1.0;
  *first = static_cast<int64_t>(std::floor((cubic ? -2 : -1) / shrink)) + 1;
  std::vector<double> taps;
  double sum = 0;
  for (int64_t i = *first; i < 2 - *first; ++i) {
    const double d = std::abs(shrink * (static_cast<double>(i) - ratio)), a = s.cubic_a;
    double weight = 0;
    if (!cubic) {
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

AxisMap MapOf(const Sampling& sampling, const AxisScale& axis, int64_t in, int64_t out) {
  AxisMap map{.in = in, .out = out, .identity = false, .starts = {0}, .indices = {}, .weights = {}, .outside = {}};
  const bool crops = sampling.coordinates == "tf_crop_and_resize";
  for (int64_t x = 0; x < out; ++x) {
    double coordinate = InputCoordinate(sampling, axis, in, out, x);
    const double last = static_cast<double>(in - 1);
    const bool outside = crops && (coordinate < 0 || coordinate > last);
    map.outside.push_back(outside);
    if (!outside) {
      // Far outside, all reads are clamped to the edge; the bound keeps indices small for any scale.
      coordinate = std::min(std::max(coordinate, -1e9), 1e9 + last);
      const double left = std::ceil(coordinate) - 1;
      int64_t first = 0;
      std::vector<double> taps = Taps(sampling, axis.scale, coordinate - left, &first);
      double kept = 0;
      for (size_t i = 0; i < taps.size(); ++i) {
        const int64_t index = static_cast<int64_t>(left) + first + static_cast<int64_t>(i);
        if (sampling.exclude_outside && (index < 0 || index >= in)) taps[i] = 0;
        kept += taps[i];
      }
      for (size_t i = 0; i < taps.size(); ++i) {
        if (taps[i] == 0) continue;
        const int64_t index = static_cast<int64_t>(left) + first + static_cast<int64_t>(i);
        map.indices.push_back(std::clamp<int64_t>(index, 0, in - 1));
        map.weights.push_back(sampling.exclude_outside ? taps[i] / kept : taps[i]);
      }
    }
    map.starts.push_back(map.indices.size());
  }
  return map;
}

Error Refused(const std::string& what) { return Error(ErrorCode::kShape, "Resize: " + what); }

}  // namespace

std::vector<AxisMap> ResizeMaps(const KernelCall& call, const void* const* inputs, const Shape& from, const Shape& to) {
  const Attributes& a = call.attributes;
  const Sampling sampling{.mode = a.String("mode", "nearest"),
                          .coordinates = a.String("coordinate_transformation_mode", "half_pixel"),
                          .nearest = a.String("nearest_mode", "round_prefer_floor"),
                          .antialias = a.Int("antialias", 0) != 0,
                          .exclude_outside = a.Int("exclude_outside", 0) != 0,
                          .cubic_a = a.Float("cubic_coeff_a", -0.75)};
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
  if (given(1) && sampling.coordinates == "tf_crop_and_resize") check(1, 2 * n);
  if (given(2)) check(2, n);
  const std::string policy = a.String("keep_aspect_ratio_policy", "stretch");
  double common = 0;
  if (!given(2) && policy != "stretch") {
    if (!given(3)) throw Refused("neither scales nor sizes");
    check(3, n);
    for (size_t i = 0; i < n; ++i) {
      const double extent = static_cast<double>(from[AxisOf(call, axes[i], from.rank())]);
      const double ratio = ElementAsDouble(InputView(call, inputs, 3), static_cast<int64_t>(i)) / extent;
      common = i == 0 ? ratio : policy == "not_larger" ? std::min(common, ratio) : std::max(common, ratio);
    }
  }
  std::vector<AxisMap> maps(static_cast<size_t>(from.rank()));
  for (size_t i = 0; i < n; ++i) {
    const int axis = AxisOf(call, axes[i], from.rank());
    AxisScale scale;
    const int64_t at = static_cast<int64_t>(i);
    scale.scale = given(2)      ? ElementAsDouble(InputView(call, inputs, 2), at)
                  : common != 0 ? common
                                : static_cast<double>(to[axis]) / static_cast<double>(from[axis]);
    if (to[axis] > 0 && (from[axis] == 0 || !(scale.scale > 0)))
      throw Refused("axis " + std::to_string(axis) + " has no elements to scale");
    if (given(1) && sampling.coordinates == "tf_crop_and_resize") {
      scale.roi_start = ElementAsDouble(InputView(call, inputs, 1), at);
      scale.roi_end = ElementAsDouble(InputView(call, inputs, 1), at + static_cast<int64_t>(n));
    }
    maps[static_cast<size_t>(axis)] = MapOf(sampling, scale, from[axis], to[axis]);
  }
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (maps[static_cast<size_t>(axis)].identity && from[axis] != to[axis]) throw Refused("an axis that is not resized changes its extent");
  }
  return maps;
}

}  // namespace gradloom

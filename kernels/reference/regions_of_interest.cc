// Operators over windows other than plain convolution and pooling: Col2Im, deformable convolution, pooling over boxes, and MaxUnpool.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/catalog/deform_conv.h"
#include "kernels/reference/families.h"
#include "kernels/reference/numbers.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

// The digits of i in a mixed radix.
std::vector<int64_t> Digits(int64_t i, const std::vector<int64_t>& radix) {
  std::vector<int64_t> digits(radix.size());
  for (size_t d = radix.size(); d-- > 0; i /= radix[d]) digits[d] = i % radix[d];
  return digits;
}

int64_t ProductOf(const std::vector<int64_t>& values) {
  int64_t product = 1;
  for (int64_t value : values) product *= value;
  return product;
}

// For each element of the columns [channels * taps, windows], the element of the image [channels, image...] that it copies; -1: padding.
std::vector<int64_t> PositionsOfColumns(const KernelCall& call, const std::vector<int64_t>& image, const std::vector<int64_t>& block,
                                        int64_t rows, int64_t windows) {
  const size_t rank = image.size();
  const std::vector<int64_t> dilations = call.attributes.Ints("dilations", std::vector<int64_t>(rank, 1)),
                             strides = call.attributes.Ints("strides", std::vector<int64_t>(rank, 1)),
                             pads = call.attributes.Ints("pads", std::vector<int64_t>(2 * rank, 0));
  const auto positive = [](const std::vector<int64_t>& values, size_t count) {
    return values.size() == count && std::all_of(values.begin(), values.end(), [](int64_t value) { return value > 0; });
  };
  if (!positive(block, rank) || !positive(strides, rank) || !positive(dilations, rank) || pads.size() != 2 * rank)
    throw Error(ErrorCode::kAttr, call.op + ": windows that do not fit an image " + Shape(image).ToString());
  std::vector<int64_t> counts;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t reach = image[d] + pads.at(d) + pads.at(rank + d) - dilations.at(d) * (block.at(d) - 1) - 1;
    counts.push_back(reach < 0 ? 0 : reach / strides.at(d) + 1);
  }
  const int64_t taps = ProductOf(block), points = ProductOf(image);
  if (taps <= 0 || rows % taps != 0 || ProductOf(counts) != windows) {
    throw Error(ErrorCode::kShape, call.op + ": columns [" + std::to_string(rows) + ", " + std::to_string(windows) +
                                       "] are not those of an image " + Shape(image).ToString());
  }
  std::vector<int64_t> positions;
  positions.reserve(static_cast<size_t>(rows * windows));
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<int64_t> tap = Digits(row % taps, block);
    for (int64_t window = 0; window < windows; ++window) {
      const std::vector<int64_t> at = Digits(window, counts);
      int64_t position = 0;
      for (size_t d = 0; d < rank && position >= 0; ++d) {
        const int64_t point = at[d] * strides[d] - pads[d] + tap[d] * dilations[d];
        position = point < 0 || point >= image[d] ? -1 : position * image[d] + point;
      }
      positions.push_back(position < 0 ? -1 : row / taps * points + position);
    }
  }
  return positions;
}

// (columns [N, C * taps, windows], image, block): every element of an image is the sum of its copies.
void Col2Im(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& columns = call.inputs[0].shape;
  const std::vector<int64_t> image = InputInts(call, in, 1), block = InputInts(call, in, 2);
  const std::vector<int64_t> positions = PositionsOfColumns(call, image, block, columns[1], columns[2]);
  const Numbers x = NumbersOf(call, in, 0);
  Numbers y(static_cast<size_t>(call.outputs[0].shape.elements()), 0.0);
  const size_t each = y.size() / static_cast<size_t>(std::max<int64_t>(columns[0], 1));
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t position = positions[i % positions.size()];
    if (position >= 0) y[i / positions.size() * each + static_cast<size_t>(position)] += x[i];
  }
  StoreNumbers(call, 0, y, out);
}

// gradloom.Im2Col(image [N, C, image...]) {block, shape, and the attributes of Col2Im}: the columns. The gradient of Col2Im.
void Im2Col(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape &from = call.inputs[0].shape, &columns = call.outputs[0].shape;
  const std::vector<int64_t> image(from.begin() + 2, from.end());
  const std::vector<int64_t> positions = PositionsOfColumns(call, image, call.attributes.Ints("block"), columns[1], columns[2]);
  const Numbers x = NumbersOf(call, in, 0);
  Numbers y(static_cast<size_t>(columns.elements()), 0.0);
  const size_t each = x.size() / static_cast<size_t>(std::max<int64_t>(columns[0], 1));
  for (size_t i = 0; i < y.size(); ++i) {
    const int64_t position = positions[i % positions.size()];
    if (position >= 0) y[i] = x[i / positions.size() * each + static_cast<size_t>(position)];
  }
  StoreNumbers(call, 0, y, out);
}

// The four pixels around a point of a plane, with their weights and the derivatives of the weights along y and x.
struct Corners {
  std::array<int64_t, 4> at{};
  std::array<double, 4> weight{}, along_y{}, along_x{};
  int count = 0;

  void Add(int64_t position, double w, double y, double x) {
    const auto i = static_cast<size_t>(count++);
    at[i] = position, weight[i] = w, along_y[i] = y, along_x[i] = x;
  }
  double Sample(const double* plane) const {
    double sum = 0;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) sum += weight[i] * plane[at[i]];
    return sum;
  }
};

// Bilinear; pixels outside are zero.
Corners CornersAt(double y, double x, int64_t height, int64_t width) {
  Corners corners;
  const double top = std::floor(y), left = std::floor(x);
  for (int dy = 0; dy < 2; ++dy) {
    for (int dx = 0; dx < 2; ++dx) {
      const double row = top + dy, column = left + dx;
      if (!(row >= 0 && row < static_cast<double>(height) && column >= 0 && column < static_cast<double>(width))) continue;
      const double wy = dy == 0 ? 1 - (y - top) : y - top, wx = dx == 0 ? 1 - (x - left) : x - left;
      corners.Add(static_cast<int64_t>(row) * width + static_cast<int64_t>(column), wy * wx, (dy == 0 ? -1 : 1) * wx,
                  (dx == 0 ? -1 : 1) * wy);
    }
  }
  return corners;
}

// Deformable convolution, whose taps are moved by offsets and weighted by a mask.
struct Deform {
  const KernelCall& call;
  int64_t batch, channels, height, width, filters, kh, kw, oh, ow, groups, offset_groups;
  std::vector<int64_t> pads, strides, dilations;
  Numbers x, w, offset, mask;

  // `like_y` is the shape of the output or its gradient.
  Deform(const KernelCall& c, const void* const* in, const Shape& like_y) : call(c) {
    const Shape &xs = c.inputs[kDeformX].shape, &ws = c.inputs[kDeformW].shape;
    if (xs.rank() != 4) throw Error(ErrorCode::kUnsupported, c.op + ": a tensor " + xs.ToString() + "; planes alone are supported");
    batch = xs[0], channels = xs[1], height = xs[2], width = xs[3], filters = ws[0], kh = ws[2], kw = ws[3], oh = like_y[2], ow = like_y[3];
    groups = c.attributes.Int("group", 1), offset_groups = c.attributes.Int("offset_group", 1);
    pads = c.attributes.Ints("pads", std::vector<int64_t>(4, 0)), strides = c.attributes.Ints("strides", std::vector<int64_t>(2, 1)),
    dilations = c.attributes.Ints("dilations", std::vector<int64_t>(2, 1));
    if (!DeformFits(c)) throw Error(ErrorCode::kShape, c.op + ": operands that do not fit a tensor " + xs.ToString());
    x = NumbersOf(c, in, kDeformX), w = NumbersOf(c, in, kDeformW), offset = NumbersOf(c, in, kDeformOffset);
    mask = Has(c.inputs, kDeformMask) ? NumbersOf(c, in, kDeformMask)
                                      : Numbers(static_cast<size_t>(batch * offset_groups * kh * kw * oh * ow), 1.0);
  }

  // Calls f(image n, offset group, tap, point of the output, index in the mask, index of the y offset) for each sampling point.
  template <typename F>
  void ForEachTap(F&& f) const {
    const int64_t taps = kh * kw, points = oh * ow;
    for (int64_t row = 0; row < batch * offset_groups * taps; ++row) {
      const int64_t tap = row % taps, image_and_group = row / taps;
      for (int64_t p = 0; p < points; ++p)
        f(image_and_group / offset_groups, image_and_group % offset_groups, tap, p, row * points + p, row * 2 * points + p);
    }
  }
  Corners At(int64_t tap, int64_t p, int64_t position) const {
    const double dy = offset[static_cast<size_t>(position)], dx = offset[static_cast<size_t>(position + oh * ow)];
    return CornersAt(static_cast<double>(p / ow * strides[0] - pads[0] + tap / kw * dilations[0]) + dy,
                     static_cast<double>(p % ow * strides[1] - pads[1] + tap % kw * dilations[1]) + dx, height, width);
  }
  // Calls f(filter, index of the weight) for the filters that read channel c at this tap.
  template <typename F>
  void ForEachFilter(int64_t c, int64_t tap, F&& f) const {
    const int64_t in = channels / groups, out = filters / groups, first = c / in * out;
    for (int64_t m = first; m < first + out; ++m) f(m, (m * in + c % in) * kh * kw + tap);
  }
};

void DeformConv(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.outputs[0].shape;
  const Deform d(call, in, shape);
  Numbers y(static_cast<size_t>(shape.elements()), 0.0);
  if (Has(call.inputs, kDeformBias)) {
    const Numbers bias = NumbersOf(call, in, kDeformBias);
    for (size_t i = 0; i < y.size(); ++i) y[i] = bias.at(i / static_cast<size_t>(d.oh * d.ow) % static_cast<size_t>(d.filters));
  }
  const int64_t each = d.channels / d.offset_groups;
  d.ForEachTap([&](int64_t n, int64_t group, int64_t tap, int64_t p, int64_t mask, int64_t offset) {
    const Corners corners = d.At(tap, p, offset);
    for (int64_t c = group * each; c < (group + 1) * each; ++c) {
      const double value =
          corners.Sample(&d.x[static_cast<size_t>((n * d.channels + c) * d.height * d.width)]) * d.mask[static_cast<size_t>(mask)];
      d.ForEachFilter(c, tap, [&](int64_t m, int64_t w) {
        y[static_cast<size_t>((n * d.filters + m) * d.oh * d.ow + p)] += d.w[static_cast<size_t>(w)] * value;
      });
    }
  });
  StoreNumbers(call, 0, y, out);
}

// gradloom.DeformConvGrad(the five of DeformConv, dy) {wanted}.
void DeformConvGrad(const KernelCall& call, const void* const* in, void* const* out) {
  const Deform d(call, in, call.inputs[kDeformInputs].shape);
  const Numbers dy = NumbersOf(call, in, kDeformInputs);
  Numbers dx(d.x.size()), dw(d.w.size()), doffset(d.offset.size()), dmask(d.mask.size()), dbias(static_cast<size_t>(d.filters));
  const int64_t each = d.channels / d.offset_groups, points = d.oh * d.ow;
  for (size_t i = 0; i < dy.size(); ++i) dbias[i / static_cast<size_t>(points) % static_cast<size_t>(d.filters)] += dy[i];
  d.ForEachTap([&](int64_t n, int64_t group, int64_t tap, int64_t p, int64_t mask_at, int64_t offset) {
    const Corners corners = d.At(tap, p, offset);
    const auto at = static_cast<size_t>(mask_at);
    for (int64_t c = group * each; c < (group + 1) * each; ++c) {
      const auto plane = static_cast<size_t>((n * d.channels + c) * d.height * d.width);
      const double value = corners.Sample(&d.x[plane]);
      double g = 0;  // gradient of the sample times the mask
      d.ForEachFilter(c, tap, [&](int64_t m, int64_t w) {
        const double to = dy[static_cast<size_t>((n * d.filters + m) * points + p)];
        g += to * d.w[static_cast<size_t>(w)];
        dw[static_cast<size_t>(w)] += to * value * d.mask[at];
      });
      dmask[at] += g * value;
      for (size_t i = 0; i < static_cast<size_t>(corners.count); ++i) {
        const auto pixel = plane + static_cast<size_t>(corners.at[i]);
        dx[pixel] += g * d.mask[at] * corners.weight[i];
        doffset[static_cast<size_t>(offset)] += g * d.mask[at] * corners.along_y[i] * d.x[pixel];
        doffset[static_cast<size_t>(offset + points)] += g * d.mask[at] * corners.along_x[i] * d.x[pixel];
      }
    }
  });
  const Numbers* gradients[kDeformInputs] = {&dx, &dw, &doffset, &dbias, &dmask};
  const std::vector<int64_t> wanted = call.attributes.Ints("wanted");
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (call.outputs[i].present()) StoreNumbers(call, i, *gradients[wanted[i]], out);
  }
}

// Boxes over images, each divided into bins that are sampled by a grid of points.
struct Regions {
  int64_t channels, height, width, bins_y, bins_x, count;
  double scale, shift;
  int64_t ratio;
  bool takes_max;
  Numbers rois;
  std::vector<int64_t> images;

  // `y` is the shape of the output.
  Regions(const KernelCall& call, const void* const* in, const Shape& x, const Shape& y)
      : channels(x[1]),
        height(x[2]),
        width(x[3]),
        bins_y(y[2]),
        bins_x(y[3]),
        count(y[0]),
        rois(NumbersOf(call, in, 1)),
        images(InputInts(call, in, 2)) {
    const Attributes& a = call.attributes;
    scale = a.Float("spatial_scale", 1);
    shift = a.String("coordinate_transformation_mode", "half_pixel") == "half_pixel" ? 0.5 : 0.0;
    ratio = a.Int("sampling_ratio", 0);
    takes_max = a.String("mode", "avg") == "max";
    if (call.inputs[1].shape != Shape{count, 4} || static_cast<int64_t>(images.size()) != count)
      throw Error(ErrorCode::kShape,
                  call.op + ": boxes " + call.inputs[1].shape.ToString() + " of " + std::to_string(images.size()) + " images");
    constexpr int64_t kMaxPoints = 4096;  // per bin and axis
    if (ratio > kMaxPoints) throw Error(ErrorCode::kLimit, call.op + ": a sampling_ratio of " + std::to_string(ratio));
    for (int64_t image : images) {
      if (image < 0 || image >= x[0])
        throw Error(ErrorCode::kData, call.op + ": image " + std::to_string(image) + " of a batch of " + std::to_string(x[0]));
    }
  }

  // Points up to one pixel outside are clamped to the edge; others are ignored.
  Corners CornersOf(double y, double x) const {
    if (!(y >= -1 && y <= static_cast<double>(height) && x >= -1 && x <= static_cast<double>(width))) return {};
    const auto clamped = [](double at, int64_t extent) { return std::clamp(at, 0.0, static_cast<double>(extent - 1)); };
    return CornersAt(clamped(y, height), clamped(x, width), height, width);
  }

  // Calls f(region, bin, points) for each bin of each region.
  template <typename F>
  void ForEachBin(F&& f) const {
    std::vector<Corners> points;
    for (int64_t r = 0; r < count; ++r) {
      const double* roi = &rois[static_cast<size_t>(r * 4)];
      const double left = roi[0] * scale - shift, top = roi[1] * scale - shift;
      double w = roi[2] * scale - shift - left, h = roi[3] * scale - shift - top;
      if (shift == 0) w = std::max(w, 1.0), h = std::max(h, 1.0);
      const double step_y = h / static_cast<double>(bins_y), step_x = w / static_cast<double>(bins_x);
      // A box that is larger than the image gains nothing from more points; one with NaN corners has no points.
      const auto grid = [&](double step, int64_t extent) -> int64_t {
        if (ratio > 0) return ratio;
        return step > 0 ? static_cast<int64_t>(std::min(std::ceil(step), 4.0 * static_cast<double>(extent) + 4)) : 0;
      };
      const int64_t grid_y = grid(step_y, height), grid_x = grid(step_x, width);
      for (int64_t bin = 0; bin < bins_y * bins_x; ++bin) {
        points.clear();
        for (int64_t i = 0; i < grid_y * grid_x; ++i) {
          const double y = (static_cast<double>(i / grid_x) + 0.5) / static_cast<double>(grid_y),
                       x = (static_cast<double>(i % grid_x) + 0.5) / static_cast<double>(grid_x);
          points.push_back(
              CornersOf(top + (static_cast<double>(bin / bins_x) + y) * step_y, left + (static_cast<double>(bin % bins_x) + x) * step_x));
        }
        f(r, bin, points);
      }
    }
  }
};

// The largest weighted pixel of all points, which is ONNX's definition: its point and corner, or {-1, -1} if there is none.
std::array<int, 2> Largest(const std::vector<Corners>& points, const double* plane, double* value) {
  std::array<int, 2> best{-1, -1};
  *value = 0;
  for (size_t p = 0; p < points.size(); ++p) {
    for (int i = 0; i < points[p].count; ++i) {
      const auto k = static_cast<size_t>(i);
      const double at = points[p].weight[k] * plane[points[p].at[k]];
      if (best[0] >= 0 && at <= *value) continue;
      best = {static_cast<int>(p), i};
      *value = at;
    }
  }
  return best;
}

void RoiAlign(const KernelCall& call, const void* const* in, void* const* out) {
  const Regions regions(call, in, call.inputs[0].shape, call.outputs[0].shape);
  const Numbers x = NumbersOf(call, in, 0);
  Numbers y(static_cast<size_t>(call.outputs[0].shape.elements()), 0.0);
  const int64_t bins = regions.bins_y * regions.bins_x, pixels = regions.height * regions.width;
  regions.ForEachBin([&](int64_t r, int64_t bin, const std::vector<Corners>& points) {
    for (int64_t c = 0; c < regions.channels; ++c) {
      const double* plane = &x[static_cast<size_t>((regions.images[static_cast<size_t>(r)] * regions.channels + c) * pixels)];
      double value = 0;
      if (regions.takes_max) {
        Largest(points, plane, &value);
      } else {
        for (const Corners& corners : points) value += corners.Sample(plane);
        value /= static_cast<double>(std::max<size_t>(points.size(), 1));
      }
      y[static_cast<size_t>((r * regions.channels + c) * bins + bin)] = value;
    }
  });
  StoreNumbers(call, 0, y, out);
}

// gradloom.RoiAlignGrad(x, rois, images, dy) -> dx.
void RoiAlignGrad(const KernelCall& call, const void* const* in, void* const* out) {
  const Regions regions(call, in, call.inputs[0].shape, call.inputs[3].shape);
  const Numbers x = NumbersOf(call, in, 0), dy = NumbersOf(call, in, 3);
  Numbers dx(x.size(), 0.0);
  const int64_t bins = regions.bins_y * regions.bins_x, pixels = regions.height * regions.width;
  regions.ForEachBin([&](int64_t r, int64_t bin, const std::vector<Corners>& points) {
    for (int64_t c = 0; c < regions.channels; ++c) {
      const auto plane = static_cast<size_t>((regions.images[static_cast<size_t>(r)] * regions.channels + c) * pixels);
      const double g = dy[static_cast<size_t>((r * regions.channels + c) * bins + bin)];
      if (regions.takes_max) {
        double value = 0;
        const auto [p, i] = Largest(points, &x[plane], &value);
        if (p < 0) continue;
        const Corners& corners = points[static_cast<size_t>(p)];
        dx[plane + static_cast<size_t>(corners.at[static_cast<size_t>(i)])] += g * corners.weight[static_cast<size_t>(i)];
        continue;
      }
      for (const Corners& corners : points) {
        for (size_t i = 0; i < static_cast<size_t>(corners.count); ++i)
          dx[plane + static_cast<size_t>(corners.at[i])] += g * corners.weight[i] / static_cast<double>(points.size());
      }
    }
  });
  StoreNumbers(call, 0, dx, out);
}

// (x, places): puts each element at its place in a tensor of the shape given by the attributes, which is at the start of the output.
void MaxUnpool(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape &x = call.inputs[0].shape, &y = call.outputs[0].shape;
  const std::vector<int64_t> kernel = call.attributes.Ints("kernel_shape"), positions = InputInts(call, in, 1);
  const size_t rank = kernel.size();
  const std::vector<int64_t> strides = call.attributes.Ints("strides", std::vector<int64_t>(rank, 1)),
                             pads = call.attributes.Ints("pads", std::vector<int64_t>(2 * rank, 0));
  Shape plain = x;
  for (size_t d = 0; d < rank; ++d) {
    const int axis = static_cast<int>(d) + 2;
    plain[axis] = (x[axis] - 1) * strides.at(d) + kernel[d] - pads.at(d) - pads.at(rank + d);
  }
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (plain[axis] > y[axis])
      throw Error(ErrorCode::kShape, call.op + ": an output of shape " + y.ToString() + " cannot hold " + plain.ToString());
  }
  const std::vector<int64_t> radix(plain.begin(), plain.end()), steps = y.strides();
  std::memset(out[0], 0, static_cast<size_t>(call.outputs[0].bytes()));
  WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (size_t i = 0; i < positions.size(); ++i) {
      const std::vector<int64_t> at = Digits(CheckedIndex(call, positions[i], plain.elements()), radix);
      int64_t to = 0;
      for (size_t d = 0; d < at.size(); ++d) to += at[d] * steps[d];
      Out<T>(out, 0)[to] = In<T>(in, 0)[i];
    }
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"Col2Im", "", Col2Im},
    {"DeformConv", "", DeformConv},
    {"DeformConvGrad", "gradloom", DeformConvGrad},
    {"Im2Col", "gradloom", Im2Col},
    {"MaxUnpool", "", MaxUnpool},
    {"RoiAlign", "", RoiAlign},
    {"RoiAlignGrad", "gradloom", RoiAlignGrad},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceRegionsOfInterest() { return kKernels; }

}  // namespace gradloom

// Operators over regions of interest. The image of a box is data, so gradients gather: each pixel sums over the bins of the boxes that may
// have read it, in the order of the boxes.
#include <cmath>

#include "kernels/cuda/float_operand.cuh"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/rows/regions.h"

namespace gradloom::cuda {
namespace {

using cuda_rows::RegionSizes;

// A box as bins that begin at `start` and are `step` apart, each with a grid of points. image is -1 if the box has no valid image, which is
// reported.
struct Box {
  int64_t image;
  double start[2], step[2];  // by axis: y, x
  int32_t grid[2];
};
static_assert(sizeof(Box) <= RegionSizes::kBoxBytes);

// The pixel of a plane that determines a bin, and its weight; -1: none.
struct MaxPixel {
  int64_t pixel;
  double weight;
};
static_assert(sizeof(MaxPixel) == RegionSizes::kMaxPixelBytes);

struct Regions {
  RegionSizes sizes;
  int64_t extent[2], bins[2];  // by axis
  double scale = 1, shift = 0;
  int64_t ratio = 0;
  bool wide = true;
  DType boxes_dtype;
  IndexFault fault;

  Regions(const KernelCall& call, const KernelSite& site)
      : sizes(call),
        extent{sizes.height, sizes.width},
        bins{sizes.bins_y, sizes.bins_x},
        scale(call.attributes.Float("spatial_scale", 1)),
        ratio(call.attributes.Int("sampling_ratio", 0)),
        boxes_dtype(call.inputs[1].dtype),
        fault(site) {
    if (call.op.starts_with("MaxRoiPool")) return;
    shift = call.attributes.String("coordinate_transformation_mode", "half_pixel") == "half_pixel" ? 0.5 : 0.0;
    wide = IsWide(call.inputs[2]);
  }

  GRADLOOM_DEVICE int64_t Image(double image) const {
    if (image >= 0 && image < static_cast<double>(sizes.images)) return static_cast<int64_t>(image);
    Report(fault.fault, fault.site, kIndexOutOfRange, static_cast<int64_t>(image), sizes.images);
    return -1;
  }
};

// A box as RoiAlign reads it: left, top, right, bottom.
GRADLOOM_DEVICE Box AlignedBox(const Regions& regions, const FloatOperand& boxes, const Indices& images, int64_t r) {
  Box box;
  box.image = regions.Image(static_cast<double>(images[r]));
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t at = r * 4 + 1 - axis;
    box.start[axis] = boxes[at] * regions.scale - regions.shift;
    double length = boxes[at + 2] * regions.scale - regions.shift - box.start[axis];
    if (regions.shift == 0 && !(length > 1)) length = 1;
    box.step[axis] = length / static_cast<double>(regions.bins[axis]);
    // A box that is larger than the image gains nothing from more points.
    const double max_points = 4.0 * static_cast<double>(regions.extent[axis]) + 4, points = ::ceil(box.step[axis]);
    box.grid[axis] = static_cast<int32_t>(regions.ratio > 0 ? regions.ratio : points > max_points ? max_points : points > 0 ? points : 0);
  }
  return box;
}

// A box as MaxRoiPool reads it: an image, and corners that are rounded to pixels and inclusive. In float32, which determines where bins
// end.
GRADLOOM_DEVICE Box PooledBox(const Regions& regions, const FloatOperand& boxes, int64_t r) {
  Box box;
  box.image = regions.Image(boxes[r * 5]);
  for (int axis = 0; axis < 2; ++axis) {
    int64_t corners[2];
    for (int k = 0; k < 2; ++k) {
      // Clamps distant coordinates, which stay outside.
      float at = static_cast<float>(boxes[r * 5 + 2 * k + 2 - axis]) * static_cast<float>(regions.scale);
      at = at > 1e9f ? 1e9f : at > -1e9f ? at : -1e9f;
      corners[k] = static_cast<int64_t>(::round(static_cast<double>(at)));
    }
    const int64_t length = corners[1] - corners[0] + 1;
    box.start[axis] = static_cast<double>(corners[0]);
    box.step[axis] = static_cast<float>(length > 1 ? length : 1) / static_cast<float>(regions.bins[axis]);
    box.grid[axis] = 0;
  }
  return box;
}

void FindAlignedBoxes(const Regions& regions, const FloatOperand& boxes, const Indices& images, Box* to, cudaStream_t stream) {
  ForEachElement(
      regions.sizes.count, stream, GRADLOOM_ON_DEVICE(int64_t r) { to[r] = AlignedBox(regions, boxes, images, r); });
}

void FindPooledBoxes(const Regions& regions, const FloatOperand& boxes, Box* to, cudaStream_t stream) {
  ForEachElement(
      regions.sizes.count, stream, GRADLOOM_ON_DEVICE(int64_t r) { to[r] = PooledBox(regions, boxes, r); });
}

// The pixels of an axis around a coordinate, at most two. Coordinates up to one pixel outside are clamped to the edge; others have no
// pixels.
struct LinearTaps {
  int64_t first = 0;
  int count = 0;
  double weight[2] = {};

  GRADLOOM_DEVICE LinearTaps(double at, int64_t extent) {
    if (!(at >= -1 && at <= static_cast<double>(extent))) return;
    const double last = static_cast<double>(extent - 1), inside = at < 0 ? 0 : at > last ? last : at, floor = ::floor(inside);
    first = static_cast<int64_t>(floor);
    count = first + 1 < extent ? 2 : 1;
    weight[1] = inside - floor;
    weight[0] = 1 - weight[1];
  }
};

// The coordinate of point i of a bin's grid along an axis.
GRADLOOM_DEVICE double PointAt(const Box& box, int axis, int64_t bin, int64_t i) {
  const double position = (static_cast<double>(i) + 0.5) / static_cast<double>(box.grid[axis]);
  return box.start[axis] + (static_cast<double>(bin) + position) * box.step[axis];
}

// Calls f(pixel, weight) for the pixels around each point of a bin.
template <typename F>
GRADLOOM_DEVICE void ForEachPixel(const Regions& regions, const Box& box, int64_t bin, const F& f) {
  const Quotient at = Divide(bin, regions.bins[1]);
  for (int64_t i = 0; i < box.grid[0]; ++i) {
    const LinearTaps y(PointAt(box, 0, at.quotient, i), regions.extent[0]);
    for (int64_t j = 0; y.count > 0 && j < box.grid[1]; ++j) {
      const LinearTaps x(PointAt(box, 1, at.rest, j), regions.extent[1]);
      for (int v = 0; x.count > 0 && v < y.count; ++v) {
        for (int u = 0; u < x.count; ++u) f((y.first + v) * regions.extent[1] + x.first + u, y.weight[v] * x.weight[u]);
      }
    }
  }
}

// An output element: a bin of a box in a channel.
struct OutputElement {
  int64_t box, channel, bin;
};
GRADLOOM_DEVICE OutputElement OutputElementOf(const RegionSizes& sizes, int64_t i) {
  const Quotient bin = Divide(i, sizes.bins_y * sizes.bins_x), channel = Divide(bin.quotient, sizes.channels);
  return {channel.quotient, channel.rest, bin.rest};
}

template <typename T>
void Average(const Regions& regions, const Box* boxes, const T* x, T* y, cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachElement(
      regions.sizes.outputs(), stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const OutputElement at = OutputElementOf(regions.sizes, i);
        const Box box = boxes[at.box];
        A sum = 0;
        if (box.image >= 0) {
          const T* const plane = x + (box.image * regions.sizes.channels + at.channel) * (regions.extent[0] * regions.extent[1]);
          ForEachPixel(regions, box, at.bin,
                       [&](int64_t pixel, double weight) { sum += static_cast<A>(weight) * static_cast<A>(plane[pixel]); });
        }
        const int64_t points = int64_t{box.grid[0]} * box.grid[1];
        y[i] = static_cast<T>(sum / static_cast<A>(points > 1 ? points : 1));
      });
}

// The largest weighted pixel of each bin, which is ONNX's definition, and its position. Either output may be null.
template <typename T>
void FindAlignedMaxima(const Regions& regions, const Box* boxes, const T* x, T* y, MaxPixel* max_pixels, cudaStream_t stream) {
  ForEachElement(
      regions.sizes.outputs(), stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const OutputElement at = OutputElementOf(regions.sizes, i);
        const Box box = boxes[at.box];
        MaxPixel best{-1, 0};
        double largest = 0;
        if (box.image >= 0) {
          const T* const plane = x + (box.image * regions.sizes.channels + at.channel) * (regions.extent[0] * regions.extent[1]);
          ForEachPixel(regions, box, at.bin, [&](int64_t pixel, double weight) {
            const double value = weight * static_cast<double>(static_cast<Arithmetic<T>>(plane[pixel]));
            if (best.pixel >= 0 && value <= largest) return;
            best = {pixel, weight};
            largest = value;
          });
        }
        if (y != nullptr) y[i] = static_cast<T>(static_cast<Arithmetic<T>>(largest));
        if (max_pixels != nullptr) max_pixels[i] = best;
      });
}

// The range [first, past) of pixels of a bin of MaxRoiPool along an axis.
struct Range {
  int64_t first, past;
};
GRADLOOM_DEVICE Range PixelsOf(const Regions& regions, const Box& box, int axis, int64_t bin) {
  const float step = static_cast<float>(box.step[axis]);
  const auto at = [&](double position) {
    const int64_t pixel = static_cast<int64_t>(position) + static_cast<int64_t>(box.start[axis]), extent = regions.extent[axis];
    return pixel < 0 ? 0 : pixel > extent ? extent : pixel;
  };
  return {at(::floor(static_cast<double>(static_cast<float>(bin) * step))),
          at(::ceil(static_cast<double>(static_cast<float>(bin + 1) * step)))};
}

template <typename T>
void FindPooledMaxima(const Regions& regions, const Box* boxes, const T* x, T* y, MaxPixel* max_pixels, cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachElement(
      regions.sizes.outputs(), stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const OutputElement at = OutputElementOf(regions.sizes, i);
        const Box box = boxes[at.box];
        const Quotient bin = Divide(at.bin, regions.bins[1]);
        const Range rows = PixelsOf(regions, box, 0, bin.quotient), columns = PixelsOf(regions, box, 1, bin.rest);
        const T* const plane = x + (box.image * regions.sizes.channels + at.channel) * (regions.extent[0] * regions.extent[1]);
        int64_t best = -1;
        A largest = 0;
        for (int64_t row = rows.first; box.image >= 0 && row < rows.past; ++row) {
          for (int64_t column = columns.first; column < columns.past; ++column) {
            const int64_t pixel = row * regions.extent[1] + column;
            const A value = static_cast<A>(plane[pixel]);
            if (best >= 0 && !(value > largest)) continue;
            best = pixel;
            largest = value;
          }
        }
        if (y != nullptr) y[i] = static_cast<T>(largest);
        if (max_pixels != nullptr) max_pixels[i] = {best, 1};
      });
}

// The bins that may read a pixel of an axis. The points of bin b are between start + b * step and the start of the next bin, and each point
// reads pixels less than one pixel away; edge pixels are also read from outside. The range has an additional bin on either side to allow
// for rounding.
GRADLOOM_DEVICE Range BinsNear(const Regions& regions, const Box& box, int axis, int64_t pixel) {
  const int64_t bins = regions.bins[axis];
  if (!(box.step[axis] > 0)) return {0, bins};
  const double low = static_cast<double>(pixel == 0 ? -1 : pixel - 1), high = static_cast<double>(pixel + 1);
  const double first = ::floor((low - box.start[axis]) / box.step[axis]) - 1, past = ::floor((high - box.start[axis]) / box.step[axis]) + 2;
  const double all = static_cast<double>(bins);
  // Comparisons with NaN are false, which gives the range of all bins.
  return {first > 0 ? (first < all ? static_cast<int64_t>(first) : bins) : 0,
          past < all ? (past > 0 ? static_cast<int64_t>(past) : 0) : bins};
}

// The sum of the weights with which the points of a bin read a pixel of an axis.
GRADLOOM_DEVICE double WeightOf(const Regions& regions, const Box& box, int axis, int64_t bin, int64_t pixel) {
  double sum = 0;
  for (int64_t i = 0; i < box.grid[axis]; ++i) {
    const LinearTaps taps(PointAt(box, axis, bin, i), regions.extent[axis]);
    for (int k = 0; k < taps.count; ++k) sum += taps.first + k == pixel ? taps.weight[k] : 0;
  }
  return sum;
}

// Calls f(box, its number, rows of bins, columns of bins) for the boxes over an image that have bins which may read this pixel.
template <typename F>
GRADLOOM_DEVICE void ForEachBoxAt(const Regions& regions, const Box* boxes, int64_t image, int64_t y, int64_t x, const F& f) {
  for (int64_t r = 0; r < regions.sizes.count; ++r) {
    if (boxes[r].image != image) continue;
    const Box box = boxes[r];
    const Range rows = BinsNear(regions, box, 0, y);
    if (rows.first >= rows.past) continue;
    const Range columns = BinsNear(regions, box, 1, x);
    if (columns.first < columns.past) f(box, r, rows, columns);
  }
}

// The position of a pixel in an image and a channel, from its number.
struct Pixel {
  int64_t image, channel, y, x;
};
GRADLOOM_DEVICE Pixel PixelOf(const Regions& regions, int64_t i) {
  const Quotient x = Divide(i, regions.extent[1]), y = Divide(x.quotient, regions.extent[0]),
                 channel = Divide(y.quotient, regions.sizes.channels);
  return {channel.quotient, channel.rest, y.rest, x.rest};
}

// The weights of a point are products of weights along the axes, and so is their sum over the grid of a bin.
template <typename T>
void DistributeAverages(const Regions& regions, const Box* boxes, const T* dy, T* dx, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const RegionSizes sizes = regions.sizes;
  ForEachElement(
      sizes.images * sizes.channels * sizes.pixels(), stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Pixel at = PixelOf(regions, i);
        A sum = 0;
        ForEachBoxAt(regions, boxes, at.image, at.y, at.x, [&](const Box& box, int64_t r, const Range& rows, const Range& columns) {
          const T* const gradients = dy + (r * sizes.channels + at.channel) * (sizes.bins_y * sizes.bins_x);
          const double points = static_cast<double>(box.grid[0]) * static_cast<double>(box.grid[1]);
          for (int64_t row = rows.first; row < rows.past; ++row) {
            const double down = WeightOf(regions, box, 0, row, at.y) / points;
            if (!(down > 0)) continue;
            for (int64_t column = columns.first; column < columns.past; ++column) {
              const double weight = down * WeightOf(regions, box, 1, column, at.x);
              if (weight > 0) sum += static_cast<A>(weight) * static_cast<A>(gradients[row * sizes.bins_x + column]);
            }
          }
        });
        dx[i] = static_cast<T>(sum);
      });
}

template <typename T>
void ScatterToMaxPixels(const Regions& regions, const Box* boxes, const MaxPixel* max_pixels, const T* dy, T* dx, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const RegionSizes sizes = regions.sizes;
  ForEachElement(
      sizes.images * sizes.channels * sizes.pixels(), stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Pixel at = PixelOf(regions, i);
        const int64_t pixel = at.y * sizes.width + at.x;
        A sum = 0;
        ForEachBoxAt(regions, boxes, at.image, at.y, at.x, [&](const Box&, int64_t r, const Range& rows, const Range& columns) {
          const int64_t first = (r * sizes.channels + at.channel) * (sizes.bins_y * sizes.bins_x);
          for (int64_t row = rows.first; row < rows.past; ++row) {
            for (int64_t column = columns.first; column < columns.past; ++column) {
              const int64_t bin = first + row * sizes.bins_x + column;
              if (max_pixels[bin].pixel == pixel) sum += static_cast<A>(max_pixels[bin].weight) * static_cast<A>(dy[bin]);
            }
          }
        });
        dx[i] = static_cast<T>(sum);
      });
}

// The scratch memory: boxes, then the maxima of bins if they are stored.
Box* BoxesIn(const Launch& l) { return static_cast<Box*>(l.scratch); }
MaxPixel* MaxPixelsIn(const Launch& l, const RegionSizes& sizes) {
  return reinterpret_cast<MaxPixel*>(static_cast<char*>(l.scratch) + sizes.count * RegionSizes::kBoxBytes);
}

std::unique_ptr<Kernel> MakeRoiAlign(const KernelCall& call, const KernelSite& site) {
  const bool largest = call.attributes.String("mode", "avg") == "max";
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, regions = Regions(call, site)](const Launch& l) {
      FindAlignedBoxes(regions, {l.inputs[1], regions.boxes_dtype}, {l.inputs[2], regions.wide}, BoxesIn(l), l.stream);
      if (largest)
        FindAlignedMaxima<T>(regions, BoxesIn(l), l.In<T>(0), l.Out<T>(0), nullptr, l.stream);
      else
        Average(regions, BoxesIn(l), l.In<T>(0), l.Out<T>(0), l.stream);
    });
  });
}

std::unique_ptr<Kernel> MakeRoiAlignGrad(const KernelCall& call, const KernelSite& site) {
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, regions = Regions(call, site)](const Launch& l) {
      FindAlignedBoxes(regions, {l.inputs[1], regions.boxes_dtype}, {l.inputs[2], regions.wide}, BoxesIn(l), l.stream);
      if (!regions.sizes.keeps_max_pixels) return DistributeAverages(regions, BoxesIn(l), l.In<T>(3), l.Out<T>(0), l.stream);
      MaxPixel* const max_pixels = MaxPixelsIn(l, regions.sizes);
      FindAlignedMaxima<T>(regions, BoxesIn(l), l.In<T>(0), nullptr, max_pixels, l.stream);
      ScatterToMaxPixels(regions, BoxesIn(l), max_pixels, l.In<T>(3), l.Out<T>(0), l.stream);
    });
  });
}

std::unique_ptr<Kernel> MakeMaxRoiPool(const KernelCall& call, const KernelSite& site) {
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, regions = Regions(call, site)](const Launch& l) {
      FindPooledBoxes(regions, {l.inputs[1], regions.boxes_dtype}, BoxesIn(l), l.stream);
      FindPooledMaxima<T>(regions, BoxesIn(l), l.In<T>(0), l.Out<T>(0), nullptr, l.stream);
    });
  });
}

std::unique_ptr<Kernel> MakeMaxRoiPoolGrad(const KernelCall& call, const KernelSite& site) {
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, regions = Regions(call, site)](const Launch& l) {
      MaxPixel* const max_pixels = MaxPixelsIn(l, regions.sizes);
      FindPooledBoxes(regions, {l.inputs[1], regions.boxes_dtype}, BoxesIn(l), l.stream);
      FindPooledMaxima<T>(regions, BoxesIn(l), l.In<T>(0), nullptr, max_pixels, l.stream);
      ScatterToMaxPixels(regions, BoxesIn(l), max_pixels, l.In<T>(2), l.Out<T>(0), l.stream);
    });
  });
}

constexpr CudaKernel kRegionKernels[] = {
    {"cuda.MaxRoiPool", MakeMaxRoiPool},
    {"cuda.RoiAlign", MakeRoiAlign},
    {"cuda.gradloom.MaxRoiPoolGrad", MakeMaxRoiPoolGrad},
    {"cuda.gradloom.RoiAlignGrad", MakeRoiAlignGrad},
};

}  // namespace

std::span<const CudaKernel> RegionKernels() { return kRegionKernels; }

}  // namespace gradloom::cuda

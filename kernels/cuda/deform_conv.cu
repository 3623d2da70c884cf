// Deformable convolution: a matrix product of the filters and bilinear samples. Samples are computed while tiles are staged, so once for
// all filters of a tile, and are not stored. The gradients store the gradient of the samples, from which the others are computed.
#include <cmath>

#include "kernels/cuda/operands.cuh"
#include "kernels/cuda/plane_sums.cuh"
#include "kernels/cuda/rows/deform_conv.h"
#include "kernels/cuda/sums.cuh"
#include "kernels/cuda/tiled_product.cuh"

namespace gradloom::cuda {
namespace {

using namespace cuda_rows;  // NOLINT: the operands and sizes

// A point between four pixels. In double as in the reference, because rounding decides which pixels are read. Pixels outside are zero.
struct Corners {
  int64_t row, column, height, width;
  double down, right;  // distances from the upper left pixel

  GRADLOOM_DEVICE Corners(double y, double x, int64_t rows, int64_t columns) : height(rows), width(columns) {
    // Clamps distant coordinates, which stay outside, to the range of integers.
    const auto held = [](double at, int64_t extent) {
      return at > -2 ? (at < static_cast<double>(extent) ? at : static_cast<double>(extent)) : -2.0;
    };
    y = held(y, rows);
    x = held(x, columns);
    const double top = ::floor(y), left = ::floor(x);
    row = static_cast<int64_t>(top);
    column = static_cast<int64_t>(left);
    down = y - top;
    right = x - left;
  }

  // Calls f(pixel, weight, derivative of the weight along y, along x) for the pixels inside.
  template <typename F>
  GRADLOOM_DEVICE void ForEach(const F& f) const {
    for (int v = 0; v < 2; ++v) {
      if (row + v < 0 || row + v >= height) continue;
      const double wy = v == 0 ? 1 - down : down;
      for (int u = 0; u < 2; ++u) {
        if (column + u < 0 || column + u >= width) continue;
        const double wx = u == 0 ? 1 - right : right;
        f((row + v) * width + column + u, wy * wx, v == 0 ? -wx : wx, u == 0 ? -wy : wy);
      }
    }
  }
};

// The operands of a forward convolution.
template <typename T>
struct Deform {
  using A = Arithmetic<T>;
  DeformSizes s;
  int64_t pad[2], stride[2], dilation[2];
  const T *x = nullptr, *w = nullptr, *offset = nullptr, *mask = nullptr;

  explicit Deform(const KernelCall& call) : s(call) {
    const std::vector<int64_t> pads = call.attributes.Ints("pads", {0, 0, 0, 0}), strides = call.attributes.Ints("strides", {1, 1}),
                               dilations = call.attributes.Ints("dilations", {1, 1});
    for (size_t axis = 0; axis < 2; ++axis) pad[axis] = pads[axis], stride[axis] = strides[axis], dilation[axis] = dilations[axis];
  }
  Deform Of(const OperandCounts& operands, const Launch& l) const {
    Deform deform = *this;
    deform.x = l.In<T>(kDeformX);
    deform.w = l.In<T>(kDeformW);
    deform.offset = l.In<T>(kDeformOffset);
    deform.mask = operands.In<T>(l, kDeformMask);
    return deform;
  }

  // The offset in the mask of a tap, for an image, an offset group, a tap and a point of the output.
  GRADLOOM_DEVICE int64_t MaskIndex(int64_t image, int64_t group, int64_t tap, int64_t point) const {
    return ((image * s.offset_groups + group) * s.taps() + tap) * s.points() + point;
  }
  GRADLOOM_DEVICE A Mask(int64_t mask_index) const { return mask == nullptr ? A(1) : static_cast<A>(mask[mask_index]); }
  // The same in the offsets, which have two planes for each plane of the mask.
  GRADLOOM_DEVICE int64_t OffsetIndex(int64_t mask_index) const {
    const Quotient at = Divide(mask_index, s.points());
    return 2 * at.quotient * s.points() + at.rest;
  }

  GRADLOOM_DEVICE Corners At(int64_t tap, int64_t point, int64_t mask_index) const {
    const Quotient t = Divide(tap, s.kernel[1]), p = Divide(point, s.out[1]);
    const T* const by = offset + OffsetIndex(mask_index);
    const double dy = static_cast<double>(static_cast<A>(by[0])), dx = static_cast<double>(static_cast<A>(by[s.points()]));
    return {static_cast<double>(p.quotient * stride[0] - pad[0] + t.quotient * dilation[0]) + dy,
            static_cast<double>(p.rest * stride[1] - pad[1] + t.rest * dilation[1]) + dx, s.height, s.width};
  }
  GRADLOOM_DEVICE int64_t OffsetGroup(int64_t channel) const { return Divide(channel, s.channels / s.offset_groups).quotient; }

  // The bilinear sample without the mask.
  GRADLOOM_DEVICE A Sample(const Corners& corners, int64_t image, int64_t channel) const {
    const T* const plane = x + (image * s.channels + channel) * s.pixels();
    A sum = 0;
    corners.ForEach([&](int64_t pixel, double weight, double, double) { sum += static_cast<A>(weight) * static_cast<A>(plane[pixel]); });
    return sum;
  }

  GRADLOOM_DEVICE A Sample(int64_t image, int64_t channel, int64_t tap, int64_t point) const {
    const int64_t mask_index = MaskIndex(image, OffsetGroup(channel), tap, point);
    return Sample(At(tap, point, mask_index), image, channel) * Mask(mask_index);
  }
};

constexpr int kSide = 2;  // a thread computes kSide x kSide sums

// Batched over images and groups: filters times samples.
template <typename T>
void Forward(const Deform<T>& d, const T* bias, T* y, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const int64_t groups = d.s.groups, channels = d.s.group_channels(), filters = d.s.group_filters(), taps = d.s.taps(),
                points = d.s.points();
  const auto w = GRADLOOM_ON_DEVICE(int64_t batch, int64_t m, int64_t k) {
    return static_cast<A>(d.w[(Divide(batch, groups).rest * filters + m) * channels * taps + k]);
  };
  const auto samples = GRADLOOM_ON_DEVICE(int64_t batch, int64_t k, int64_t point) {
    const Quotient image = Divide(batch, groups), channel = Divide(k, taps);
    return d.Sample(image.quotient, image.rest * channels + channel.quotient, channel.rest, point);
  };
  const auto store = GRADLOOM_ON_DEVICE(int64_t batch, int64_t m, int64_t point, A sum) {
    const int64_t filter = Divide(batch, groups).rest * filters + m;
    y[(batch * filters + m) * points + point] = static_cast<T>(bias == nullptr ? sum : sum + static_cast<A>(bias[filter]));
  };
  TiledProduct<A, kSide, Contiguous::kDepth, Contiguous::kRow>({d.s.images * groups, filters, points, channels * taps}, stream, w, samples,
                                                               store);
}

// Batched over groups, summed over all images and points: the gradient of the output times samples.
template <typename T>
void FilterGradient(const Deform<T>& d, const T* dy, T* dw, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const int64_t all = d.s.filters, channels = d.s.group_channels(), filters = d.s.group_filters(), taps = d.s.taps(), points = d.s.points();
  const auto gradients = GRADLOOM_ON_DEVICE(int64_t group, int64_t m, int64_t k) {
    const Quotient image = Divide(k, points);
    return static_cast<A>(dy[(image.quotient * all + group * filters + m) * points + image.rest]);
  };
  const auto samples = GRADLOOM_ON_DEVICE(int64_t group, int64_t k, int64_t column) {
    const Quotient image = Divide(k, points), channel = Divide(column, taps);
    return d.Sample(image.quotient, group * channels + channel.quotient, channel.rest, image.rest);
  };
  const auto store = GRADLOOM_ON_DEVICE(int64_t group, int64_t m, int64_t column, A sum) {
    dw[(group * filters + m) * channels * taps + column] = static_cast<T>(sum);
  };
  TiledProduct<A, kSide, Contiguous::kDepth, Contiguous::kDepth>({d.s.groups, filters, channels * taps, d.s.images * points}, stream,
                                                                 gradients, samples, store);
}

// The gradient of the masked samples, [images, channels, taps, points]: transposed filters times the gradient of the output.
template <typename T>
void SampleGradient(const Deform<T>& d, const T* dy, Arithmetic<T>* samples, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const int64_t groups = d.s.groups, channels = d.s.group_channels(), filters = d.s.group_filters(), taps = d.s.taps(),
                points = d.s.points();
  const auto w = GRADLOOM_ON_DEVICE(int64_t batch, int64_t row, int64_t m) {
    return static_cast<A>(d.w[(Divide(batch, groups).rest * filters + m) * channels * taps + row]);
  };
  const auto gradients = GRADLOOM_ON_DEVICE(int64_t batch, int64_t m, int64_t point) {
    return static_cast<A>(dy[(batch * filters + m) * points + point]);
  };
  const auto store = GRADLOOM_ON_DEVICE(int64_t batch, int64_t row, int64_t point, A sum) {
    samples[(batch * channels * taps + row) * points + point] = sum;
  };
  TiledProduct<A, kSide, Contiguous::kRow, Contiguous::kRow>({d.s.images * groups, channels * taps, points, filters}, stream, w, gradients,
                                                             store);
}

template <typename T>
void BiasGradient(const DeformSizes& s, const T* dy, T* db, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const int64_t points = s.points(), count = s.images * points, filters = s.filters;
  ForEachRow(
      filters, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t m) {
        const A sum = SumOf<A>(block, count, [&](int64_t k) {
          const Quotient image = Divide(k, points);
          return static_cast<A>(dy[(image.quotient * filters + m) * points + image.rest]);
        });
        if (block.thread() == 0) db[m] = static_cast<T>(sum);
      });
}

// One thread per sampling point of an offset group, which all its channels share. Either output may be null.
template <typename T>
void PointGradients(const Deform<T>& d, const Arithmetic<T>* samples, T* doffset, T* dmask, cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachElement(
      d.s.images * d.s.offset_groups * d.s.taps() * d.s.points(), stream, GRADLOOM_ON_DEVICE(int64_t mask_index) {
        const Quotient point = Divide(mask_index, d.s.points()), tap = Divide(point.quotient, d.s.taps()),
                       image = Divide(tap.quotient, d.s.offset_groups);
        const Corners corners = d.At(tap.rest, point.rest, mask_index);
        const int64_t each = d.s.channels / d.s.offset_groups;
        A along_y = 0, along_x = 0, value = 0;
        for (int64_t c = image.rest * each; c < (image.rest + 1) * each; ++c) {
          const int64_t channel = image.quotient * d.s.channels + c;
          const T* const plane = d.x + channel * d.s.pixels();
          A y = 0, x = 0, drawn = 0;
          corners.ForEach([&](int64_t pixel, double weight, double by_y, double by_x) {
            const A at = static_cast<A>(plane[pixel]);
            drawn += static_cast<A>(weight) * at;
            y += static_cast<A>(by_y) * at;
            x += static_cast<A>(by_x) * at;
          });
          const A d_sample = samples[(channel * d.s.taps() + tap.rest) * d.s.points() + point.rest];
          value += d_sample * drawn;
          along_y += d_sample * y;
          along_x += d_sample * x;
        }
        if (dmask != nullptr) dmask[mask_index] = static_cast<T>(value);
        if (doffset == nullptr) return;
        T* const to = doffset + d.OffsetIndex(mask_index);
        to[0] = static_cast<T>(along_y * d.Mask(mask_index));
        to[d.s.points()] = static_cast<T>(along_x * d.Mask(mask_index));
      });
}

// The gradient of the samples from a plane, by tap and point.
template <typename T>
struct WeightedSampleGradient {
  Deform<T> d;
  const Arithmetic<T>* samples;

  GRADLOOM_DEVICE double operator()(int64_t plane, int64_t k) const {
    const Quotient tap = Divide(k, d.s.points()), channel = Divide(plane, d.s.channels);
    const int64_t mask_index = d.MaskIndex(channel.quotient, d.OffsetGroup(channel.rest), tap.quotient, tap.rest);
    return static_cast<double>(samples[plane * d.s.taps() * d.s.points() + k] * d.Mask(mask_index));
  }
};

template <typename T>
void PlaneGradient(const Deform<T>& d, const Arithmetic<T>* samples, const PlaneSums& sums, T* dx, cudaStream_t stream) {
  const int64_t planes = d.s.planes(), sample_count = d.s.taps() * d.s.points();
  const WeightedSampleGradient<T> gradient{d, samples};
  BeginSums<kSumWords<T>>(sums, planes, sample_count, gradient, stream);
  ForEachElement(
      planes * sample_count, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient plane = Divide(i, sample_count), tap = Divide(plane.rest, d.s.points()),
                       channel = Divide(plane.quotient, d.s.channels);
        const double unit = sums.units[plane.quotient], d_sample = gradient(plane.quotient, plane.rest);
        if (!IsFinite(unit)) return;
        const Corners corners =
            d.At(tap.quotient, tap.rest, d.MaskIndex(channel.quotient, d.OffsetGroup(channel.rest), tap.quotient, tap.rest));
        corners.ForEach(
            [&](int64_t pixel, double weight, double, double) { sums.Add<kSumWords<T>>(plane.quotient, pixel, weight * d_sample, unit); });
      });
  const int64_t pixels = d.s.pixels();
  ForEachElement(
      planes * pixels, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient plane = Divide(i, pixels);
        dx[i] = static_cast<T>(static_cast<Arithmetic<T>>(sums.Total<kSumWords<T>>(plane.quotient, plane.rest)));
      });
}

std::unique_ptr<Kernel> MakeDeformConv(const KernelCall& call, const KernelSite&) {
  const OperandCounts operands(call);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, deform = Deform<T>(call)](const Launch& l) {
      Forward(deform.Of(operands, l), operands.In<T>(l, kDeformBias), l.Out<T>(0), l.stream);
    });
  });
}

std::unique_ptr<Kernel> MakeDeformConvGrad(const KernelCall& call, const KernelSite&) {
  const OperandCounts operands(call);
  const WantedOutputs wanted(call);
  const DeformScratch scratch(call);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, deform = Deform<T>(call)](const Launch& l) {
      const Deform<T> d = deform.Of(operands, l);
      const T* const dy = l.In<T>(kDeformInputs);
      char* const memory = static_cast<char*>(l.scratch);
      auto* const samples = reinterpret_cast<Arithmetic<T>*>(memory);
      if (scratch.samples) SampleGradient(d, dy, samples, l.stream);
      if (T* const dx = wanted.Of<T>(l, kDeformX)) {
        char* const sums = memory + scratch.sample_bytes;
        PlaneGradient(d, samples, PlaneSums(sums, sums + scratch.sum_bytes, d.s.pixels(), 4 * d.s.taps() * d.s.points()), dx, l.stream);
      }
      if (T* const dw = wanted.Of<T>(l, kDeformW)) FilterGradient(d, dy, dw, l.stream);
      if (T* const db = wanted.Of<T>(l, kDeformBias)) BiasGradient(d.s, dy, db, l.stream);
      T *const doffset = wanted.Of<T>(l, kDeformOffset), *const dmask = wanted.Of<T>(l, kDeformMask);
      if (doffset != nullptr || dmask != nullptr) PointGradients(d, samples, doffset, dmask, l.stream);
    });
  });
}

constexpr CudaKernel kDeformConvKernels[] = {
    {"cuda.DeformConv", MakeDeformConv},
    {"cuda.gradloom.DeformConvGrad", MakeDeformConvGrad},
};

}  // namespace

std::span<const CudaKernel> DeformConvKernels() { return kDeformConvKernels; }

}  // namespace gradloom::cuda

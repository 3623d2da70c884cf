// RoiAlign in average mode and its gradient. The points of a bin form a grid, and the weights of a point's pixels are products of weights
// along y and x, so the same is true for the average over the bin. A bin is therefore a weighted sum of rows, followed by a weighted sum of
// columns, whatever the number of its points; the gradient is the transpose.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "kernels/cpu/families.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kPixelsPerThread = 1 << 13;

// X [images, channels, height, width], boxes [count, 4] and their images, Y [count, channels, bins_y, bins_x].
struct Geometry {
  int64_t images, channels, height, width, count, bins_y, bins_x, ratio;
  double scale, shift;

  Geometry(const KernelCall& call, const Shape& y)
      : images(call.inputs[0].shape[0]),
        channels(call.inputs[0].shape[1]),
        height(call.inputs[0].shape[2]),
        width(call.inputs[0].shape[3]),
        count(y[0]),
        bins_y(y[2]),
        bins_x(y[3]),
        ratio(call.attributes.Int("sampling_ratio", 0)),
        scale(call.attributes.Float("spatial_scale", 1)),
        shift(call.attributes.String("coordinate_transformation_mode", "half_pixel") == "half_pixel" ? 0.5 : 0.0) {}

  int64_t bins() const { return bins_y * bins_x; }
  int64_t pixels() const { return height * width; }
  int threads(int max_threads) const { return ThreadsFor(count * channels * bins() * 8, kPixelsPerThread, max_threads); }
};

// The bins along an axis of a box: bin b reads pixels [first[b], first[b] + taps[b]) with the weights from weight + b * extent on.
struct Bins {
  int32_t *first, *taps;
  float* weight;
  int64_t bins, extent;

  static int64_t Bytes(int64_t bins, int64_t extent) { return bins * (2 * static_cast<int64_t>(sizeof(int32_t)) + 4 * extent); }
  Bins(int64_t b, int64_t e, std::byte* memory)
      : first(reinterpret_cast<int32_t*>(memory)), taps(first + b), weight(reinterpret_cast<float*>(taps + b)), bins(b), extent(e) {}

  // For a box of `size` pixels from `begin` on. `ratio` is the number of points per bin; 0: one per pixel.
  void Fill(double begin, double size, int64_t ratio) const {
    const double step = size / static_cast<double>(bins), last = static_cast<double>(extent - 1);
    // A box larger than the image gains nothing from more points; one with NaN corners has no points.
    const double max_points = 4.0 * static_cast<double>(extent) + 4, wanted = std::ceil(step);
    const int64_t points = ratio > 0 ? ratio : wanted > 0 ? static_cast<int64_t>(std::min(wanted, max_points)) : 0;
    // Points up to one pixel outside are clamped to the edge, others are ignored.
    const auto for_each = [&](int64_t bin, auto&& f) {
      for (int64_t i = 0; i < points; ++i) {
        const double at = begin + (static_cast<double>(bin) + (static_cast<double>(i) + 0.5) / static_cast<double>(points)) * step;
        if (!(at >= -1 && at <= static_cast<double>(extent))) continue;
        const double inside = std::clamp(at, 0.0, last), below = std::floor(inside);
        f(static_cast<int64_t>(below), static_cast<float>(inside - below));
      }
    };
    for (int64_t bin = 0; bin < bins; ++bin) {
      int64_t from = extent, to = 0;
      for_each(bin, [&](int64_t pixel, float) { from = std::min(from, pixel), to = std::max(to, std::min(pixel + 2, extent)); });
      first[bin] = static_cast<int32_t>(std::min(from, to)), taps[bin] = static_cast<int32_t>(std::max<int64_t>(to - from, 0));
      float* const row = weight + bin * extent;
      std::fill_n(row, taps[bin], 0.0f);
      for_each(bin, [&](int64_t pixel, float beyond) {
        row[pixel - from] += 1 - beyond;
        if (pixel + 1 < to) row[pixel + 1 - from] += beyond;
      });
      for (int64_t tap = 0; tap < taps[bin]; ++tap) row[tap] /= static_cast<float>(points);
    }
  }

  // The range [begin, end) of pixels that any bin reads.
  std::pair<int64_t, int64_t> Reach() const {
    int64_t begin = extent, end = 0;
    for (int64_t bin = 0; bin < bins; ++bin) {
      if (taps[bin] == 0) continue;
      begin = std::min<int64_t>(begin, first[bin]), end = std::max<int64_t>(end, first[bin] + taps[bin]);
    }
    return {begin, std::max(begin, end)};
  }
};

// The memory of a thread: the bins of a box along both axes, and a row of pixels.
struct Box {
  Bins y, x;
  float* row;  // [width]
  int64_t begin = 0, columns = 0;

  static int64_t Bytes(const Geometry& g) {
    return AlignUp(Bins::Bytes(g.bins_y, g.height) + Bins::Bytes(g.bins_x, g.width) + 4 * g.width, kAlignmentBytes);
  }
  Box(const Geometry& g, std::byte* memory)
      : y(g.bins_y, g.height, memory),
        x(g.bins_x, g.width, memory + Bins::Bytes(g.bins_y, g.height)),
        row(reinterpret_cast<float*>(memory + Bins::Bytes(g.bins_y, g.height) + Bins::Bytes(g.bins_x, g.width))) {}

  void Fill(const Geometry& g, const float* roi) {
    const double left = static_cast<double>(roi[0]) * g.scale - g.shift, top = static_cast<double>(roi[1]) * g.scale - g.shift;
    double w = static_cast<double>(roi[2]) * g.scale - g.shift - left, h = static_cast<double>(roi[3]) * g.scale - g.shift - top;
    if (g.shift == 0) w = std::max(w, 1.0), h = std::max(h, 1.0);
    y.Fill(top, h, g.ratio);
    x.Fill(left, w, g.ratio);
    const auto [from, to] = x.Reach();
    begin = from, columns = to - from;
  }
};

void CheckImages(const char* op, const int64_t* images, const Geometry& g) {
  for (int64_t r = 0; r < g.count; ++r) {
    if (images[r] < 0 || images[r] >= g.images) {
      throw Error(ErrorCode::kData,
                  std::string(op) + ": image " + std::to_string(images[r]) + " of a batch of " + std::to_string(g.images));
    }
  }
}

class RoiAlign : public Kernel {
 public:
  explicit RoiAlign(const KernelCall& call) : g_(call, call.outputs[0].shape), threads_(g_.threads(call.threads)) {}

  static int64_t Scratch(const KernelCall& call) {
    const Geometry g(call, call.outputs[0].shape);
    return g.threads(call.threads) * Box::Bytes(g);
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto* const all_x = static_cast<const float*>(inputs[0]);
    const auto* const rois = static_cast<const float*>(inputs[1]);
    const auto* const images = static_cast<const int64_t*>(inputs[2]);
    CheckImages("RoiAlign", images, g_);
    // By planes of the output, where those of a box are adjacent.
    ParallelRanges(g_.count * g_.channels, 1, threads_, [&](int64_t begin, int64_t end) {
      Box box(g_, static_cast<std::byte*>(scratch) + ThreadIndex() * Box::Bytes(g_));
      for (int64_t plane = begin; plane < end; ++plane) {
        const int64_t r = plane / g_.channels, c = plane % g_.channels;
        if (plane == begin || c == 0) box.Fill(g_, rois + r * 4);
        Pool(box, all_x + (images[r] * g_.channels + c) * g_.pixels(), static_cast<float*>(outputs[0]) + plane * g_.bins());
      }
    });
  }

 private:
  void Pool(const Box& box, const float* x, float* y) const {
    for (int64_t by = 0; by < g_.bins_y; ++by) {
      std::fill_n(box.row, box.columns, 0.0f);
      for (int64_t k = 0; k < box.y.taps[by]; ++k) {
        const float weight = box.y.weight[by * g_.height + k];
        const float* const from = x + (box.y.first[by] + k) * g_.width + box.begin;
        for (int64_t i = 0; i < box.columns; ++i) box.row[i] += weight * from[i];
      }
      for (int64_t bx = 0; bx < g_.bins_x; ++bx) {
        if (box.x.taps[bx] == 0) {
          y[by * g_.bins_x + bx] = 0;
          continue;
        }
        const float *const weight = box.x.weight + bx * g_.width, *const from = box.row + (box.x.first[bx] - box.begin);
        float sum = 0;
        for (int64_t k = 0; k < box.x.taps[bx]; ++k) sum += weight[k] * from[k];
        y[by * g_.bins_x + bx] = sum;
      }
    }
  }

  Geometry g_;
  int threads_;
};

// gradloom.RoiAlignGrad(x, rois, images, dy) -> dx. Each plane adds its boxes in order, whatever the thread.
class RoiAlignGrad : public Kernel {
 public:
  explicit RoiAlignGrad(const KernelCall& call) : g_(call, call.inputs[3].shape), threads_(g_.threads(call.threads)) {}

  static int64_t Scratch(const KernelCall& call) {
    const Geometry g(call, call.inputs[3].shape);
    return g.threads(call.threads) * Box::Bytes(g);
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto* const rois = static_cast<const float*>(inputs[1]);
    const auto* const images = static_cast<const int64_t*>(inputs[2]);
    const auto* const all_dy = static_cast<const float*>(inputs[3]);
    auto* const all_dx = static_cast<float*>(outputs[0]);
    CheckImages("RoiAlignGrad", images, g_);
    // By planes of the images.
    ParallelRanges(g_.images * g_.channels, 1, threads_, [&](int64_t begin, int64_t end) {
      Box box(g_, static_cast<std::byte*>(scratch) + ThreadIndex() * Box::Bytes(g_));
      std::fill(all_dx + begin * g_.pixels(), all_dx + end * g_.pixels(), 0.0f);
      for (int64_t r = 0; r < g_.count; ++r) {
        const int64_t image = images[r] * g_.channels, first = std::max(begin, image), last = std::min(end, image + g_.channels);
        if (first >= last) continue;
        box.Fill(g_, rois + r * 4);
        for (int64_t plane = first; plane < last; ++plane)
          Spread(box, all_dy + (r * g_.channels + plane - image) * g_.bins(), all_dx + plane * g_.pixels());
      }
    });
  }

 private:
  void Spread(const Box& box, const float* dy, float* dx) const {
    for (int64_t by = 0; by < g_.bins_y; ++by) {
      std::fill_n(box.row, box.columns, 0.0f);
      for (int64_t bx = 0; bx < g_.bins_x; ++bx) {
        if (box.x.taps[bx] == 0) continue;
        const float gradient = dy[by * g_.bins_x + bx];
        const float* const weight = box.x.weight + bx * g_.width;
        float* const to = box.row + (box.x.first[bx] - box.begin);
        for (int64_t k = 0; k < box.x.taps[bx]; ++k) to[k] += weight[k] * gradient;
      }
      for (int64_t k = 0; k < box.y.taps[by]; ++k) {
        const float weight = box.y.weight[by * g_.height + k];
        float* const to = dx + (box.y.first[by] + k) * g_.width + box.begin;
        for (int64_t i = 0; i < box.columns; ++i) to[i] += weight * box.row[i];
      }
    }
  }

  Geometry g_;
  int threads_;
};

// `y` is the shape of the output or its gradient.
std::string RejectsShapes(const KernelCall& call, const Shape& y) {
  if (call.attributes.String("mode", "avg") != "avg") return "mode " + call.attributes.String("mode", "avg");
  const Shape &x = call.inputs[0].shape, &rois = call.inputs[1].shape, &images = call.inputs[2].shape;
  if (x.rank() != 4 || y.rank() != 4 || x.elements() == 0 || y.elements() == 0) return "nothing to compute";
  if (rois != Shape{y[0], 4} || images != Shape{y[0]} || x[1] != y[1]) return "boxes " + rois.ToString();
  if (call.inputs[2].dtype != DType::kInt64) return std::string(DTypeName(call.inputs[2].dtype));
  constexpr int64_t kMaxPoints = 4096;  // per bin and axis
  if (call.attributes.Int("sampling_ratio", 0) > kMaxPoints) return "many points";
  for (const int input : {0, 1}) {
    if (std::string why = RejectsAllBut(call, DType::kFloat32, input); !why.empty()) return why;
  }
  return "";
}

std::string Rejects(const KernelCall& call) { return RejectsShapes(call, call.outputs[0].shape); }
std::string RejectsGradient(const KernelCall& call) { return RejectsShapes(call, call.inputs[3].shape); }

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.RoiAlign", .op = "RoiAlign", .domain = "", .rejects = Rejects, .scratch_bytes = RoiAlign::Scratch},
     .make = MakeKernel<RoiAlign>},
    {.row = {.name = "cpu.RoiAlignGrad",
             .op = "RoiAlignGrad",
             .domain = "gradloom",
             .rejects = RejectsGradient,
             .scratch_bytes = RoiAlignGrad::Scratch},
     .make = MakeKernel<RoiAlignGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuRoiAlignKernels() { return kKernels; }

}  // namespace gradloom

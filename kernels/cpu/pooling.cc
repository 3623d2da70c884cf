// MaxPool, AveragePool and their gradients: planes in parallel, the points of each window from a table that is
// made once and shared by all planes.
#include <limits>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/reference/spatial.h"

namespace gradloom {
namespace {

constexpr int64_t kPointsPerThread = 1 << 13;
constexpr int64_t kMostPoints = int64_t{1} << 24;  // of a table: 64 MiB

// The input points of every window of one plane, in scan order. Planes lie one after the other, or point by point with
// the channels innermost.
struct WindowTable {
  int64_t images = 0, channels = 0, inputs = 0, outputs = 0;  // points of a plane
  bool innermost = false;
  std::vector<int32_t> first;  // by window, with one more at the end
  std::vector<int32_t> points;

  WindowTable(const KernelCall& call, const OperandType& x, const Shape& y) {
    const Volume in = Volume::Of(x.shape), out = Volume::Of(y);
    const Window3 w = Window3::Of(WindowsOf(call.attributes, x.shape, call.attributes.Ints("kernel_shape")));
    images = in.batch;
    channels = in.channels;
    innermost = !RejectsLayouts(call).empty();
    inputs = in.points();
    outputs = out.points();
    first.reserve(static_cast<size_t>(outputs) + 1);
    ForEachPoint(w, in, out, [&](int64_t window, int64_t point) {
      while (static_cast<int64_t>(first.size()) <= window) first.push_back(static_cast<int32_t>(points.size()));
      points.push_back(static_cast<int32_t>(point));
    });
    while (static_cast<int64_t>(first.size()) <= outputs) first.push_back(static_cast<int32_t>(points.size()));
  }

  int Threads(const KernelCall& call) const {
    return ThreadsFor(images * channels * static_cast<int64_t>(points.size()), kPointsPerThread, call.threads);
  }

  // Calls f(input, output) with offsets for each plane; or, where channels are innermost, for each group of up to
  // kGroup of an image's channels with f(input, output, channels of the group).
  template <typename Plane, typename Group>
  void ForEach(int threads, Plane plane, Group group) const {
    if (!innermost) {
      ParallelFor(images * channels, threads, [&](int64_t i) { plane(i * inputs, i * outputs); });
      return;
    }
    const int64_t groups = (channels + kGroup - 1) / kGroup;
    ParallelFor(images * groups, threads, [&](int64_t i) {
      const int64_t image = i / groups, channel = i % groups * kGroup;
      group(image * inputs * channels + channel, image * outputs * channels + channel, std::min(kGroup, channels - channel));
    });
  }

  bool Empty(size_t window) const { return first[window] == first[window + 1]; }

  // Of a non-empty window: the first largest point; a NaN counts as the largest.
  int32_t Largest(const float* x, size_t window) const {
    const int32_t* at = points.data() + first[window];
    const int32_t* end = points.data() + first[window + 1];
    int32_t best = *at;
    for (++at; at < end; ++at) {
      if (x[*at] > x[best] || (x[*at] != x[*at] && x[best] == x[best])) best = *at;
    }
    return best;
  }

  static constexpr int64_t kGroup = 64;

  // The same for `n` channels next to each other: the largest values and where they are.
  void Largest(const float* x, size_t window, int64_t n, float* value, int32_t* point) const {
    const int32_t* at = points.data() + first[window];
    const int32_t* end = points.data() + first[window + 1];
    for (int64_t c = 0; c < n; ++c) value[c] = x[*at * channels + c], point[c] = *at;
    for (++at; at < end; ++at) {
      const float* row = x + *at * channels;
      for (int64_t c = 0; c < n; ++c) {
        const bool larger = (row[c] > value[c]) | ((row[c] != row[c]) & (value[c] == value[c]));
        value[c] = larger ? row[c] : value[c];
        point[c] = larger ? *at : point[c];
      }
    }
  }
};

class MaxPool : public Kernel {
 public:
  explicit MaxPool(const KernelCall& call) : table_(call, call.inputs[0], call.outputs[0].shape), threads_(table_.Threads(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    constexpr float kEmpty = -std::numeric_limits<float>::infinity();
    const auto windows = static_cast<size_t>(table_.outputs);
    table_.ForEach(
        threads_,
        [&](int64_t in, int64_t out) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          float* y = static_cast<float*>(outputs[0]) + out;
          for (size_t o = 0; o < windows; ++o) y[o] = table_.Empty(o) ? kEmpty : x[table_.Largest(x, o)];
        },
        [&](int64_t in, int64_t out, int64_t n) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          float* y = static_cast<float*>(outputs[0]) + out;
          int32_t point[WindowTable::kGroup];
          for (size_t o = 0; o < windows; ++o, y += table_.channels) {
            if (table_.Empty(o)) {
              std::fill_n(y, n, kEmpty);
            } else {
              table_.Largest(x, o, n, y, point);
            }
          }
        });
  }

 private:
  WindowTable table_;
  int threads_;
};

class MaxPoolGrad : public Kernel {
 public:
  explicit MaxPoolGrad(const KernelCall& call) : table_(call, call.inputs[0], call.inputs[1].shape), threads_(table_.Threads(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto windows = static_cast<size_t>(table_.outputs);
    table_.ForEach(
        threads_,
        [&](int64_t in, int64_t out) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          const float* dy = static_cast<const float*>(inputs[1]) + out;
          float* dx = static_cast<float*>(outputs[0]) + in;
          std::fill_n(dx, table_.inputs, 0.0f);
          for (size_t o = 0; o < windows; ++o) {
            if (!table_.Empty(o)) dx[table_.Largest(x, o)] += dy[o];
          }
        },
        [&](int64_t in, int64_t out, int64_t n) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          const float* dy = static_cast<const float*>(inputs[1]) + out;
          float* dx = static_cast<float*>(outputs[0]) + in;
          float value[WindowTable::kGroup];
          int32_t point[WindowTable::kGroup];
          for (int64_t i = 0; i < table_.inputs; ++i) std::fill_n(dx + i * table_.channels, n, 0.0f);
          for (size_t o = 0; o < windows; ++o, dy += table_.channels) {
            if (table_.Empty(o)) continue;
            table_.Largest(x, o, n, value, point);
            for (int64_t c = 0; c < n; ++c) dx[point[c] * table_.channels + c] += dy[c];
          }
        });
  }

 private:
  WindowTable table_;
  int threads_;
};

std::vector<float> Divisors(const KernelCall& call, const Shape& x, const Shape& y) {
  const Window3 w = Window3::Of(WindowsOf(call.attributes, x, call.attributes.Ints("kernel_shape")));
  const std::vector<int64_t> divisors = AverageDivisors(w, Volume::Of(x), Volume::Of(y), call.attributes.Int("count_include_pad", 0) != 0);
  return {divisors.begin(), divisors.end()};
}

class AveragePool : public Kernel {
 public:
  explicit AveragePool(const KernelCall& call)
      : table_(call, call.inputs[0], call.outputs[0].shape),
        divisors_(Divisors(call, call.inputs[0].shape, call.outputs[0].shape)),
        threads_(table_.Threads(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto windows = static_cast<size_t>(table_.outputs);
    const auto point = [&](int32_t i) { return table_.points[static_cast<size_t>(i)]; };
    table_.ForEach(
        threads_,
        [&](int64_t in, int64_t out) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          float* y = static_cast<float*>(outputs[0]) + out;
          for (size_t o = 0; o < windows; ++o) {
            float sum = 0;
            for (int32_t i = table_.first[o]; i < table_.first[o + 1]; ++i) sum += x[point(i)];
            y[o] = sum / divisors_[o];
          }
        },
        [&](int64_t in, int64_t out, int64_t n) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          float* y = static_cast<float*>(outputs[0]) + out;
          for (size_t o = 0; o < windows; ++o, y += table_.channels) {
            std::fill_n(y, n, 0.0f);
            for (int32_t i = table_.first[o]; i < table_.first[o + 1]; ++i) {
              const float* row = x + point(i) * table_.channels;
              for (int64_t c = 0; c < n; ++c) y[c] += row[c];
            }
            for (int64_t c = 0; c < n; ++c) y[c] /= divisors_[o];
          }
        });
  }

 private:
  WindowTable table_;
  std::vector<float> divisors_;
  int threads_;
};

class AveragePoolGrad : public Kernel {
 public:
  explicit AveragePoolGrad(const KernelCall& call)
      : table_(call, call.outputs[0], call.inputs[0].shape),
        divisors_(Divisors(call, call.outputs[0].shape, call.inputs[0].shape)),
        threads_(table_.Threads(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto windows = static_cast<size_t>(table_.outputs);
    const auto point = [&](int32_t i) { return table_.points[static_cast<size_t>(i)]; };
    table_.ForEach(
        threads_,
        [&](int64_t in, int64_t out) {
          const float* dy = static_cast<const float*>(inputs[0]) + out;
          float* dx = static_cast<float*>(outputs[0]) + in;
          std::fill_n(dx, table_.inputs, 0.0f);
          for (size_t o = 0; o < windows; ++o) {
            const float share = dy[o] / divisors_[o];
            for (int32_t i = table_.first[o]; i < table_.first[o + 1]; ++i) dx[point(i)] += share;
          }
        },
        [&](int64_t in, int64_t out, int64_t n) {
          const float* dy = static_cast<const float*>(inputs[0]) + out;
          float* dx = static_cast<float*>(outputs[0]) + in;
          for (int64_t i = 0; i < table_.inputs; ++i) std::fill_n(dx + i * table_.channels, n, 0.0f);
          for (size_t o = 0; o < windows; ++o, dy += table_.channels) {
            for (int32_t i = table_.first[o]; i < table_.first[o + 1]; ++i) {
              float* row = dx + point(i) * table_.channels;
              for (int64_t c = 0; c < n; ++c) row[c] += dy[c] / divisors_[o];
            }
          }
        });
  }

 private:
  WindowTable table_;
  std::vector<float> divisors_;
  int threads_;
};

// float32 operands that are all plain, or all with the channels innermost.
std::string RejectsOperands(const KernelCall& call) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.present() && operand.dtype != DType::kFloat32) return std::string(DTypeName(operand.dtype));
    }
  }
  const Layout last = ChannelsLast(call.inputs[0].shape.rank());
  if (std::string why = RejectsLayouts(call); why.empty()) return "";
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.shape.rank() != call.inputs[0].shape.rank() || !SamePlaces(operand.layout, last, operand.shape)) {
        return "layout " + operand.layout.ToString();
      }
    }
  }
  return "";
}

// What both directions need: a plane's table in 32 bits, and Y as large as the windows of X make it.
std::string RejectsWindows(const KernelCall& call, const Shape& x, const Shape& y) {
  if (x.rank() < 3 || x.rank() > 5) return "not one to three spatial dimensions";
  const std::vector<int64_t> kernel = call.attributes.Ints("kernel_shape");
  if (static_cast<int>(kernel.size()) != x.rank() - 2 || y.rank() != x.rank()) return "kernel_shape of another rank";
  if (x[0] != y[0] || x[1] != y[1]) return "another batch or other channels";
  int64_t points = 1;
  for (int axis = 2; axis < x.rank(); ++axis) {
    const int64_t width = kernel[static_cast<size_t>(axis - 2)];
    if (width < 1 || y[axis] < 0 || x[axis] > kMostPoints || y[axis] > kMostPoints || width > kMostPoints) return "large windows";
    if (__builtin_mul_overflow(points, y[axis] * width, &points) || points > kMostPoints) return "large windows";
  }
  return Product(x, 2, x.rank()) > kMostPoints ? "large planes" : "";
}

std::string RejectsMaxPool(const KernelCall& call) {
  if (HasOutput(call, 1)) return "indices";
  if (std::string why = RejectsOperands(call); !why.empty()) return why;
  return RejectsWindows(call, call.inputs[0].shape, call.outputs[0].shape);
}

std::string RejectsMaxPoolGrad(const KernelCall& call) {
  if (std::string why = RejectsOperands(call); !why.empty()) return why;
  if (call.inputs[0].shape != call.outputs[0].shape) return "a gradient of another shape";
  return RejectsWindows(call, call.inputs[0].shape, call.inputs[1].shape);
}

std::string RejectsAveragePool(const KernelCall& call) {
  if (std::string why = RejectsOperands(call); !why.empty()) return why;
  return RejectsWindows(call, call.inputs[0].shape, call.outputs[0].shape);
}

std::string RejectsAveragePoolGrad(const KernelCall& call) {
  if (std::string why = RejectsOperands(call); !why.empty()) return why;
  return RejectsWindows(call, call.outputs[0].shape, call.inputs[0].shape);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.MaxPool", .op = "MaxPool", .domain = "", .rejects = RejectsMaxPool}, .make = MakeKernel<MaxPool>},
    {.row = {.name = "cpu.MaxPoolGrad", .op = "MaxPoolGrad", .domain = "gradloom", .rejects = RejectsMaxPoolGrad},
     .make = MakeKernel<MaxPoolGrad>},
    {.row = {.name = "cpu.AveragePool", .op = "AveragePool", .domain = "", .rejects = RejectsAveragePool}, .make = MakeKernel<AveragePool>},
    {.row = {.name = "cpu.AveragePoolGrad", .op = "AveragePoolGrad", .domain = "gradloom", .rejects = RejectsAveragePoolGrad},
     .make = MakeKernel<AveragePoolGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuPoolingKernels() { return kKernels; }

}  // namespace gradloom

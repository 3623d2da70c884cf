// MaxPool, AveragePool and their gradients: planes in parallel, the points of each window from a table that is
// made once and shared by all planes.
#include <limits>
#include <vector>

#include "kernels/cpu/families.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/reference/spatial.h"

namespace gradloom {
namespace {

constexpr int64_t kPointsPerThread = 1 << 13;
constexpr int64_t kMostPoints = int64_t{1} << 24;  // of a table: 64 MiB

// The input points of every window of one plane, in scan order.
struct WindowTable {
  int64_t planes = 0, inputs = 0, outputs = 0;  // points of a plane
  std::vector<int32_t> first;                   // by window, with one more at the end
  std::vector<int32_t> points;

  WindowTable(const KernelCall& call, const Shape& x, const Shape& y) {
    const Volume in = Volume::Of(x), out = Volume::Of(y);
    const Window3 w = Window3::Of(WindowsOf(call.attributes, x, call.attributes.Ints("kernel_shape")));
    planes = in.batch * in.channels;
    inputs = in.points();
    outputs = out.points();
    first.reserve(static_cast<size_t>(outputs) + 1);
    ForEachPoint(w, in, out, [&](int64_t window, int64_t point) {
      while (static_cast<int64_t>(first.size()) <= window) first.push_back(static_cast<int32_t>(points.size()));
      points.push_back(static_cast<int32_t>(point));
    });
    while (static_cast<int64_t>(first.size()) <= outputs) first.push_back(static_cast<int32_t>(points.size()));
  }

  // The threads for all planes.
  int Threads(const KernelCall& call) const {
    return ThreadsFor(planes * static_cast<int64_t>(points.size()), kPointsPerThread, call.threads);
  }

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
};

class MaxPool : public Kernel {
 public:
  explicit MaxPool(const KernelCall& call) : table_(call, call.inputs[0].shape, call.outputs[0].shape), threads_(table_.Threads(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    ParallelFor(table_.planes, threads_, [&](int64_t plane) {
      const float* x = static_cast<const float*>(inputs[0]) + plane * table_.inputs;
      float* y = static_cast<float*>(outputs[0]) + plane * table_.outputs;
      for (size_t o = 0; o < static_cast<size_t>(table_.outputs); ++o) {
        y[o] = table_.first[o] == table_.first[o + 1] ? -std::numeric_limits<float>::infinity() : x[table_.Largest(x, o)];
      }
    });
  }

 private:
  WindowTable table_;
  int threads_;
};

class MaxPoolGrad : public Kernel {
 public:
  explicit MaxPoolGrad(const KernelCall& call) : table_(call, call.inputs[0].shape, call.inputs[1].shape), threads_(table_.Threads(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    ParallelFor(table_.planes, threads_, [&](int64_t plane) {
      const float* x = static_cast<const float*>(inputs[0]) + plane * table_.inputs;
      const float* dy = static_cast<const float*>(inputs[1]) + plane * table_.outputs;
      float* dx = static_cast<float*>(outputs[0]) + plane * table_.inputs;
      std::fill_n(dx, table_.inputs, 0.0f);
      for (size_t o = 0; o < static_cast<size_t>(table_.outputs); ++o) {
        if (table_.first[o] != table_.first[o + 1]) dx[table_.Largest(x, o)] += dy[o];
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
      : table_(call, call.inputs[0].shape, call.outputs[0].shape),
        divisors_(Divisors(call, call.inputs[0].shape, call.outputs[0].shape)),
        threads_(table_.Threads(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    ParallelFor(table_.planes, threads_, [&](int64_t plane) {
      const float* x = static_cast<const float*>(inputs[0]) + plane * table_.inputs;
      float* y = static_cast<float*>(outputs[0]) + plane * table_.outputs;
      for (size_t o = 0; o < static_cast<size_t>(table_.outputs); ++o) {
        float sum = 0;
        for (int32_t i = table_.first[o]; i < table_.first[o + 1]; ++i) sum += x[table_.points[static_cast<size_t>(i)]];
        y[o] = sum / divisors_[o];
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
      : table_(call, call.outputs[0].shape, call.inputs[0].shape),
        divisors_(Divisors(call, call.outputs[0].shape, call.inputs[0].shape)),
        threads_(table_.Threads(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    ParallelFor(table_.planes, threads_, [&](int64_t plane) {
      const float* dy = static_cast<const float*>(inputs[0]) + plane * table_.outputs;
      float* dx = static_cast<float*>(outputs[0]) + plane * table_.inputs;
      std::fill_n(dx, table_.inputs, 0.0f);
      for (size_t o = 0; o < static_cast<size_t>(table_.outputs); ++o) {
        const float share = dy[o] / divisors_[o];
        for (int32_t i = table_.first[o]; i < table_.first[o + 1]; ++i) dx[table_.points[static_cast<size_t>(i)]] += share;
      }
    });
  }

 private:
  WindowTable table_;
  std::vector<float> divisors_;
  int threads_;
};

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
  if (std::string why = RejectsAllBut(call, DType::kFloat32); !why.empty()) return why;
  return RejectsWindows(call, call.inputs[0].shape, call.outputs[0].shape);
}

std::string RejectsMaxPoolGrad(const KernelCall& call) {
  if (std::string why = RejectsAllBut(call, DType::kFloat32); !why.empty()) return why;
  if (call.inputs[0].shape != call.outputs[0].shape) return "a gradient of another shape";
  return RejectsWindows(call, call.inputs[0].shape, call.inputs[1].shape);
}

std::string RejectsAveragePool(const KernelCall& call) {
  if (std::string why = RejectsAllBut(call, DType::kFloat32); !why.empty()) return why;
  return RejectsWindows(call, call.inputs[0].shape, call.outputs[0].shape);
}

std::string RejectsAveragePoolGrad(const KernelCall& call) {
  if (std::string why = RejectsAllBut(call, DType::kFloat32, 0); !why.empty()) return why;
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

// MaxPool and its gradient. Channels-last, the points of a window are rows of channels. If there are few channels, a row of windows is
// processed together: its points are then rows of the image, of which each window uses its part.
#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/convolution/window_table.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kFewChannels = 16;  // fewer do not fill a vector

int64_t LastStride(const KernelCall& call) {
  const std::vector<int64_t> strides = call.attributes.Ints("strides");
  return strides.empty() ? 1 : strides.back();
}

// Whether rows of windows may be processed together, which requires a stride within the input.
bool CanPoolRows(const KernelCall& call, const Shape& x, const Shape& y) {
  const int64_t stride = LastStride(call);
  return !RejectsLayouts(call).empty() && y[1] < kFewChannels && stride >= 1 && stride <= x[x.rank() - 1];
}

// Floats for one row of the image: at least the range that the windows of a row of y cover.
int64_t RowFloats(const KernelCall& call, const Shape& y) {
  return AlignUp(y[y.rank() - 1] * LastStride(call) * y[1], kAlignmentBytes / static_cast<int64_t>(sizeof(float)));
}

// Scratch bytes for `rows` such rows per thread.
int64_t RowScratch(const KernelCall& call, const Shape& x, const Shape& y, int64_t rows) {
  return CanPoolRows(call, x, y) ? std::max(call.threads, 1) * rows * RowFloats(call, y) * static_cast<int64_t>(sizeof(float)) : 0;
}

class MaxPoolBase : public Kernel {
 protected:
  MaxPoolBase(const KernelCall& call, const Shape& x, const Shape& y)
      : table_(call, x, y),
        threads_(table_.Threads(call)),
        loops_(BestLoops()),
        row_floats_(RowFloats(call, y)),
        step_(LastStride(call)),
        by_rows_(CanPoolRows(call, x, y) && table_.Step() == step_) {}

  // The first maximum in a non-empty window of a plane; NaN counts as the maximum.
  int32_t Largest(const float* x, size_t window) const {
    const std::span<const int32_t> points = table_.PointsOf(window);
    int32_t best = points[0];
    for (int32_t point : points.subspan(1)) {
      if (x[point] > x[best] || (x[point] != x[point] && x[best] == x[best])) best = point;
    }
    return best;
  }

  // The points of one window, or of the first window of a row, with `n` elements from each on.
  PoolArgs Points(const float* x, int64_t window, int64_t n) const {
    const std::span<const int32_t> points = table_.PointsOf(static_cast<size_t>(window));
    return {.x = x, .points = points.data(), .taps = static_cast<Index>(points.size()), .stride = table_.channels, .n = n};
  }
  // Elements from the first point of the first window to that of the last one.
  int64_t row_elements() const { return ((table_.row - 1) * step_ + 1) * table_.channels; }

  const WindowTable table_;
  const int threads_;
  const Loops& loops_;
  const int64_t row_floats_;
  const int64_t step_;  // from a window of a row to the next, in points
  bool by_rows_;
};

class MaxPool : public MaxPoolBase {
 public:
  explicit MaxPool(const KernelCall& call) : MaxPoolBase(call, call.inputs[0].shape, call.outputs[0].shape) {}

  static int64_t Scratch(const KernelCall& call) { return RowScratch(call, call.inputs[0].shape, call.outputs[0].shape, 1); }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    constexpr float kEmpty = -std::numeric_limits<float>::infinity();
    table_.ForEach(
        threads_,
        [&](int64_t in, int64_t out) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          float* y = static_cast<float*>(outputs[0]) + out;
          for (size_t o = 0; o < static_cast<size_t>(table_.outputs); ++o) y[o] = table_.Empty(o) ? kEmpty : x[Largest(x, o)];
        },
        [&](int64_t in, int64_t out, int64_t n) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          float* y = static_cast<float*>(outputs[0]) + out;
          if (by_rows_) return Rows(x, y, static_cast<float*>(scratch) + ThreadIndex() * row_floats_);
          for (int64_t o = 0; o < table_.outputs; ++o, y += table_.channels) {
            if (table_.Empty(static_cast<size_t>(o))) {
              std::fill_n(y, n, kEmpty);
            } else {
              loops_.largest(Points(x, o, n), y);
            }
          }
        });
  }

 private:
  void Rows(const float* x, float* y, float* memory) const {
    const int64_t n = table_.channels;
    for (int64_t o = 0; o < table_.outputs; o += table_.row, y += table_.row * n) {
      if (step_ == 1) {
        loops_.largest(Points(x, o, row_elements()), y);
      } else {
        loops_.largest(Points(x, o, row_elements()), memory);
        loops_.repeat_groups(memory, step_ * n, n, table_.row, 1, y);
      }
    }
  }
};

// With the indices of the maxima as ONNX defines them: over the whole of X, row-major whatever the layout.
class MaxPoolIndices : public MaxPoolBase {
 public:
  explicit MaxPoolIndices(const KernelCall& call) : MaxPoolBase(call, call.inputs[0].shape, call.outputs[0].shape) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    constexpr float kEmpty = -std::numeric_limits<float>::infinity();
    table_.ForEach(
        threads_,
        [&](int64_t in, int64_t out) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          float* y = static_cast<float*>(outputs[0]) + out;
          int64_t* indices = static_cast<int64_t*>(outputs[1]) + out;
          for (size_t o = 0; o < static_cast<size_t>(table_.outputs); ++o) {
            const int32_t point = table_.Empty(o) ? -1 : Largest(x, o);
            y[o] = point < 0 ? kEmpty : x[point];
            indices[o] = point < 0 ? -1 : in + point;
          }
        },
        [&](int64_t in, int64_t out, int64_t n) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          float* y = static_cast<float*>(outputs[0]) + out;
          int64_t* indices = static_cast<int64_t*>(outputs[1]) + out;
          const int64_t image = table_.inputs * table_.channels, first = in / image * image + in % image * table_.inputs;
          int32_t index[WindowTable::kGroup];
          for (int64_t o = 0; o < table_.outputs; ++o, y += table_.channels, indices += table_.channels) {
            const bool empty = table_.Empty(static_cast<size_t>(o));
            const PoolArgs window = empty ? PoolArgs() : Points(x, o, n);
            if (!empty) loops_.argmax(window, index);
            for (int64_t c = 0; c < n; ++c) {
              const int32_t point = empty ? -1 : window.points[index[c]];
              y[c] = empty ? kEmpty : x[point * table_.channels + c];
              indices[c] = empty ? -1 : first + c * table_.inputs + point;
            }
          }
        });
  }
};

class MaxPoolGrad : public MaxPoolBase {
 public:
  explicit MaxPoolGrad(const KernelCall& call) : MaxPoolBase(call, call.inputs[0].shape, call.inputs[1].shape) {
    by_rows_ = by_rows_ && Divides();
    for (int64_t i = 0; by_rows_ && i < table_.row * step_ * table_.channels; ++i) {
      own_.push_back(static_cast<int32_t>(i / table_.channels % step_));
    }
  }

  static int64_t Scratch(const KernelCall& call) { return RowScratch(call, call.inputs[0].shape, call.inputs[1].shape, kRows); }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    table_.ForEach(
        threads_,
        [&](int64_t in, int64_t out) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          const float* dy = static_cast<const float*>(inputs[1]) + out;
          float* dx = static_cast<float*>(outputs[0]) + in;
          std::fill_n(dx, table_.inputs, 0.0f);
          for (size_t o = 0; o < static_cast<size_t>(table_.outputs); ++o) {
            if (!table_.Empty(o)) dx[Largest(x, o)] += dy[o];
          }
        },
        [&](int64_t in, int64_t out, int64_t n) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          const float* dy = static_cast<const float*>(inputs[1]) + out;
          float* dx = static_cast<float*>(outputs[0]) + in;
          if (by_rows_) return Rows(x, dy, dx, static_cast<float*>(scratch) + ThreadIndex() * kRows * row_floats_);
          for (int64_t i = 0; i < table_.inputs; ++i) std::fill_n(dx + i * table_.channels, n, 0.0f);
          int32_t index[WindowTable::kGroup];
          for (int64_t o = 0; o < table_.outputs; ++o, dy += table_.channels) {
            if (table_.Empty(static_cast<size_t>(o))) continue;
            const PoolArgs window = Points(x, o, n);
            loops_.argmax(window, index);
            for (int32_t t = 0; t < window.taps; ++t) loops_.add_selected(index, t, dy, n, dx + window.points[t] * table_.channels);
          }
        });
  }

 private:
  static constexpr int64_t kRows = 3;

  // Whether windows are disjoint, and their points form runs as long as the step between windows, so that a run of each window in a row
  // makes a whole row of the image.
  bool Divides() const {
    std::vector<char> seen(static_cast<size_t>(table_.inputs), 0);
    for (int32_t point : table_.points) {
      if (std::exchange(seen[static_cast<size_t>(point)], char{1}) != 0) return false;
    }
    for (int64_t o = 0; o < table_.outputs; o += table_.row) {
      const PoolArgs window = Points(nullptr, o, 0);
      if (window.taps % step_ != 0) return false;
      for (int64_t t = 0; t < window.taps; ++t) {
        if (window.points[t] != window.points[t - t % step_] + t % step_) return false;
      }
    }
    return true;
  }

  void Rows(const float* x, const float* dy, float* dx, float* memory) const {
    const int64_t n = table_.channels, across = table_.row * step_ * n;
    float* found = memory;  // the index of the maximum; then the same for each point of a run
    auto* const indices = reinterpret_cast<int32_t*>(memory + row_floats_);
    float* const g = memory + 2 * row_floats_;
    if (static_cast<int64_t>(table_.points.size()) < table_.inputs) std::fill_n(dx, table_.inputs * n, 0.0f);
    for (int64_t o = 0; o < table_.outputs; o += table_.row, dy += table_.row * n) {
      const PoolArgs window = Points(x, o, row_elements());
      loops_.argmax(window, reinterpret_cast<int32_t*>(found));
      loops_.repeat_groups(found, step_ * n, n, table_.row, step_, reinterpret_cast<float*>(indices));
      loops_.repeat_groups(dy, n, n, table_.row, step_, g);
      for (int64_t t = 0; t < window.taps; t += step_) {
        loops_.select_by_index(indices, own_.data(), static_cast<int32_t>(t), g, across, dx + window.points[t] * n);
      }
    }
  }

  std::vector<int32_t> own_;  // for each element of a row of the image: its point in the run
};

std::string RejectsMaxPool(const KernelCall& call) {
  return HasOutput(call, 1) ? "indices" : RejectsPooling(call, call.inputs[0].shape, call.outputs[0].shape);
}

std::string RejectsMaxPoolIndices(const KernelCall& call) {
  if (!HasOutput(call, 0) || !HasOutput(call, 1)) return "no indices, or nothing else";
  if (call.attributes.Int("storage_order", 0) != 0) return "indices by columns";
  const OperandType &y = call.outputs[0], &indices = call.outputs[1];
  if (indices.dtype != DType::kInt64 || !SameMemoryOrder(indices.layout, y.layout, y.shape)) return "indices in another order";
  KernelCall values = call;
  values.outputs.resize(1);
  return RejectsPooling(values, call.inputs[0].shape, y.shape);
}

std::string RejectsMaxPoolGrad(const KernelCall& call) {
  if (call.inputs[0].shape != call.outputs[0].shape) return "a gradient of another shape";
  return RejectsPooling(call, call.inputs[0].shape, call.inputs[1].shape);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.MaxPool", .op = "MaxPool", .domain = "", .rejects = RejectsMaxPool, .scratch_bytes = MaxPool::Scratch},
     .make = MakeKernel<MaxPool>},
    {.row = {.name = "cpu.MaxPool.indices", .op = "MaxPool", .domain = "", .rejects = RejectsMaxPoolIndices},
     .make = MakeKernel<MaxPoolIndices>},
    {.row = {.name = "cpu.MaxPoolGrad",
             .op = "MaxPoolGrad",
             .domain = "gradloom",
             .rejects = RejectsMaxPoolGrad,
             .scratch_bytes = MaxPoolGrad::Scratch},
     .make = MakeKernel<MaxPoolGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuMaxPoolKernels() { return kKernels; }

}  // namespace gradloom

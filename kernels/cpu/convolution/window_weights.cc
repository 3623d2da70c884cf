// Channels-last, a row of a window is KW * I contiguous elements of x, which fill a vector where the channels alone do not. The gradient is
// a sum over points of outer products of such rows with the channels of y.
#include "kernels/cpu/convolution/window_weights.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/catalog/pointwise.h"
#include "kernels/cpu/convolution/convolution_desc.h"
#include "kernels/cpu/convolution/weight_gradients.h"
#include "kernels/cpu/convolution/window_axis.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kPoints = 128;  // of y at most, whose outer products a tile computes at once: its operands stay in the L1 cache
constexpr int64_t kFewPoints = 16, kFewElements = 12, kMaxSums = 1 << 19;
constexpr int64_t kSumsPerThread = 1 << 14, kSumsAtOnce = 1024;

// dw[O, I, KD, KH, KW] from x[N, D, H, W, I] and dy[N, OD, OH, OW, O]; a missing depth or height is 1. Points are processed in chunks: of
// rows of dy, or of a part of a row.
struct Sizes {
  int64_t images, inputs, outputs;
  WindowAxis depth, height, width;
  int64_t rows, columns;                                                          // of dy in a chunk, at most
  int64_t panel = BestLoops().matrix_panel, panel_rows = BestLoops().panel_rows;  // of a tile, whose columns are two vectors
  int64_t parts;  // sums over ranges of chunks, whose number depends only on the shapes

  explicit Sizes(const KernelCall& call)
      : Sizes(call, VolumeAxesOf(call.attributes, call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape)) {}
  Sizes(const KernelCall& call, const std::array<WindowAxis, 3>& axes)
      : images(call.inputs[0].shape[0]),
        inputs(call.inputs[0].shape[1]),
        outputs(call.inputs[1].shape[1]),
        depth(axes[0]),
        height(axes[1]),
        width(axes[2]) {
    columns = CeilDiv(width.out, CeilDiv(width.out, kPoints));
    const int64_t together = columns < width.out ? 1 : std::clamp<int64_t>(kPoints / width.out, 1, height.out);
    rows = CeilDiv(height.out, CeilDiv(height.out, together));
    const int64_t products = call.inputs[1].shape.elements() * inputs * taps() * width.taps;
    const int64_t read = call.inputs[0].shape.elements() + call.inputs[1].shape.elements();
    parts = std::min(PartsOfWeightGradient(products, read, sums()), chunks());
  }

  int64_t taps() const { return depth.taps * height.taps; }
  // Elements of x that are contiguous in a window: all of its row, unless there are gaps.
  bool whole_rows() const { return width.dilation == 1 || width.taps == 1; }
  int64_t contiguous() const { return whole_rows() ? width.taps * inputs : inputs; }
  int64_t x_panels() const { return CeilDiv(contiguous(), panel) * (whole_rows() ? 1 : width.taps); }
  int64_t y_panels() const { return CeilDiv(outputs, panel_rows); }

  int64_t row_chunks() const { return CeilDiv(height.out, rows); }
  int64_t column_chunks() const { return CeilDiv(width.out, columns); }
  int64_t chunks() const { return images * depth.out * row_chunks() * column_chunks(); }

  // The number of rows of x under the windows of `of` rows of dy, including padding, and of columns.
  int64_t x_rows(int64_t of) const { return (of - 1) * height.stride + (height.taps - 1) * height.dilation + 1; }
  int64_t x_columns(int64_t of) const { return (of - 1) * width.stride + (width.taps - 1) * width.dilation + 1; }

  // Floats of scratch memory: the sums of all parts; then per thread, rows of x with padding, and a panel of them.
  int64_t tile() const { return panel_rows * panel; }
  int64_t sums() const { return taps() * x_panels() * y_panels() * tile(); }
  int64_t x_row() const { return AlignUp(x_columns(columns) * inputs + panel, panel); }
  int64_t padded() const { return x_rows(rows) * x_row(); }
  int64_t packed() const { return x_rows(rows) * columns * panel; }
};

int ThreadsOf(const Sizes& n, int threads) { return static_cast<int>(std::clamp<int64_t>(threads, 1, n.parts)); }

class WindowGradWeight : public Kernel {
 public:
  explicit WindowGradWeight(const KernelCall& call) : n_(call), threads_(ThreadsOf(n_, call.threads)), loops_(BestLoops()) {
    const OperandType& w = call.outputs[0];
    const int rank = w.shape.rank();
    const std::vector<int64_t> none = {0}, inputs = AxisOffsets(w, 1), columns = AxisOffsets(w, rank - 1),
                               depths = rank == 5 ? AxisOffsets(w, 2) : none, rows = rank > 3 ? AxisOffsets(w, rank - 2) : none;
    output_offsets_ = AxisOffsets(w, 0);
    for (int64_t depth : depths) {
      for (int64_t row : rows) tap_offsets_.push_back(depth + row);
    }
    for (int64_t kw = 0; kw < (n_.whole_rows() ? 1 : n_.width.taps); ++kw) {
      for (int64_t first = 0; first < n_.contiguous(); first += n_.panel) {
        Panel panel = {.offset = kw * n_.width.dilation * n_.inputs + first, .places = {}};
        for (int64_t i = first; i < std::min(first + n_.panel, n_.contiguous()); ++i) {
          panel.places.push_back(columns[static_cast<size_t>(kw + i / n_.inputs)] + inputs[static_cast<size_t>(i % n_.inputs)]);
        }
        panels_.push_back(std::move(panel));
      }
    }
    weights_ = w.layout.elements(w.shape);
    padded_ = weights_ != w.shape.elements();
    runs_.resize(static_cast<size_t>(threads_));
    for (Runs& runs : runs_) {
      runs.all.reserve(static_cast<size_t>(n_.height.taps * n_.rows));
      runs.first.reserve(static_cast<size_t>(n_.height.taps + 1));
    }
  }

  static int64_t Scratch(const KernelCall& call) {
    const Sizes n(call);
    return (n.parts * n.sums() + ThreadsOf(n, call.threads) * (n.padded() + n.packed())) * static_cast<int64_t>(sizeof(float));
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = static_cast<const float*>(inputs[0]), *dy = static_cast<const float*>(inputs[1]);
    auto *const dw = static_cast<float*>(outputs[0]), *const sums = static_cast<float*>(scratch);
    const int64_t size = n_.sums(), parts = n_.parts;
    ParallelTasks(parts, threads_, [&](int64_t part, int thread) {
      float* const mine = sums + part * size;
      float* const rows = sums + parts * size + thread * (n_.padded() + n_.packed());
      std::fill_n(mine, size, 0.0f);
      for (int64_t i = n_.chunks() * part / parts; i < n_.chunks() * (part + 1) / parts; ++i) {
        AddChunk(i, x, dy, rows, rows + n_.padded(), runs_[static_cast<size_t>(thread)], mine);
      }
    });
    ParallelRanges(size, kSumsAtOnce, ThreadsFor(size * parts, kSumsPerThread, threads_), [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kSumsAtOnce) {
        for (int64_t part = 1; part < parts; ++part) {
          loops_.pointwise[static_cast<size_t>(PointwiseOp::kAdd)](
              {sums + at, sums + part * size + at, sums + at, sums + at, std::min(kSumsAtOnce, end - at)});
        }
      }
    });
    if (padded_) std::fill_n(dw, weights_, 0.0f);
    Write(sums, dw);
  }

 private:
  // Up to a tile's columns of adjacent elements of a window's row: the offset of the first in x, and their places in dw.
  struct Panel {
    int64_t offset;
    std::vector<int64_t> places;
  };
  // By row of the windows, with one more at the end: the first of its runs of points.
  struct Runs {
    std::vector<OuterRun> all;
    std::vector<size_t> first;
  };
  // Rows [row, row + rows) and columns [column, column + columns) of dy.
  struct Chunk {
    int64_t row, rows, column, columns;
  };

  int64_t FirstOutput(int64_t panel) const {
    const int64_t panels = n_.y_panels();
    return n_.outputs / panels * panel + std::min(panel, n_.outputs % panels);
  }

  void AddChunk(int64_t index, const float* x, const float* dy, float* padded, float* packed, Runs& runs, float* sums) const {
    const int64_t across = n_.column_chunks(), down = n_.row_chunks();
    Chunk chunk = {.row = index / across % down * n_.rows, .rows = 0, .column = index % across * n_.columns, .columns = 0};
    chunk.rows = std::min(n_.rows, n_.height.out - chunk.row);
    chunk.columns = std::min(n_.columns, n_.width.out - chunk.column);
    const int64_t plane = index / (across * down), image = plane / n_.depth.out, depth = plane % n_.depth.out;
    const float* const from = dy + ((plane * n_.height.out + chunk.row) * n_.width.out + chunk.column) * n_.outputs;
    FindRuns(chunk, runs);
    for (int64_t kd = 0; kd < n_.depth.taps; ++kd) {
      const int64_t d = depth * n_.depth.stride - n_.depth.pad + kd * n_.depth.dilation;
      if (d < 0 || d >= n_.depth.in) continue;
      CopyRows(chunk, x + (image * n_.depth.in + d) * n_.height.in * n_.width.in * n_.inputs, padded);
      for (int64_t panel = 0; panel < n_.x_panels(); ++panel) {
        PackPanel(chunk, padded + panels_[static_cast<size_t>(panel)].offset, packed);
        for (int64_t rows = 0; rows < n_.y_panels(); ++rows) {
          for (int64_t kh = 0; kh < n_.height.taps; ++kh) {
            const size_t first = runs.first[static_cast<size_t>(kh)], end = runs.first[static_cast<size_t>(kh + 1)];
            if (first == end) continue;
            loops_.add_outer_products({.rows = FirstOutput(rows + 1) - FirstOutput(rows),
                                       .columns = static_cast<Index>(panels_[static_cast<size_t>(panel)].places.size()),
                                       .a = from + FirstOutput(rows),
                                       .a_step = n_.outputs,
                                       .b = packed,
                                       .runs = runs.all.data() + first,
                                       .count = static_cast<Index>(end - first),
                                       .c = sums + Tile(kd * n_.height.taps + kh, panel, rows),
                                       .adds = true});
          }
        }
      }
    }
  }

  int64_t Tile(int64_t tap, int64_t panel, int64_t rows) const {
    return ((tap * n_.x_panels() + panel) * n_.y_panels() + rows) * n_.tile();
  }

  bool WithinHeight(const Chunk& chunk, int64_t x_row) const {
    const int64_t h = chunk.row * n_.height.stride - n_.height.pad + x_row;
    return h >= 0 && h < n_.height.in;
  }

  void FindRuns(const Chunk& chunk, Runs& runs) const {
    runs.all.clear(), runs.first.assign(1, 0);
    for (int64_t kh = 0; kh < n_.height.taps; ++kh) {
      for (int64_t row = 0; row < chunk.rows; ++row) {
        const int64_t x_row = row * n_.height.stride + kh * n_.height.dilation;
        if (!WithinHeight(chunk, x_row)) continue;
        const OuterRun run = {.a = row * n_.width.out * n_.outputs, .b = x_row * chunk.columns * n_.panel, .points = chunk.columns};
        // A run may continue where the previous one ends.
        OuterRun* const before = runs.all.size() > runs.first.back() ? &runs.all.back() : nullptr;
        if (before != nullptr && before->a + before->points * n_.outputs == run.a && before->b + before->points * n_.panel == run.b) {
          before->points += run.points;
        } else {
          runs.all.push_back(run);
        }
      }
      runs.first.push_back(runs.all.size());
    }
  }

  // Whether a row of x, counted from the first one of the chunk, is under a window.
  bool IsRead(const Chunk& chunk, int64_t x_row) const {
    for (int64_t kh = 0; kh < n_.height.taps; ++kh) {
      const int64_t at = x_row - kh * n_.height.dilation;
      if (at >= 0 && at % n_.height.stride == 0 && at / n_.height.stride < chunk.rows) return WithinHeight(chunk, x_row);
    }
    return false;
  }

  // The columns of `x`, an image, under the windows of the chunk, with zeros for padding and after the end.
  void CopyRows(const Chunk& chunk, const float* x, float* padded) const {
    const int64_t first = chunk.column * n_.width.stride - n_.width.pad, end = first + n_.x_columns(chunk.columns);
    const int64_t begin = std::clamp<int64_t>(first, 0, n_.width.in), after = std::clamp(end, begin, n_.width.in);
    for (int64_t row = 0; row < n_.x_rows(chunk.rows); ++row) {
      if (!IsRead(chunk, row)) continue;
      const int64_t h = chunk.row * n_.height.stride - n_.height.pad + row;
      float* const to = padded + row * n_.x_row();
      float* const copied = std::fill_n(to, std::min(begin - first, end - first) * n_.inputs, 0.0f);
      std::fill(std::copy_n(x + (h * n_.width.in + begin) * n_.inputs, (after - begin) * n_.inputs, copied), to + n_.x_row(), 0.0f);
    }
  }

  void PackPanel(const Chunk& chunk, const float* padded, float* packed) const {
    const int64_t step = n_.width.stride * n_.inputs;
    for (int64_t row = 0; row < n_.x_rows(chunk.rows); ++row) {
      if (!IsRead(chunk, row)) continue;
      const float* from = padded + row * n_.x_row();
      float* to = packed + row * chunk.columns * n_.panel;
      for (int64_t column = 0; column < chunk.columns; ++column, from += step, to += n_.panel) std::copy_n(from, n_.panel, to);
    }
  }

  void Write(const float* sums, float* dw) const {
    for (size_t tap = 0; tap < tap_offsets_.size(); ++tap) {
      for (size_t panel = 0; panel < panels_.size(); ++panel) {
        const std::vector<int64_t>& places = panels_[panel].places;
        for (int64_t rows = 0; rows < n_.y_panels(); ++rows) {
          const float* from = sums + Tile(static_cast<int64_t>(tap), static_cast<int64_t>(panel), rows);
          for (int64_t o = FirstOutput(rows); o < FirstOutput(rows + 1); ++o, from += n_.panel) {
            float* const to = dw + tap_offsets_[tap] + output_offsets_[static_cast<size_t>(o)];
            for (size_t i = 0; i < places.size(); ++i) to[places[i]] = from[i];
          }
        }
      }
    }
  }

  const Sizes n_;
  const int threads_;
  const Loops& loops_;
  std::vector<Panel> panels_;
  std::vector<int64_t> output_offsets_, tap_offsets_;  // tap_offsets_: by depth and row of a window
  std::vector<Runs> runs_;                             // of each thread
  int64_t weights_;                                    // elements of dw, including padding
  bool padded_;
};

// Whether the products of padded operands are three quarters of the library's, which pads y to 8 channels.
bool HasFewChannels(const Sizes& n) {
  const int64_t ours = n.outputs * n.x_panels() * n.panel, library = AlignUp(n.outputs, 8) * n.width.taps * n.inputs;
  return n.contiguous() >= kFewElements && 4 * ours <= 3 * library;
}

std::string RejectsShapes(const KernelCall& call) {
  const std::string_view isa = BestLoops().name;
  if (isa == "baseline") return "a machine without AVX2";
  if (std::string why = RejectsUngroupedGradient(call, 5); !why.empty()) return why;
  // Compared with the library's optimized kernels for AVX2 only.
  if (isa != "avx2" && !IsSlowChannelsLast(call)) return "the library has an optimized implementation";
  // Bounds of the measured gain (docs/benchmarks.md, "Weight gradients of few channels").
  const Sizes n(call);
  if (n.depth.taps <= n.depth.stride && n.height.taps <= n.height.stride && n.width.taps <= n.width.stride) return "separate windows";
  if (n.rows * n.columns < kFewPoints) return "few points";
  if (n.sums() > kMaxSums) return "many weights: their sums leave the cache";
  if (call.inputs[0].shape.rank() == 4 && !HasFewChannels(n) && !IsSlowChannelsLast(call)) return "many channels";
  return "";
}

std::string Rejects(const KernelCall& call) {
  if (std::string why = RejectsShapes(call); !why.empty()) return why;
  return RejectsGradientLayouts(call);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.WindowConvGradWeight",
             .op = "ConvGradWeight",
             .domain = "gradloom",
             .rejects = Rejects,
             .scratch_bytes = WindowGradWeight::Scratch},
     .make = MakeKernel<WindowGradWeight>},
};

}  // namespace

bool ServesWindowWeights(const KernelCall& call) { return call.op == "ConvGradWeight" && RejectsShapes(call).empty(); }

std::span<const CpuKernel> CpuWindowWeightKernels() { return kKernels; }

}  // namespace gradloom

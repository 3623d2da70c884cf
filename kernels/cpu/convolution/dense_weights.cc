#include "kernels/cpu/convolution/dense_weights.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/convolution/weight_gradients.h"
#include "kernels/cpu/convolution/window_axis.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

// Points of y whose outer products a tile computes at once: its columns of y and its rows of x stay in the L1 cache.
constexpr int64_t kPoints = 256;
constexpr int64_t kGap = 16;  // floats between panels, which would otherwise compete for the same cache sets
constexpr int64_t kProductsPerThread = 1 << 18;
constexpr int64_t kReadForEachSum = 16;  // from this ratio on, the library's sums take no noticeable time with AVX-512

// An axis of x as packed: every `step`-th point from `first` on. `axis` describes the windows over these points.
struct PackedAxis {
  WindowAxis axis;
  int64_t first = 0, step = 1;

  explicit PackedAxis(const WindowAxis& of) : axis(of) {
    if (of.taps > 1) return;
    // Only the points under the single tap, contiguous.
    const WindowAxis::Range under = of.OutputRange(0);
    axis = {.in = under.end - under.begin, .out = of.out, .taps = 1, .stride = 1, .pad = under.begin, .dilation = 1};
    first = under.first, step = of.stride;
  }
};

// dw[O, I, KH, KW] from x[N, H, W, I] and dy[N, OH, OW, O]; a missing height is 1. Points are processed in chunks: rows of one image, or
// whole images.
struct Sizes {
  int64_t images, inputs, outputs, x_height, x_width;
  PackedAxis height, width;
  int64_t rows, group;  // at most, per chunk: rows of dy of an image, and images
  int64_t panel_rows = BestLoops().panel_rows, panel_columns = BestLoops().matrix_panel;

  Sizes(const KernelCall& call, const std::pair<WindowAxis, WindowAxis>& axes)
      : images(call.inputs[0].shape[0]),
        inputs(call.inputs[0].shape[1]),
        outputs(call.inputs[1].shape[1]),
        x_height(axes.first.in),
        x_width(axes.second.in),
        height(axes.first),
        width(axes.second) {
    const int64_t out = height.axis.out;
    const int64_t parts = CeilDiv(out, std::clamp<int64_t>(kPoints / width.axis.out, 1, out));
    rows = CeilDiv(out, parts);
    group = parts == 1 ? std::clamp<int64_t>(kPoints / (out * width.axis.out), 1, images) : 1;
  }
  explicit Sizes(const KernelCall& call)
      : Sizes(call, WindowAxesOf(call.attributes, call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape)) {}

  int64_t taps() const { return height.axis.taps * width.axis.taps; }
  bool strided() const { return std::max({height.axis.stride, height.step, width.axis.stride, width.step}) > 1; }
  int64_t x_panels() const { return CeilDiv(inputs, panel_rows); }
  int64_t y_panels() const { return CeilDiv(outputs, panel_columns); }
  // The number of rows of x under the windows of `of` rows of dy.
  int64_t x_rows(int64_t of) const {
    return std::min(height.axis.in, (of - 1) * height.axis.stride + (height.axis.taps - 1) * height.axis.dilation + 1);
  }
  int64_t x_row() const { return width.axis.in * panel_rows; }  // floats of a packed row in a panel
  int64_t y_row() const { return width.axis.out * panel_columns; }
  int64_t x_panel() const { return group * x_rows(rows) * x_row() + kGap; }
  int64_t y_panel() const { return group * rows * y_row() + kGap; }
  int64_t tile() const { return taps() * panel_rows * panel_columns; }  // floats of the sums of two panels

  // Floats of scratch memory.
  int64_t x_packed() const { return AlignUp(x_panels() * x_panel(), 16); }
  int64_t y_packed() const { return AlignUp(y_panels() * y_panel(), 16); }
  int64_t sums() const { return x_panels() * y_panels() * tile(); }
};

// Each chunk has sums of its own, and chunks are added in order, whatever the number of threads; threads share the tiles of dw.
class DenseGradWeight : public Kernel {
 public:
  explicit DenseGradWeight(const KernelCall& call)
      : n_(call),
        threads_(ThreadsFor(call.inputs[1].shape.elements() * n_.inputs * n_.taps(), kProductsPerThread, call.threads)),
        loops_(BestLoops()) {
    const OperandType& w = call.outputs[0];
    const int rank = w.shape.rank();
    output_offsets_ = AxisOffsets(w, 0), input_offsets_ = AxisOffsets(w, 1);
    const std::vector<int64_t> rows = rank == 4 ? AxisOffsets(w, 2) : std::vector<int64_t>{0}, columns = AxisOffsets(w, rank - 1);
    for (int64_t row : rows) {
      for (int64_t column : columns) tap_offsets_.push_back(row + column);
    }
    weights_ = w.layout.elements(w.shape);
    padded_ = weights_ != w.shape.elements();
    for (int64_t image = 0; image < n_.images; image += n_.group) {
      const int64_t images = std::min(n_.group, n_.images - image);
      if (image > 0 && images == n_.group) continue;  // like the previous ones
      for (int64_t row = 0; row < n_.height.axis.out; row += n_.rows) AddChunk(images, row);
    }
  }

  static int64_t Scratch(const KernelCall& call) {
    const Sizes n(call);
    return (n.x_packed() + n.y_packed() + n.sums()) * static_cast<int64_t>(sizeof(float));
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = static_cast<const float*>(inputs[0]), *dy = static_cast<const float*>(inputs[1]);
    auto *dw = static_cast<float*>(outputs[0]), *x_packed = static_cast<float*>(scratch);
    float *const y_packed = x_packed + n_.x_packed(), *const sums = y_packed + n_.y_packed();
    const int64_t parts = CeilDiv(n_.height.axis.out, n_.rows), tiles = n_.x_panels() * n_.y_panels();
    for (int64_t image = 0; image < n_.images; image += n_.group) {
      const bool last = n_.images - image < n_.group;
      for (int64_t part = 0; part < parts; ++part) {
        const Chunk& chunk = chunks_[static_cast<size_t>(part + (last && image > 0 ? parts : 0))];
        Pack(chunk, x + image * n_.x_height * n_.x_width * n_.inputs, dy + image * n_.height.axis.out * n_.width.axis.out * n_.outputs,
             x_packed, y_packed);
        ParallelRanges(tiles, 1, threads_, [&](int64_t begin, int64_t end) {
          for (int64_t tile = begin; tile < end; ++tile) Add(chunk, tile, x_packed, y_packed, sums, image + part > 0);
        });
      }
    }
    if (padded_) std::fill_n(dw, weights_, 0.0f);
    ParallelRanges(tiles, 1, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) Write(tile, sums, dw);
    });
  }

 private:
  // Rows [row, row + rows) of dy in `images` images, and the rows of x under their windows, as packed.
  struct Chunk {
    int64_t images, row, rows, x_row, x_rows;
    std::vector<OuterRun> runs;
    std::vector<size_t> taps;  // by tap, with one more at the end: the first of its runs
  };

  void AddChunk(int64_t images, int64_t row) {
    const WindowAxis &height = n_.height.axis, &width = n_.width.axis;
    Chunk chunk = {
        .images = images, .row = row, .rows = std::min(n_.rows, height.out - row), .x_row = 0, .x_rows = 0, .runs = {}, .taps = {0}};
    const int64_t from = std::clamp<int64_t>(row * height.stride - height.pad, 0, height.in);
    const int64_t to = (row + chunk.rows - 1) * height.stride - height.pad + (height.taps - 1) * height.dilation + 1;
    chunk.x_row = from;
    chunk.x_rows = std::clamp<int64_t>(to, from, height.in) - from;
    for (int64_t kh = 0; kh < height.taps; ++kh) {
      for (int64_t kw = 0; kw < width.taps; ++kw) {
        AddRuns(chunk, kh, width.OutputRange(kw));
        chunk.taps.push_back(chunk.runs.size());
      }
    }
    chunks_.push_back(std::move(chunk));
  }

  void AddRuns(Chunk& chunk, int64_t kh, const WindowAxis::Range& under) const {
    const WindowAxis& height = n_.height.axis;
    if (under.begin == under.end) return;
    const size_t first = chunk.runs.size();
    for (int64_t i = 0; i < chunk.images * chunk.rows; ++i) {
      const int64_t h = (chunk.row + i % chunk.rows) * height.stride + kh * height.dilation - height.pad;
      if (h < 0 || h >= height.in) continue;
      const int64_t at = i / chunk.rows * chunk.x_rows + h - chunk.x_row;
      const OuterRun run = {.a = at * n_.x_row() + under.first * n_.panel_rows,
                            .b = i * n_.y_row() + under.begin * n_.panel_columns,
                            .points = under.end - under.begin};
      // A run may continue where the previous one ends.
      OuterRun* const before = chunk.runs.size() > first ? &chunk.runs.back() : nullptr;
      if (before != nullptr && before->a + before->points * a_step() == run.a && before->b + before->points * n_.panel_columns == run.b) {
        before->points += run.points;
      } else {
        chunk.runs.push_back(run);
      }
    }
  }

  int64_t a_step() const { return n_.width.axis.stride * n_.panel_rows; }

  // The first channel of x in panel i. Panels have nearly equal heights: in a tile of one or two rows, the multiply-adds would wait for
  // each other.
  int64_t FirstInput(int64_t panel) const {
    const int64_t panels = n_.x_panels();
    return n_.inputs / panels * panel + std::min(panel, n_.inputs % panels);
  }

  void Pack(const Chunk& chunk, const float* x, const float* dy, float* x_packed, float* y_packed) const {
    const int64_t x_rows = chunk.images * chunk.x_rows, y_rows = chunk.images * chunk.rows;
    ParallelRanges(x_rows + y_rows, 1, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (i < x_rows) {
          const int64_t h = n_.height.first + (chunk.x_row + i % chunk.x_rows) * n_.height.step;
          PackInputs(x + ((i / chunk.x_rows * n_.x_height + h) * n_.x_width + n_.width.first) * n_.inputs, x_packed + i * n_.x_row());
        } else {
          const int64_t j = i - x_rows, h = chunk.row + j % chunk.rows;
          PackOutputs(dy + (j / chunk.rows * n_.height.axis.out + h) * n_.width.axis.out * n_.outputs, y_packed + j * n_.y_row());
        }
      }
    });
  }

  static constexpr int64_t kBlock = 8;  // points whose channels go to all panels before the next points

  // Copies more than a point has if the excess is overwritten later by the next point.
  void PackInputs(const float* x, float* to) const { n_.panel_rows > 6 ? PackInputs<16>(x, to) : PackInputs<8>(x, to); }

  template <int64_t kCopied>
  void PackInputs(const float* x, float* to) const {
    const int64_t points = n_.width.axis.in, step = n_.width.step * n_.inputs;
    for (int64_t block = 0; block < points; block += kBlock) {
      const int64_t end = std::min(points, block + kBlock);
      for (int64_t panel = 0; panel < n_.x_panels(); ++panel) {
        const int64_t channel = FirstInput(panel), channels = FirstInput(panel + 1) - channel;
        const float* from = x + channel;
        float* const at = to + panel * n_.x_panel();
        int64_t p = block;
        if (channel + kCopied <= n_.inputs) {
          for (; p < std::min(end, points - 1); ++p) std::memcpy(at + p * n_.panel_rows, from + p * step, kCopied * sizeof(float));
        }
        for (; p < end; ++p) std::copy_n(from + p * step, channels, at + p * n_.panel_rows);
      }
    }
  }

  void PackOutputs(const float* dy, float* to) const {
    const int64_t points = n_.width.axis.out;
    for (int64_t block = 0; block < points; block += kBlock) {
      const int64_t end = std::min(points, block + kBlock);
      for (int64_t panel = 0; panel < n_.y_panels(); ++panel) {
        const int64_t channel = panel * n_.panel_columns, channels = n_.outputs - channel;
        const float* from = dy + channel;
        float* const at = to + panel * n_.y_panel();
        for (int64_t p = block; p < end; ++p) {
          if (channels >= n_.panel_columns) {
            std::memcpy(at + p * n_.panel_columns, from + p * n_.outputs, n_.panel_columns * sizeof(float));
          } else {
            std::copy_n(from + p * n_.outputs, channels, at + p * n_.panel_columns);
            std::fill_n(at + p * n_.panel_columns + channels, n_.panel_columns - channels, 0.0f);
          }
        }
      }
    }
  }

  // All taps for one panel of x and one of dy, which stay in the cache meanwhile.
  void Add(const Chunk& chunk, int64_t tile, const float* x_packed, const float* y_packed, float* sums, bool adds) const {
    const int64_t x_panel = tile % n_.x_panels(), y_panel = tile / n_.x_panels();
    OuterArgs args = {.rows = FirstInput(x_panel + 1) - FirstInput(x_panel),
                      .columns = n_.panel_columns,
                      .a = x_packed + x_panel * n_.x_panel(),
                      .a_step = a_step(),
                      .b = y_packed + y_panel * n_.y_panel(),
                      .runs = nullptr,
                      .count = 0,
                      .c = sums + tile * n_.tile(),
                      .adds = adds};
    for (size_t tap = 0; tap + 1 < chunk.taps.size(); ++tap, args.c += n_.panel_rows * n_.panel_columns) {
      args.runs = chunk.runs.data() + chunk.taps[tap];
      args.count = static_cast<Index>(chunk.taps[tap + 1] - chunk.taps[tap]);
      if (args.count > 0 || !adds) loops_.add_outer_products(args);
    }
  }

  void Write(int64_t tile, const float* sums, float* dw) const {
    constexpr int64_t kRun = 8;  // weights that are contiguous in the existing layouts
    const int64_t x_panel = tile % n_.x_panels(), output = tile / n_.x_panels() * n_.panel_columns;
    const int64_t input = FirstInput(x_panel), inputs = FirstInput(x_panel + 1) - input,
                  end = std::min(n_.outputs, output + n_.panel_columns);
    const float* from = sums + tile * n_.tile();
    for (int64_t tap : tap_offsets_) {
      for (int64_t i = 0; i < inputs; ++i) {
        float* const to = dw + tap + input_offsets_[static_cast<size_t>(input + i)];
        const float* const row = from + i * n_.panel_columns;
        for (int64_t o = output; o < end;) {
          const int64_t* const place = output_offsets_.data() + o;
          if (o + kRun <= end && place[kRun - 1] == place[0] + kRun - 1) {
            std::memcpy(to + *place, row + o - output, kRun * sizeof(float));
            o += kRun;
          } else {
            to[*place] = row[o - output];
            ++o;
          }
        }
      }
      from += n_.panel_rows * n_.panel_columns;
    }
  }

  const Sizes n_;
  const int threads_;
  const Loops& loops_;
  std::vector<Chunk> chunks_;  // of the first images; and then of the last ones, if these are fewer
  std::vector<int64_t> output_offsets_, input_offsets_, tap_offsets_;
  int64_t weights_;  // elements of dw, including padding
  bool padded_;
};

std::string RejectsShapes(const KernelCall& call) {
  const std::string_view machine = BestLoops().name;
  if (machine == "baseline") return "a machine without AVX2";
  if (std::string why = RejectsUngroupedGradient(call, 4); !why.empty()) return why;
  const OperandType &x = call.inputs[0], &y = call.inputs[1], &w = call.outputs[0];
  const Sizes n(call);
  // Bounds of the measured gain (docs/benchmarks.md, "The weights' gradient of dense convolutions").
  const bool few_sums = w.shape.elements() * kReadForEachSum < x.shape.elements() + y.shape.elements();
  if (machine == "avx512" && !n.strided() && few_sums) return "few sums for what is read: the library, in parts";
  if (n.inputs < 16 || n.outputs < 16) return "few channels";
  if (n.taps() * n.inputs * n.outputs < 80 * (n.inputs + n.outputs)) return "few products for each element that is packed";
  if (n.width.axis.out > 2048 || n.width.axis.in > 8192) return "wide";
  return "";
}

std::string Rejects(const KernelCall& call) {
  if (std::string why = RejectsShapes(call); !why.empty()) return why;
  return RejectsGradientLayouts(call);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.DenseConvGradWeight",
             .op = "ConvGradWeight",
             .domain = "gradloom",
             .rejects = Rejects,
             .scratch_bytes = DenseGradWeight::Scratch},
     .make = MakeKernel<DenseGradWeight>},
};

}  // namespace

bool ServesDenseWeights(const KernelCall& call) { return call.op == "ConvGradWeight" && RejectsShapes(call).empty(); }

std::span<const CpuKernel> CpuDenseWeightKernels() { return kKernels; }

}  // namespace gradloom

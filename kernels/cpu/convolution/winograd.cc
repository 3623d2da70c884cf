// Convolutions and the gradients of their inputs by Winograd's F(2x2, 3x3). Filters become 16 planes [channels of x, channels of y], and
// patches of x become 16 planes [tiles, channels of x]; their products are transformed to the points of y. If there are many tiles, the
// planes of all filters are computed first, and each thread processes tiles in groups whose patches stay in its L2 cache. If there
// are few tiles, the patches are computed first, and each thread processes panels of y's channels, whose filters it transforms as it goes.
#include <algorithm>
#include <vector>

#include "kernels/catalog/operands.h"
#include "kernels/cpu/convolution/winograd_tiles.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kGroupBytes = 256 << 10;  // of the planes of a group's patches
constexpr int64_t kMinBlocks = 2,
                  kMaxBlocks = 16;  // blocks of rows in a group: with a single one, filters would be read again for each
constexpr int64_t kMaxTilesByPanels = 256;
constexpr int64_t kSummed =
    2 * kWinogradChunk;                  // channels whose products are summed at once: sums of partial sums have smaller rounding errors
constexpr int64_t kTransposedRows = 64;  // filters that are transposed at once
constexpr int64_t kProductsPerThread = 1 << 18;

struct Sizes {
  bool transposed, by_panels;
  WinogradExtents of;
  int64_t panel, panels, chunks;
  int64_t depth, group;  // channels of x whose filters are stored together; tiles whose patches are

  explicit Sizes(const KernelCall& call)
      : transposed(call.op == "ConvGradInput"),
        of(transposed ? WinogradExtents::Of(call).Transposed() : WinogradExtents::Of(call)),
        panel(BestLoops().matrix_panel),
        panels(CeilDiv(of.y_channels, panel)),
        chunks(CeilDiv(of.x_channels, kWinogradChunk)) {
    const int64_t rows = BestLoops().panel_rows;
    const int64_t fit = kGroupBytes / (kWinogradPlanes * chunks * kWinogradChunk * static_cast<int64_t>(sizeof(float)));
    by_panels = of.tiles() < std::min(of.y_channels, kMaxTilesByPanels);
    depth = by_panels ? std::min(of.x_channels, kSummed) : of.x_channels;
    group = by_panels ? of.tiles() : std::clamp(fit, kMinBlocks * rows, kMaxBlocks * rows);
  }
  int64_t filter_plane() const { return depth * panel + kWinogradGap; }
  int64_t patch_plane() const { return chunks * group * kWinogradChunk + kWinogradGap; }
  int64_t product_plane() const { return group * panel + kWinogradGap; }

  // Floats of scratch memory.
  int64_t filters() const { return kWinogradPlanes * filter_plane(); }  // of a panel
  int64_t patches() const { return kWinogradPlanes * patch_plane(); }
  int64_t products() const { return kWinogradPlanes * product_plane(); }
  int64_t taps() const { return transposed ? 9 * kTransposedRows * panel : 0; }
  int64_t shared() const { return AlignUp(by_panels ? patches() : panels * filters(), 16); }
  int64_t own() const { return AlignUp((by_panels ? filters() : patches()) + products() + taps(), 16); }  // per thread
};

class WinogradConvolution : public Kernel {
 public:
  explicit WinogradConvolution(const KernelCall& call) : loops_(BestLoops()), n_(call), has_bias_(HasInput(call, 2)) {
    threads_ = ThreadsFor(kWinogradPlanes * n_.of.tiles() * n_.of.x_channels * n_.of.y_channels, kProductsPerThread, call.threads);
    outside_.assign(static_cast<size_t>(n_.of.x_channels), 0.0f);
  }

  static int64_t Scratch(const KernelCall& call) {
    const Sizes n(call);
    return (n.shared() + call.threads * n.own()) * static_cast<int64_t>(sizeof(float));
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = static_cast<const float*>(inputs[0]), *w = static_cast<const float*>(inputs[1]);
    const auto* bias = has_bias_ ? static_cast<const float*>(inputs[2]) : nullptr;
    auto *y = static_cast<float*>(outputs[0]), *shared = static_cast<float*>(scratch);
    n_.by_panels ? RunByPanels(x, w, bias, y, shared) : RunByTiles(x, w, bias, y, shared);
  }

 private:
  void RunByTiles(const float* x, const float* w, const float* bias, float* y, float* filters) const {
    ParallelRanges(n_.panels * n_.of.x_channels, WinogradLanes(), threads_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end;) {
        const int64_t panel = i / n_.of.x_channels, row = i % n_.of.x_channels, rows = std::min(end - i, n_.of.x_channels - row);
        TransformFilters(w, panel, row, rows, filters + panel * n_.filters() + row * n_.panel, Own(filters) + n_.patches() + n_.products());
        i += rows;
      }
    });
    ParallelRanges(n_.of.tiles(), 1, threads_, [&](int64_t begin, int64_t end) {
      const int64_t groups = CeilDiv(end - begin, n_.group), tiles = end - begin;
      float *const patches = Own(filters), *const products = patches + n_.patches();
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t first = begin + tiles * g / groups, last = begin + tiles * (g + 1) / groups;
        TransformPatches(x, first, last, patches);
        for (int64_t panel = 0; panel < n_.panels; ++panel) {
          Multiply(filters + panel * n_.filters(), panel, 0, last - first, patches, products);
          WritePoints(products, panel, first, last, bias, y);
        }
      }
    });
  }

  void RunByPanels(const float* x, const float* w, const float* bias, float* y, float* patches) const {
    const int64_t tiles = n_.of.tiles();
    ParallelRanges(tiles, 1, threads_,
                   [&](int64_t begin, int64_t end) { TransformPatches(x, begin, end, patches + begin * kWinogradChunk); });
    ParallelRanges(n_.panels, 1, threads_, [&](int64_t begin, int64_t end) {
      float *const filters = Own(patches), *const products = filters + n_.filters();
      for (int64_t panel = begin; panel < end; ++panel) {
        for (int64_t row = 0; row < n_.of.x_channels; row += n_.depth) {
          TransformFilters(w, panel, row, std::min(n_.depth, n_.of.x_channels - row), filters, products + n_.products());
          Multiply(filters, panel, row, tiles, patches, products);
        }
        WritePoints(products, panel, 0, tiles, bias, y);
      }
    });
  }

  float* Own(float* shared) const { return shared + n_.shared() + ThreadIndex() * n_.own(); }
  int64_t Columns(int64_t panel) const { return std::min(n_.panel, n_.of.y_channels - panel * n_.panel); }

  // Transforms `rows` rows of a panel's planes; `taps` is memory for 9 * kTransposedRows rows.
  void TransformFilters(const float* w, int64_t panel, int64_t row, int64_t rows, float* filters, float* taps) const {
    const int64_t x = n_.of.x_channels, columns = Columns(panel), lanes = WinogradLanes();
    WinogradFilterArgs args = {.w = w + panel * n_.panel * 9 * x + row * lanes,
                               .tap_step = x * lanes,
                               .row_step = lanes,
                               .vector_step = 9 * x * lanes,
                               .rows = rows,
                               .columns = columns,
                               .to = filters,
                               .plane = n_.filter_plane(),
                               .to_step = n_.panel};
    if (!n_.transposed) return loops_.winograd_filter(args);
    // w is [x's channels / lanes, 3, 3, y's, lanes] of this convolution. Its taps are used in reverse order, each transposed.
    const int64_t y = n_.of.y_channels;
    args.w = taps, args.row_step = n_.panel, args.vector_step = lanes;
    for (const int64_t end = row + rows; row < end; row += args.rows, args.to += args.rows * n_.panel) {
      args.rows = std::min(kTransposedRows, end - row);
      args.tap_step = args.rows * n_.panel;
      for (int64_t tap = 0; tap < 9; ++tap) {
        for (int64_t i = 0; i < args.rows; i += lanes) {
          loops_.transpose(w + ((row + i) * 9 + (8 - tap) * lanes) * y + panel * n_.panel * lanes, lanes,
                           taps + tap * args.tap_step + i * n_.panel, n_.panel, lanes, columns);
        }
      }
      loops_.winograd_filter(args);
    }
  }

  void TransformPatches(const float* x, int64_t first, int64_t last, float* patches) const {
    WinogradCursor cursor(n_.of, first);
    for (int64_t tile = first; tile < last; ++tile, cursor.Next(), patches += kWinogradChunk) {
      const float* points[16];
      cursor.Patch(x, outside_.data(), points);
      loops_.winograd_patch({.points = points,
                             .channels = n_.of.x_channels,
                             .to = patches,
                             .plane = n_.patch_plane(),
                             .step = n_.group * kWinogradChunk,
                             .part = 0,
                             .parts = 1});
    }
  }

  // Multiplies by the filters of x's channels from `channel` on, and accumulates unless `channel` is 0.
  void Multiply(const float* filters, int64_t panel, int64_t channel, int64_t tiles, const float* patches, float* products) const {
    const int64_t blocks = CeilDiv(tiles, loops_.panel_rows), depth = std::min(n_.depth, n_.of.x_channels - channel);
    for (int64_t plane = 0; plane < kWinogradPlanes; ++plane) {
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = tiles * block / blocks, last = tiles * (block + 1) / blocks;
        for (int64_t at = 0; at < depth; at += kSummed) {
          loops_.winograd_products({.rows = last - first,
                                    .columns = Columns(panel),
                                    .depth = std::min(kSummed, depth - at),
                                    .a = patches + plane * n_.patch_plane() + (channel + at) * n_.group + first * kWinogradChunk,
                                    .a_step = n_.group * kWinogradChunk,
                                    .b = filters + plane * n_.filter_plane() + at * n_.panel,
                                    .c = products + plane * n_.product_plane() + first * n_.panel,
                                    .adds = channel + at > 0});
        }
      }
    }
  }

  void WritePoints(const float* products, int64_t panel, int64_t first, int64_t last, const float* bias, float* y) const {
    const int64_t channel = panel * n_.panel;
    WinogradCursor cursor(n_.of, first);
    for (int64_t tile = first; tile < last; ++tile, cursor.Next(), products += n_.panel) {
      float* points[4];
      cursor.Tile<float>(y + channel, nullptr, points);
      loops_.winograd_output(products, n_.product_plane(), Columns(panel), bias != nullptr ? bias + channel : nullptr, points);
    }
  }

  const Loops& loops_;
  const Sizes n_;
  bool has_bias_;
  int threads_;
  std::vector<float> outside_;  // a point in the padding
};

constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = RejectsWinograd, .scratch_bytes = WinogradConvolution::Scratch},
          .make = MakeKernel<WinogradConvolution>};
}

constexpr CpuKernel kKernels[] = {
    Row("cpu.WinogradConv", "Conv", ""),
    Row("cpu.WinogradConvGradInput", "ConvGradInput", "gradloom"),
};

}  // namespace

std::span<const CpuKernel> CpuWinogradKernels() { return kKernels; }

}  // namespace gradloom

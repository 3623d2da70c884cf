// The gradients of the filters of convolutions by Winograd's F(3x3, 2x2): each of 16 planes is the sum over tiles of the outer products of
// a transformed patch of x and a transformed tile of y's gradient. Threads transform a part of the tiles, and then compute the sums in the
// order of the tiles, whatever the number of threads. If there are several parts, groups of threads own planes, because data just written
// by another core is slow to read.
#include <algorithm>
#include <vector>

#include "kernels/cpu/convolution/winograd_tiles.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kPartBytes = 4 << 20;  // of the planes of a part of the tiles
constexpr int64_t kMinTiles = 128, kMaxTiles = 256;
constexpr int64_t kSummed = 64;  // tiles whose products are summed at once: sums of partial sums have smaller rounding errors
constexpr int64_t kProductsPerThread = 1 << 18;

struct Sizes {
  WinogradExtents of;
  int64_t panel, panels, chunks, parts, tiles;  // tiles: at most, per part

  explicit Sizes(const KernelCall& call)
      : of(WinogradExtents::Of(call)),
        panel(BestLoops().matrix_panel),
        panels(CeilDiv(of.y_channels, panel)),
        chunks(CeilDiv(of.x_channels, kWinogradChunk)) {
    const int64_t bytes = kWinogradPlanes * (chunks * kWinogradChunk + panels * panel) * static_cast<int64_t>(sizeof(float));
    parts = CeilDiv(of.tiles(), std::clamp(kPartBytes / bytes, kMinTiles, kMaxTiles));
    tiles = CeilDiv(of.tiles(), parts);
  }
  int64_t x_chunk() const { return tiles * kWinogradChunk; }
  int64_t y_panel() const { return tiles * panel; }
  int64_t x_plane() const { return chunks * x_chunk() + kWinogradGap; }
  int64_t y_plane() const { return panels * y_panel() + kWinogradGap; }
  int64_t sum_plane() const { return kWinogradChunk * panel + kWinogradGap; }

  // Floats of scratch memory. If one part has all tiles, the sums of a chunk of x's channels and a panel of y's belong to a thread.
  int64_t x_planes() const { return kWinogradPlanes * x_plane(); }
  int64_t y_planes() const { return kWinogradPlanes * y_plane(); }
  int64_t sums() const { return kWinogradPlanes * sum_plane(); }
  int64_t all(int threads) const { return x_planes() + y_planes() + (parts > 1 ? chunks * panels : threads) * sums(); }
};

class WinogradGradWeight : public Kernel {
 public:
  explicit WinogradGradWeight(const KernelCall& call) : loops_(BestLoops()), n_(call) {
    threads_ = ThreadsFor(kWinogradPlanes * n_.of.tiles() * n_.of.x_channels * n_.of.y_channels, kProductsPerThread, call.threads);
    groups_ = n_.parts == 1 || threads_ % 2 != 0 ? 1 : threads_ % 4 != 0 ? 2 : 4;
    outside_.assign(static_cast<size_t>(std::max(n_.of.x_channels, n_.of.y_channels)), 0.0f);
  }

  static int64_t Scratch(const KernelCall& call) { return Sizes(call).all(call.threads) * static_cast<int64_t>(sizeof(float)); }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = static_cast<const float*>(inputs[0]), *dy = static_cast<const float*>(inputs[1]);
    auto *dw = static_cast<float*>(outputs[0]), *x_planes = static_cast<float*>(scratch);
    float *const y_planes = x_planes + n_.x_planes(), *const sums = y_planes + n_.y_planes();
    const int64_t blocks = n_.chunks * n_.panels;
    for (int64_t part = 0; part < n_.parts; ++part) {
      const int64_t first = n_.of.tiles() * part / n_.parts, tiles = n_.of.tiles() * (part + 1) / n_.parts - first;
      ByGroups(tiles, [&](int64_t group, int64_t begin, int64_t end) { Transform(x, dy, first, group, begin, end, x_planes, y_planes); });
      ByGroups(blocks, [&](int64_t group, int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          float* const own = sums + (n_.parts > 1 ? block : ThreadIndex()) * n_.sums();
          Add(block, group, tiles, part > 0, x_planes, y_planes, own);
          if (n_.parts == 1) Finish(block, own, dw);
        }
      });
    }
    if (n_.parts > 1) ParallelFor(blocks, threads_, [&](int64_t block) { Finish(block, sums + block * n_.sums(), dw); });
  }

 private:
  int64_t Rows(int64_t chunk) const { return std::min(kWinogradChunk, n_.of.x_channels - chunk * kWinogradChunk); }
  int64_t Columns(int64_t panel) const { return std::min(n_.panel, n_.of.y_channels - panel * n_.panel); }

  // Calls f(group, begin, end) on ranges of [0, n) for each group of planes. Calls with the same n divide the groups among threads in the
  // same way.
  template <typename F>
  void ByGroups(int64_t n, F&& f) const {
    ParallelRanges(groups_ * n, 1, threads_, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t group = begin / n, until = std::min(end, (group + 1) * n);
        f(group, begin - group * n, until - group * n);
        begin = until;
      }
    });
  }

  void Transform(const float* x, const float* dy, int64_t first, int64_t group, int64_t begin, int64_t end, float* x_planes,
                 float* y_planes) const {
    WinogradCursor cursor(n_.of, first + begin);
    for (int64_t t = begin; t < end; ++t, cursor.Next()) {
      const float* points[16];
      cursor.Patch(x, outside_.data(), points);
      WinogradPatchArgs args = {.points = points,
                                .channels = n_.of.x_channels,
                                .to = x_planes + t * kWinogradChunk,
                                .plane = n_.x_plane(),
                                .step = n_.x_chunk(),
                                .part = group,
                                .parts = groups_};
      loops_.winograd_patch(args);
      cursor.Tile<const float>(dy, outside_.data(), points);
      args.channels = n_.of.y_channels, args.to = y_planes + t * n_.panel, args.plane = n_.y_plane(), args.step = n_.y_panel();
      loops_.winograd_pair(args);
    }
  }

  // The products of block `block`, a chunk of x's channels and a panel of y's, in a group of planes.
  void Add(int64_t block, int64_t group, int64_t tiles, bool adds, const float* x_planes, const float* y_planes, float* sums) const {
    const int64_t chunk = block / n_.panels, panel = block % n_.panels, planes = kWinogradPlanes / groups_;
    const int64_t rows = Rows(chunk), strips = CeilDiv(rows, loops_.panel_rows);
    for (int64_t plane = group * planes; plane < (group + 1) * planes; ++plane) {
      for (int64_t strip = 0; strip < strips; ++strip) {
        const int64_t first = rows * strip / strips, last = rows * (strip + 1) / strips;
        for (int64_t tile = 0; tile < tiles; tile += kSummed) {
          const OuterRun run = {.a = 0, .b = 0, .points = std::min(kSummed, tiles - tile)};
          loops_.add_outer_products({.rows = last - first,
                                     .columns = Columns(panel),
                                     .a = x_planes + plane * n_.x_plane() + chunk * n_.x_chunk() + tile * kWinogradChunk + first,
                                     .a_step = kWinogradChunk,
                                     .b = y_planes + plane * n_.y_plane() + panel * n_.y_panel() + tile * n_.panel,
                                     .runs = &run,
                                     .count = 1,
                                     .c = sums + plane * n_.sum_plane() + first * n_.panel,
                                     .adds = adds || tile > 0});
        }
      }
    }
  }

  void Finish(int64_t block, const float* sums, float* dw) const {
    const int64_t chunk = block / n_.panels, panel = block % n_.panels, x = n_.of.x_channels, lanes = WinogradLanes();
    loops_.winograd_filter_gradient({.from = sums,
                                     .plane = n_.sum_plane(),
                                     .from_step = n_.panel,
                                     .rows = Rows(chunk),
                                     .columns = Columns(panel),
                                     .w = dw + panel * n_.panel * 9 * x + chunk * kWinogradChunk * lanes,
                                     .tap_step = x * lanes,
                                     .row_step = lanes,
                                     .vector_step = 9 * x * lanes});
  }

  const Loops& loops_;
  const Sizes n_;
  int threads_;
  int64_t groups_;              // of planes
  std::vector<float> outside_;  // a point in the padding
};

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.WinogradConvGradWeight",
             .op = "ConvGradWeight",
             .domain = "gradloom",
             .rejects = RejectsWinograd,
             .scratch_bytes = WinogradGradWeight::Scratch},
     .make = MakeKernel<WinogradGradWeight>},
};

}  // namespace

std::span<const CpuKernel> CpuWinogradWeightKernels() { return kKernels; }

}  // namespace gradloom

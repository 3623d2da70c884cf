// LSTM with the usual activations, its training form and its gradient.
#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/recurrent/recurrent.h"

namespace gradloom {
namespace {

using namespace recurrent;

class LstmCells final : public Cells {
 public:
  void Forward(const DirectionBuffers& dir, const WorkTile& tile, int64_t s, int) const override {
    const Sizes& n = dir.n;
    const int64_t units = tile.j1 - tile.j0;
    dir.MultiplyState(tile, dir.states[s % 2], 0, n.gates);
    const float* step = dir.step_tile(tile);
    for (int64_t b = tile.b0; b < tile.b1; ++b, step += n.gates * units) {
      const int64_t t = dir.time(s, b), at = b * n.hidden + tile.j0;
      float* h1 = dir.states[(s + 1) % 2] + at;
      if (t < 0) {
        std::copy_n(dir.states[s % 2] + at, units, h1);
        continue;
      }
      dir.loops.lstm({.n = units,
                      .hidden = n.hidden,
                      .step_stride = units,
                      .step = step,
                      .bias = dir.bias + tile.j0,
                      .peephole = dir.peephole == nullptr ? nullptr : dir.peephole + tile.j0,
                      .c0 = dir.c_before(s, b) + tile.j0,
                      .gates = dir.kept_row(t, b) + tile.j0,
                      .h1 = h1,
                      .y = dir.y == nullptr ? h1 : dir.y_row(t, b) + tile.j0});
    }
  }

  void Backward(const DirectionBuffers& dir, const WorkTile& tile, int64_t s, int) const override {
    const Sizes& n = dir.n;
    if (s + 1 < n.steps) RecurrentGradient(dir, tile, s + 1);
    for (int64_t b = tile.b0; b < tile.b1; ++b) {
      const int64_t t = dir.time(s, b), at = b * n.hidden + tile.j0;
      if (t < 0) continue;
      dir.loops.lstm_grad({.n = tile.j1 - tile.j0,
                           .hidden = n.hidden,
                           .gates = dir.kept_row(t, b) + tile.j0,
                           .peephole = dir.peephole == nullptr ? nullptr : dir.peephole + tile.j0,
                           .c0 = dir.c_before(s, b) + tile.j0,
                           .dy = dir.dy_row(t, b) + tile.j0,
                           .dh_recurrent = dir.dh_recurrent + at,
                           .dh = dir.dh + at,
                           .dc = dir.dc + at,
                           .dz = dir.dz_row(t, b) + tile.j0});
    }
  }

  void RecurrentGradient(const DirectionBuffers& dir, const WorkTile& tile, int64_t s) const override {
    dir.MultiplyGradient(tile, s, 0, 0, dir.n.gates, false);
  }
};

constexpr LstmCells kCells;

std::unique_ptr<Kernel> Make(const KernelCall& call) { return MakeForward(call, kCells); }
std::unique_ptr<Kernel> MakeGrad(const KernelCall& call) { return MakeGradient(call, kCells); }

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.LSTM", .op = "LSTM", .domain = "", .rejects = Rejects, .scratch_bytes = ScratchBytes}, .make = Make},
    {.row = {.name = "cpu.LstmTraining", .op = "LstmTraining", .domain = "gradloom", .rejects = Rejects, .scratch_bytes = ScratchBytes},
     .make = Make},
    {.row = {.name = "onednn.LstmGrad", .op = "LstmGrad", .domain = "gradloom", .rejects = Rejects, .scratch_bytes = ScratchBytes},
     .make = MakeGrad},
};

}  // namespace

std::span<const CpuKernel> CpuLstmKernels() { return kKernels; }

}  // namespace gradloom

// GRU and RNN with the usual activations, and their gradients; the training form of GRU. RNN's gradient needs only Y.
#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/recurrent/recurrent.h"

namespace gradloom {
namespace {

using namespace recurrent;

// Gates z, r and h. Without linear_before_reset, the product for h needs r, so there are two phases.
class GruCells final : public Cells {
 public:
  int Phases(const Sizes& n) const override { return n.linear ? 1 : 2; }
  int64_t GradientBlocks(const Sizes&, int64_t first) const override { return first == 0 ? 2 : 1; }

  void Forward(const DirectionBuffers& dir, const WorkTile& tile, int64_t s, int phase) const override {
    const Sizes& n = dir.n;
    const int64_t units = tile.j1 - tile.j0, blocks = n.linear ? 3 : 2 - phase;
    dir.MultiplyState(tile, phase == 0 ? dir.states[s % 2] : dir.reset, 2 * phase, blocks);
    const float* step = dir.step_tile(tile);
    for (int64_t b = tile.b0; b < tile.b1; ++b, step += blocks * units) {
      const int64_t t = dir.time(s, b), at = b * n.hidden + tile.j0;
      const float* h0 = dir.states[s % 2] + at;
      float* h1 = dir.states[(s + 1) % 2] + at;
      if (t < 0) {
        std::copy_n(h0, units, h1);
        std::fill_n(dir.reset + at, units, 0.0f);
        continue;
      }
      (phase == 0 ? dir.loops.gru_gates : dir.loops.gru_candidate)({.n = units,
                                                                    .hidden = n.hidden,
                                                                    .step_stride = units,
                                                                    .linear = n.linear,
                                                                    .step = step,
                                                                    .bias = dir.bias + tile.j0,
                                                                    .h0 = h0,
                                                                    .gates = dir.kept_row(t, b) + tile.j0,
                                                                    .h1 = h1,
                                                                    .y = dir.y == nullptr ? h1 : dir.y_row(t, b) + tile.j0,
                                                                    .reset = dir.reset + at});
    }
  }

  void Backward(const DirectionBuffers& dir, const WorkTile& tile, int64_t s, int phase) const override {
    const Sizes& n = dir.n;
    if (phase == 1) {
      dir.MultiplyGradient(tile, s, 2, 2, 1, false);
    } else if (s + 1 < n.steps) {
      RecurrentGradient(dir, tile, s + 1);
    }
    for (int64_t b = tile.b0; b < tile.b1; ++b) {
      const int64_t t = dir.time(s, b), at = b * n.hidden + tile.j0;
      if (t < 0) continue;
      (phase == 0 ? dir.loops.gru_grad_gates
                  : dir.loops.gru_grad_reset)({.n = tile.j1 - tile.j0,
                                               .hidden = n.hidden,
                                               .linear = n.linear,
                                               .gates = dir.kept_row(t, b) + tile.j0,
                                               .h0 = dir.h_before(s, b) + tile.j0,
                                               .dy = dir.dy_row(t, b) + tile.j0,
                                               .dh_recurrent = dir.dh_recurrent + at,
                                               .dh = dir.dh + at,
                                               .dz = dir.dz_row(t, b) + tile.j0,
                                               .reset = n.linear ? nullptr : dir.reset_h_prev + n.row(t, b) * n.hidden + tile.j0});
    }
  }

  void RecurrentGradient(const DirectionBuffers& dir, const WorkTile& tile, int64_t s) const override {
    dir.MultiplyGradient(tile, s, 0, 0, 2, false);
    if (dir.n.linear) dir.MultiplyGradient(tile, s, 3, 2, 1, true);
  }
};

class RnnCells final : public Cells {
 public:
  void Forward(const DirectionBuffers& dir, const WorkTile& tile, int64_t s, int) const override {
    const Sizes& n = dir.n;
    const int64_t units = tile.j1 - tile.j0;
    dir.MultiplyState(tile, dir.states[s % 2], 0, 1);
    const float* step = dir.step_tile(tile);
    for (int64_t b = tile.b0; b < tile.b1; ++b, step += units) {
      const int64_t t = dir.time(s, b), at = b * n.hidden + tile.j0;
      float* h1 = dir.states[(s + 1) % 2] + at;
      if (t < 0) {
        std::copy_n(dir.states[s % 2] + at, units, h1);
        continue;
      }
      dir.loops.rnn({.n = units,
                     .relu = n.relu,
                     .projected = dir.kept_row(t, b) + tile.j0,
                     .step = step,
                     .bias = dir.bias + tile.j0,
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
      dir.loops.rnn_grad({.n = tile.j1 - tile.j0,
                          .relu = n.relu,
                          .y = dir.y_row(t, b) + tile.j0,
                          .dy = dir.dy_row(t, b) + tile.j0,
                          .dh_recurrent = dir.dh_recurrent + at,
                          .dh = dir.dh + at,
                          .dz = dir.dz_row(t, b) + tile.j0});
    }
  }

  void RecurrentGradient(const DirectionBuffers& dir, const WorkTile& tile, int64_t s) const override {
    dir.MultiplyGradient(tile, s, 0, 0, 1, false);
  }
};

constexpr GruCells kGruCells;
constexpr RnnCells kRnnCells;

std::unique_ptr<Kernel> MakeGru(const KernelCall& call) { return MakeForward(call, kGruCells); }
std::unique_ptr<Kernel> MakeGruGrad(const KernelCall& call) { return MakeGradient(call, kGruCells); }
std::unique_ptr<Kernel> MakeRnn(const KernelCall& call) { return MakeForward(call, kRnnCells); }
std::unique_ptr<Kernel> MakeRnnGrad(const KernelCall& call) { return MakeGradient(call, kRnnCells); }

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.GRU", .op = "GRU", .domain = "", .rejects = Rejects, .scratch_bytes = ScratchBytes}, .make = MakeGru},
    {.row = {.name = "cpu.GruTraining", .op = "GruTraining", .domain = "gradloom", .rejects = Rejects, .scratch_bytes = ScratchBytes},
     .make = MakeGru},
    {.row = {.name = "onednn.GruGrad", .op = "GruGrad", .domain = "gradloom", .rejects = Rejects, .scratch_bytes = ScratchBytes},
     .make = MakeGruGrad},
    {.row = {.name = "cpu.RNN", .op = "RNN", .domain = "", .rejects = Rejects, .scratch_bytes = ScratchBytes}, .make = MakeRnn},
    {.row = {.name = "onednn.RnnGrad", .op = "RnnGrad", .domain = "gradloom", .rejects = Rejects, .scratch_bytes = ScratchBytes},
     .make = MakeRnnGrad},
};

}  // namespace

std::span<const CpuKernel> CpuGruKernels() { return kKernels; }

}  // namespace gradloom

// GRU and RNN with the usual activations, and their gradients; the training form of GRU. RNN's gradient needs only Y.
#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/recurrent.h"

namespace gradloom {
namespace {

using namespace recurrent;

// Gates z, r and h. Without linear_before_reset, the product for h needs r, so there are two phases.
class GruCells final : public Cells {
 public:
  int Phases(const Sizes& n) const override { return n.linear ? 1 : 2; }
  int64_t GradientBlocks(const Sizes&, int64_t first) const override { return first == 0 ? 2 : 1; }

  void Forward(const Lane& lane, const Share& share, int64_t s, int phase) const override {
    const Sizes& n = lane.n;
    const int64_t units = share.j1 - share.j0, blocks = n.linear ? 3 : 2 - phase;
    lane.MultiplyState(share, phase == 0 ? lane.states[s % 2] : lane.reset, 2 * phase, blocks);
    const float* step = lane.step_part(share);
    for (int64_t b = share.b0; b < share.b1; ++b, step += blocks * units) {
      const int64_t t = lane.time(s, b), at = b * n.hidden + share.j0;
      const float* h0 = lane.states[s % 2] + at;
      float* h1 = lane.states[(s + 1) % 2] + at;
      if (t < 0) {
        std::copy_n(h0, units, h1);
        std::fill_n(lane.reset + at, units, 0.0f);
        continue;
      }
      (phase == 0 ? lane.loops.gru_gates : lane.loops.gru_candidate)({.n = units,
                                                                      .hidden = n.hidden,
                                                                      .step_stride = units,
                                                                      .linear = n.linear,
                                                                      .step = step,
                                                                      .bias = lane.bias + share.j0,
                                                                      .h0 = h0,
                                                                      .gates = lane.kept_row(t, b) + share.j0,
                                                                      .h1 = h1,
                                                                      .y = lane.y == nullptr ? h1 : lane.y_row(t, b) + share.j0,
                                                                      .reset = lane.reset + at});
    }
  }

  void Backward(const Lane& lane, const Share& share, int64_t s, int phase) const override {
    const Sizes& n = lane.n;
    if (phase == 1) {
      lane.MultiplyGradient(share, s, 2, 2, 1, false);
    } else if (s + 1 < n.steps) {
      BackThrough(lane, share, s + 1);
    }
    for (int64_t b = share.b0; b < share.b1; ++b) {
      const int64_t t = lane.time(s, b), at = b * n.hidden + share.j0;
      if (t < 0) continue;
      (phase == 0 ? lane.loops.gru_grad_gates
                  : lane.loops.gru_grad_reset)({.n = share.j1 - share.j0,
                                                .hidden = n.hidden,
                                                .linear = n.linear,
                                                .gates = lane.kept_row(t, b) + share.j0,
                                                .h0 = lane.h_before(s, b) + share.j0,
                                                .dy = lane.dy_row(t, b) + share.j0,
                                                .through = lane.through + at,
                                                .dh = lane.dh + at,
                                                .dz = lane.dz_row(t, b) + share.j0,
                                                .reset = n.linear ? nullptr : lane.reset_before + n.row(t, b) * n.hidden + share.j0});
    }
  }

  void BackThrough(const Lane& lane, const Share& share, int64_t s) const override {
    lane.MultiplyGradient(share, s, 0, 0, 2, false);
    if (lane.n.linear) lane.MultiplyGradient(share, s, 3, 2, 1, true);
  }
};

class RnnCells final : public Cells {
 public:
  void Forward(const Lane& lane, const Share& share, int64_t s, int) const override {
    const Sizes& n = lane.n;
    const int64_t units = share.j1 - share.j0;
    lane.MultiplyState(share, lane.states[s % 2], 0, 1);
    const float* step = lane.step_part(share);
    for (int64_t b = share.b0; b < share.b1; ++b, step += units) {
      const int64_t t = lane.time(s, b), at = b * n.hidden + share.j0;
      float* h1 = lane.states[(s + 1) % 2] + at;
      if (t < 0) {
        std::copy_n(lane.states[s % 2] + at, units, h1);
        continue;
      }
      lane.loops.rnn({.n = units,
                      .relu = n.relu,
                      .projected = lane.kept_row(t, b) + share.j0,
                      .step = step,
                      .bias = lane.bias + share.j0,
                      .h1 = h1,
                      .y = lane.y == nullptr ? h1 : lane.y_row(t, b) + share.j0});
    }
  }

  void Backward(const Lane& lane, const Share& share, int64_t s, int) const override {
    const Sizes& n = lane.n;
    if (s + 1 < n.steps) BackThrough(lane, share, s + 1);
    for (int64_t b = share.b0; b < share.b1; ++b) {
      const int64_t t = lane.time(s, b), at = b * n.hidden + share.j0;
      if (t < 0) continue;
      lane.loops.rnn_grad({.n = share.j1 - share.j0,
                           .relu = n.relu,
                           .y = lane.y_row(t, b) + share.j0,
                           .dy = lane.dy_row(t, b) + share.j0,
                           .through = lane.through + at,
                           .dh = lane.dh + at,
                           .dz = lane.dz_row(t, b) + share.j0});
    }
  }

  void BackThrough(const Lane& lane, const Share& share, int64_t s) const override { lane.MultiplyGradient(share, s, 0, 0, 1, false); }
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

// LSTM with the usual activations, its training form and its gradient.
#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/recurrent.h"

namespace gradloom {
namespace {

using namespace recurrent;

class LstmCells final : public Cells {
 public:
  void Forward(const Lane& lane, const Share& share, int64_t s, int) const override {
    const Sizes& n = lane.n;
    const int64_t units = share.j1 - share.j0;
    lane.MultiplyState(share, lane.states[s % 2], 0, n.gates);
    const float* step = lane.step_part(share);
    for (int64_t b = share.b0; b < share.b1; ++b, step += n.gates * units) {
      const int64_t t = lane.time(s, b), at = b * n.hidden + share.j0;
      float* h1 = lane.states[(s + 1) % 2] + at;
      if (t < 0) {
        std::copy_n(lane.states[s % 2] + at, units, h1);
        continue;
      }
      lane.loops.lstm({.n = units,
                       .hidden = n.hidden,
                       .step_stride = units,
                       .step = step,
                       .bias = lane.bias + share.j0,
                       .peephole = lane.peephole == nullptr ? nullptr : lane.peephole + share.j0,
                       .c0 = lane.c_before(s, b) + share.j0,
                       .gates = lane.kept_row(t, b) + share.j0,
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
      lane.loops.lstm_grad({.n = share.j1 - share.j0,
                            .hidden = n.hidden,
                            .gates = lane.kept_row(t, b) + share.j0,
                            .peephole = lane.peephole == nullptr ? nullptr : lane.peephole + share.j0,
                            .c0 = lane.c_before(s, b) + share.j0,
                            .dy = lane.dy_row(t, b) + share.j0,
                            .through = lane.through + at,
                            .dh = lane.dh + at,
                            .dc = lane.dc + at,
                            .dz = lane.dz_row(t, b) + share.j0});
    }
  }

  void BackThrough(const Lane& lane, const Share& share, int64_t s) const override {
    lane.MultiplyGradient(share, s, 0, 0, lane.n.gates, false);
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

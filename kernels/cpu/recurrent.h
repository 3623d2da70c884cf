// What the kernels of LSTM, GRU and RNN share. The steps are run by each thread for samples of its own, which never meet those of
// others; where there are few samples threads share the hidden units instead and meet at each step. No bit depends on which of the
// two it is. X is projected for a few steps at once, the gradients of X, W and R are one product each over all steps.
//
// Beside ONNX's operators there are forms of LSTM and GRU that keep what their gradients need (`LstmTraining`, `GruTraining`). A
// gradient that is given neither that nor Y computes the forward pass again.
#pragma once

#include <memory>
#include <string>

#include "kernels/catalog/recurrent.h"
#include "kernels/cpu/isa/loops.h"

namespace gradloom::recurrent {

// Inputs of the operators; GRU and RNN have the first six.
enum Input : size_t { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kPeephole };

// The extents of a call, and what the kernels here make of them.
struct Sizes : RecurrentExtents {
  explicit Sizes(const KernelCall& call)
      : RecurrentExtents(call), keeps(gradient ? !recomputes : training), slots(gates + (linear ? 1 : 0)) {}

  bool keeps;     // whether what the forward pass computes of each step is an operand
  int64_t slots;  // blocks of the gradients of a step: as many as gates, or one more for a linear GRU's product

  // Whether the states before the steps are Y's rows, a time apart, and the initial state: rows of one time lie together, in Y too.
  bool states_in_y() const { return !batch_first && !has_lengths && directions == 1; }
};

// The part of a step that one thread computes: sequences [b0, b1), hidden units [j0, j1).
struct Share {
  int64_t b0, b1, j0, j1;
};

// One direction of a run: where everything is. Elements are floats.
struct Lane {
  const Sizes& n;
  const Loops& loops;
  int64_t direction;
  const int* lengths;  // [batch], or null: all of `steps`

  const float* bias;      // [blocks, hidden] as the cells want them
  const float* peephole;  // [3, hidden] or null
  const float* packed;    // R, packed for the products of a step
  const float* packed_w;  // W, for the projection
  const float* x;
  const float* zeros;  // [hidden]
  float* kept;         // [rows, n.kept, hidden]
  float* first_h;      // the initial states, [batch, hidden]
  float* first_c;      //
  float* y;            // the state after each step, at y_at; may be null in the forward pass
  int64_t y_time, y_batch;

  // Forward: the state before step s is states[s % 2]; products of a step.
  float *states[2], *step, *reset;

  // Backward: gradients of the states, of Y (may be null), of the gates' arguments; the states before each step, by row, where they are not
  // Y's.
  float *dh, *dc, *through, *dz, *before, *reset_before, *gathered;
  const float* dy;

  // The time of step `s` of sequence `b`, or -1 past its end.
  int64_t time(int64_t s, int64_t b) const {
    const int64_t length = lengths == nullptr ? n.steps : lengths[b];
    return s >= length ? -1 : n.backwards(direction) ? length - 1 - s : s;
  }
  float* kept_row(int64_t t, int64_t b) const { return kept + n.row(t, b) * n.kept * n.hidden; }
  float* dz_row(int64_t t, int64_t b) const { return dz + n.row(t, b) * n.slots * n.hidden; }
  float* y_row(int64_t t, int64_t b) const { return y + t * y_time + b * y_batch; }
  const float* dy_row(int64_t t, int64_t b) const { return dy == nullptr ? zeros : dy + n.y_at(t, direction, b); }
  // The states before step s, for a sequence that is active there.
  const float* h_before(int64_t s, int64_t b) const { return s == 0 ? first_h + b * n.hidden : y_row(time(s - 1, b), b); }
  const float* c_before(int64_t s, int64_t b) const {
    return s == 0 ? first_c + b * n.hidden : kept_row(time(s - 1, b), b) + n.gates * n.hidden;
  }

  // A share's part of `step`, the same in all phases: shares that do not meet may be in different ones.
  float* step_part(const Share& share) const { return step + n.gates * (share.b0 * n.hidden + (share.b1 - share.b0) * share.j0); }
  // Steps that are projected at once. Where sequences end at times of their own and go backwards, their steps are at no common time.
  int64_t chunk() const { return lengths != nullptr && n.backwards(direction) ? n.steps : 4; }
  // kept = X W^T for the gates of steps [s, s + chunk()).
  void Project(const Share& share, int64_t s) const;
  // step_part = state R^T for gates [first, first + blocks); `state` is [batch, hidden].
  void MultiplyState(const Share& share, const float* state, int64_t first, int64_t blocks) const;
  // through = blocks [slot, slot + blocks) of dz at step s times the rows of R of gates [first, first + blocks), or added to it.
  void MultiplyGradient(const Share& share, int64_t s, int64_t slot, int64_t first, int64_t blocks, bool adds) const;
};

// An operator's own part: its cells, with the products of a step that they need. Without state.
class Cells {
 public:
  // Blocks of gates [first, first + count) whose rows of R are one operand of a product of the gradient; from `first` on.
  virtual int64_t GradientBlocks(const Sizes& n, int64_t first) const { return n.gates - first; }
  // How often threads that share hidden units meet in a step.
  virtual int Phases(const Sizes&) const { return 1; }

  virtual void Forward(const Lane& lane, const Share& share, int64_t s, int phase) const = 0;
  virtual void Backward(const Lane& lane, const Share& share, int64_t s, int phase) const = 0;
  // through = the gradient of the state before step s that goes through R.
  virtual void BackThrough(const Lane& lane, const Share& share, int64_t s) const = 0;

 protected:
  ~Cells() = default;
};

// The kernels of an operator; `cells` outlives them.
std::unique_ptr<Kernel> MakeForward(const KernelCall& call, const Cells& cells);
std::unique_ptr<Kernel> MakeGradient(const KernelCall& call, const Cells& cells);

// Catalog functions of the forward operator, of its training form and of the gradient.
std::string Rejects(const KernelCall& call);
int64_t ScratchBytes(const KernelCall& call);

}  // namespace gradloom::recurrent

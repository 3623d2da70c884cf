// The parts common to the kernels of LSTM, GRU and RNN. Each thread runs the steps of its own sequences, which are independent of the
// others. If there are few sequences, threads also share the hidden units, and synchronize in each step. Results do not depend on this
// choice. X is projected for several steps at once; the gradients of X, W and R are one product each over all steps.
//
// Beside ONNX's operators, there are forms of LSTM and GRU that keep what their gradients need (`LstmTraining`, `GruTraining`). A gradient
// that gets neither the kept values nor Y recomputes the forward pass.
#pragma once

#include <memory>
#include <string>

#include "kernels/catalog/recurrent.h"
#include "kernels/cpu/isa/loops.h"

namespace gradloom::recurrent {

// The extents of a call, and values derived from them.
struct Sizes : RecurrentExtents {
  explicit Sizes(const KernelCall& call)
      : RecurrentExtents(call), keeps(gradient ? !recomputes : training), slots(gates + (linear ? 1 : 0)) {}

  bool keeps;     // whether the values that the forward pass computes in each step are an operand
  int64_t slots;  // blocks per step of the gates' gradients: one per gate, and one more for a linear GRU's product

  // Whether the states before the steps are the initial state and rows of Y. Then the rows of one time are contiguous, in Y as well.
  bool states_in_y() const { return !batch_first && !has_lengths && directions == 1; }
};

// The tile of a step that one thread computes: sequences [b0, b1), hidden units [j0, j1).
struct WorkTile {
  int64_t b0, b1, j0, j1;
};

// One direction of a run: the addresses of its data, all float.
struct DirectionBuffers {
  const Sizes& n;
  const Loops& loops;
  int64_t direction;
  const int* lengths;  // [batch], or null: all have n.steps

  const float* bias;      // [blocks, hidden], as the cells expect it
  const float* peephole;  // [3, hidden] or null
  const float* packed;    // R, packed for the product of a step
  const float* packed_w;  // W, for the projection
  const float* x;
  const float* zeros;  // [hidden]
  float* kept;         // [rows, n.kept, hidden]
  float* first_h;      // the initial states, [batch, hidden]
  float* first_c;      //
  float* y;            // the state after each step; may be null in the forward pass
  int64_t y_time, y_batch;

  // Forward: the state before step s is states[s % 2]; `step` and `reset` are the product of a step, and the reset gate times the state.
  float *states[2], *step, *reset;

  // Backward: gradients of the states, and of Y (may be null), and of the gates' pre-activations; the states before each step, by row, if
  // they are not in Y.
  float *dh, *dc, *dh_recurrent, *dz, *h_prev, *reset_h_prev, *gathered;
  const float* dy;

  // The time of step `s` of sequence `b`, or -1 past its end.
  int64_t time(int64_t s, int64_t b) const {
    const int64_t length = lengths == nullptr ? n.steps : lengths[b];
    return s >= length ? -1 : n.time(direction, s, length);
  }
  float* kept_row(int64_t t, int64_t b) const { return kept + n.row(t, b) * n.kept * n.hidden; }
  float* dz_row(int64_t t, int64_t b) const { return dz + n.row(t, b) * n.slots * n.hidden; }
  float* y_row(int64_t t, int64_t b) const { return y + t * y_time + b * y_batch; }
  const float* dy_row(int64_t t, int64_t b) const { return dy == nullptr ? zeros : dy + n.y_at(t, direction, b); }
  // The states before step s, for a sequence that has this step.
  const float* h_before(int64_t s, int64_t b) const { return s == 0 ? first_h + b * n.hidden : y_row(time(s - 1, b), b); }
  const float* c_before(int64_t s, int64_t b) const {
    return s == 0 ? first_c + b * n.hidden : kept_row(time(s - 1, b), b) + n.gates * n.hidden;
  }

  // The tile's part of `step`. It is the same in all phases, because tiles that do not synchronize may be in different phases.
  float* step_tile(const WorkTile& tile) const { return step + n.gates * (tile.b0 * n.hidden + (tile.b1 - tile.b0) * tile.j0); }
  // The number of steps to project at once. If sequences of different lengths run backward, the times of a step differ, so all steps are
  // projected together.
  int64_t chunk() const { return lengths != nullptr && n.backwards(direction) ? n.steps : 4; }
  // kept = X W^T for the gates of steps [s, s + chunk()).
  void Project(const WorkTile& tile, int64_t s) const;
  // step_tile = state R^T for gates [first, first + blocks); `state` is [batch, hidden].
  void MultiplyState(const WorkTile& tile, const float* state, int64_t first, int64_t blocks) const;
  // dh_recurrent = blocks [slot, slot + blocks) of dz at step s times the rows of R of gates [first, first + blocks); with `adds`, it is
  // accumulated.
  void MultiplyGradient(const WorkTile& tile, int64_t s, int64_t slot, int64_t first, int64_t blocks, bool adds) const;
};

// The operator-specific part: the cells, and the products of a step that they need. Stateless.
class Cells {
 public:
  // The number of gate blocks, from `first` on, whose rows of R form one operand of a product in the gradient.
  virtual int64_t GradientBlocks(const Sizes& n, int64_t first) const { return n.gates - first; }
  // The number of phases of a step, between which threads that share hidden units synchronize.
  virtual int Phases(const Sizes&) const { return 1; }

  virtual void Forward(const DirectionBuffers& dir, const WorkTile& tile, int64_t s, int phase) const = 0;
  virtual void Backward(const DirectionBuffers& dir, const WorkTile& tile, int64_t s, int phase) const = 0;
  // dh_recurrent = the part through R of the gradient of the state before step s.
  virtual void RecurrentGradient(const DirectionBuffers& dir, const WorkTile& tile, int64_t s) const = 0;

 protected:
  ~Cells() = default;
};

// The kernels of an operator; `cells` must outlive them.
std::unique_ptr<Kernel> MakeForward(const KernelCall& call, const Cells& cells);
std::unique_ptr<Kernel> MakeGradient(const KernelCall& call, const Cells& cells);

// Catalog functions for the forward operator, its training form and the gradient.
std::string Rejects(const KernelCall& call);
int64_t ScratchBytes(const KernelCall& call);

}  // namespace gradloom::recurrent

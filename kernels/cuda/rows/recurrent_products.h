// LSTM, GRU and RNN over products by cuBLASLt: what a call multiplies, and where things lie in scratch memory, as the rows ask for it and
// the kernels use it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/rows/blas.h"

namespace gradloom {

// The extents of LSTM, GRU or RNN, of a training form, or of a gradient. "rows" are steps * batch, in the order of X's rows.
struct RecurrentExtents {
  explicit RecurrentExtents(const KernelCall& call);

  int64_t gates;            // blocks of `hidden` in a row of W and R: 4, 3 or 1
  size_t inputs, outputs;   // of the forward operator; the gradient has both as inputs, then Y and what the training form keeps
  bool gradient, training;  // the form of the call
  int64_t steps, batch, input, hidden, directions;
  bool batch_first, reversed, has_lengths;  // reversed: the single direction there is
  bool linear;                              // GRU: linear_before_reset
  bool resets;                              // GRU otherwise: the candidate's product waits for the reset gate
  bool recomputes;                          // a gradient that is not given what the forward pass computed
  int64_t kept;                             // blocks that are kept of a row: gates, then LSTM's cell state or a linear GRU's product

  int64_t rows() const { return steps * batch; }
  int64_t width() const { return gates * hidden; }
  int64_t cells() const { return directions * batch * hidden; }
  // Gates whose rows of R are multiplied with the state itself.
  int64_t plain_gates() const { return resets ? 2 : gates; }
  // Whether the gradients of the gates are one array for the products with W and with R: rows are in both orders the same.
  bool one_gradient() const { return directions == 1 && !batch_first && !has_lengths && !linear; }
};

// The products of a call. Steps are those of one direction, forwards or backwards; both directions are one product. Of an absent one m is
// 0.
struct RecurrentProducts {
  explicit RecurrentProducts(const KernelCall& call);

  BlasProduct project;         // the kept rows' gates = X W^T
  BlasProduct step;            // [directions, batch, plain gates] = the states times R^T
  BlasProduct candidate;       // [directions, batch, hidden] = the states times the reset gate, times R^T
  BlasProduct back;            // the gradient of the states += that of a step's gates times R
  BlasProduct back_candidate;  // the same of the candidate, whose operand gets it
  BlasProduct x_gradient, w_gradient, r_gradient, r_candidate_gradient;

  // Elements from R's first to the rows of the candidate.
  int64_t candidate_at = 0;

  std::vector<const BlasProduct*> all() const;
};

// Where things lie in scratch memory, in bytes. T is the type of the operands, A float.
struct RecurrentPlaces {
  explicit RecurrentPlaces(const KernelCall& call);

  int64_t kept = 0;          // A [directions, rows, kept]: where it is no operand
  int64_t y = 0;             // T, as Y: the same
  int64_t state = 0;         // T [directions, batch, hidden]: the operand of a step's product
  int64_t wide_state = 0;    // A, as `state`: GRU of 16 bits
  int64_t reset = 0;         // T, as `state`: GRU, the state times the reset gate
  int64_t step = 0;          // A [directions, batch, plain gates]
  int64_t before = 0;        // T [directions, rows, hidden]: gradient, the states before the steps, in their order
  int64_t reset_before = 0;  // T, as `before`: GRU, those times the reset gate
  int64_t dz = 0;            // T [rows, directions, width]: the gradients of the gates' arguments
  int64_t dr = 0;            // T [directions, rows, width]: those of the products with R, in the order of steps; where they are not dz
  int64_t dh = 0, dc = 0;    // A [directions, batch, hidden]
  int64_t through = 0;       // A, as dh: GRU, the gradient of the state times the reset gate
  int64_t x = 0;             // T, as X: zeros past the ends of sequences
  int64_t sums = 0;          // A: partial sums of a gradient
  int64_t workspace = 0;     // the library's
  int64_t bytes = 0;         // of all
};

}  // namespace gradloom

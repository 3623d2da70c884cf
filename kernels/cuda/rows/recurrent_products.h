// LSTM, GRU and RNN over products by cuBLASLt: what a call multiplies, and where things lie in scratch memory, as the rows ask for it and
// the kernels use it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/catalog/recurrent.h"
#include "kernels/cuda/rows/blas.h"

namespace gradloom {

// Whether the gradients of the gates are one array for the products with W and with R: rows are in both orders the same.
inline bool HasOneGradient(const RecurrentExtents& n) { return n.directions == 1 && !n.batch_first && !n.has_lengths && !n.linear; }

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

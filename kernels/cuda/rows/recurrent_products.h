// LSTM, GRU and RNN as matrix products by cuBLASLt: the products of a call and the division of scratch memory, for the rows and the
// kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/catalog/recurrent.h"
#include "kernels/cuda/rows/blas.h"

namespace gradloom {

// Whether the products with W and with R share one array of gate gradients, because the order by time and the order by step differ at most
// in direction.
inline bool HasOneGradient(const RecurrentExtents& n) { return n.directions == 1 && !n.batch_first && !n.has_lengths && !n.linear; }

// The products of a call. Each is batched over the directions; a step is one iteration, which runs forward in one direction and backward in
// the other. Products that the call does not need have m = 0.
struct RecurrentProducts {
  explicit RecurrentProducts(const KernelCall& call);

  BlasProduct project;         // the gates in the rows of `kept` = X W^T
  BlasProduct step;            // [directions, batch, plain gates] = states R^T
  BlasProduct candidate;       // [directions, batch, hidden] = (states * reset gate) R^T
  BlasProduct back;            // the gradient of the states += (gradient of a step's gates) R
  BlasProduct back_candidate;  // the same for the candidate: gives the gradient of states * reset gate
  BlasProduct x_gradient, w_gradient, r_gradient, r_candidate_gradient;

  // Offset, in elements, of the candidate's rows in R.
  int64_t candidate_at = 0;

  std::vector<const BlasProduct*> all() const;
};

// The division of the scratch memory, in bytes from its start. T is the type of the operands, A is float. Rows are steps * batch.
struct RecurrentScratchLayout {
  explicit RecurrentScratchLayout(const KernelCall& call);

  int64_t kept = 0;           // A [directions, rows, kept]: if it is not an operand
  int64_t y = 0;              // T, like Y: if it is not an operand
  int64_t state = 0;          // T [directions, batch, hidden]: the operand of a step's product
  int64_t wide_state = 0;     // A, like `state`: GRU in 16-bit types
  int64_t reset = 0;          // T, like `state`: GRU, state * reset gate
  int64_t step = 0;           // A [directions, batch, plain gates]
  int64_t before = 0;         // T [directions, rows, hidden]: gradient, the states before the steps, in the order of dr
  int64_t reset_before = 0;   // T, like `before`: GRU, states * reset gate
  int64_t dz = 0;             // T [rows, directions, width]: the gradients of the gates' pre-activations
  int64_t dr = 0;             // T [directions, rows, width]: those of the products with R, by step; only if they are not in dz
  int64_t dh = 0, dc = 0;     // A [directions, batch, hidden]
  int64_t d_reset_state = 0;  // A, like dh: GRU, the gradient of state * reset gate
  int64_t x = 0;              // T, like X: zeros past the ends of sequences
  int64_t sums = 0;           // A: partial sums of a gradient
  int64_t workspace = 0;      // cuBLASLt's
  int64_t bytes = 0;          // total
};

}  // namespace gradloom

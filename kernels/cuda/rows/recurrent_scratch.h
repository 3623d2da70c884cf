// The scratch memory of LSTM, GRU and RNN without a library, for the rows and the kernels.
#pragma once

#include <algorithm>

#include "kernels/catalog/recurrent.h"

namespace gradloom {

// The number of parts into which a sum over the rows of a matrix is divided.
inline constexpr int64_t kRecurrentSumParts = 32;

// Offsets in elements of the arithmetic type. "rows" are steps * batch, ordered by step.
struct RecurrentScratch {
  int64_t z = 0;         // [directions, rows, width]: pre-activations after the clip, then their gradients
  int64_t h = 0;         // [directions, rows + batch, hidden]: the initial states, then the states after each step
  int64_t c = 0;         // LSTM: like h
  int64_t reset = 0;     // GRU: [directions, rows, hidden]
  int64_t dh = 0;        // gradient: [directions, batch, hidden]
  int64_t dc = 0;        // LSTM: like dh; GRU: the gradient of state * reset gate
  int64_t sums = 0;      // gradient: partial sums
  int64_t elements = 0;  // total

  explicit RecurrentScratch(const KernelCall& call) {
    const RecurrentExtents n(call);
    const auto take = [&](bool needed, int64_t count) {
      const int64_t at = elements;
      if (needed) elements += count;
      return at;
    };
    z = take(true, n.directions * n.rows() * n.width());
    h = take(true, n.directions * (n.rows() + n.batch) * n.hidden);
    c = take(n.gates == 4, n.directions * (n.rows() + n.batch) * n.hidden);
    reset = take(n.gates == 3, n.directions * n.rows() * n.hidden);
    dh = take(n.gradient, n.directions * n.cells());
    dc = take(n.gradient && n.gates > 1, n.directions * n.cells());
    sums = take(n.gradient, kRecurrentSumParts * n.directions * n.width());
  }
};

}  // namespace gradloom

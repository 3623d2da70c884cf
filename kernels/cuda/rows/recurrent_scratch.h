// The scratch memory of LSTM, GRU and RNN, as the rows ask for it and the kernels use it.
#pragma once

#include <algorithm>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Into how many parts of its rows a sum over the rows of a matrix is cut.
inline constexpr int64_t kRecurrentSumParts = 32;

// Where things lie, in elements of the type that is computed in. "rows" are steps * batch, step by step.
struct RecurrentScratch {
  int64_t z = 0;         // [directions, rows, width]: pre-activations after the clip, then their gradients
  int64_t h = 0;         // [directions, rows + batch, hidden]: the initial states, then those after each step
  int64_t c = 0;         // LSTM: as h
  int64_t reset = 0;     // GRU: [directions, rows, hidden]
  int64_t dh = 0;        // gradient: [directions, batch, hidden]
  int64_t dc = 0;        // LSTM: as dh; GRU: the gradient of what goes through the reset gate
  int64_t sums = 0;      // gradient: partial sums
  int64_t elements = 0;  // of all

  // `gates`: 4 for LSTM, 3 for GRU, 1 for RNN.
  RecurrentScratch(const KernelCall& call, int64_t gates, bool gradient) {
    const Shape &x = call.inputs[0].shape, &r = call.inputs[2].shape;
    const int64_t rows = x[0] * x[1], batch = x[call.attributes.Int("layout", 0) != 0 ? 0 : 1], directions = r[0], hidden = r[2];
    const auto take = [&](bool needed, int64_t n) {
      const int64_t at = elements;
      if (needed) elements += n;
      return at;
    };
    z = take(true, directions * rows * gates * hidden);
    h = take(true, directions * (rows + batch) * hidden);
    c = take(gates == 4, directions * (rows + batch) * hidden);
    reset = take(gates == 3, directions * rows * hidden);
    dh = take(gradient, directions * batch * hidden);
    dc = take(gradient && gates > 1, directions * batch * hidden);
    sums = take(gradient, kRecurrentSumParts * directions * gates * hidden);
  }
};

}  // namespace gradloom
